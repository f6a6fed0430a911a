# Exact derivatives as NeuralPDE 7 lowers them; read from its source of September 2026, 7.0.
module PaddleChainRulesNeuralPDEExt

using ChainRulesCore: ChainRulesCore
using NeuralPDE: NeuralPDE
using PaddleChainRules: PaddleChainRules, net_in, row_derivative

# Older versions take a function instead: exact_derivative.
@static if isdefined(NeuralPDE, :AbstractDerivativeLowering)

"What `PaddleDerivative()` is, where NeuralPDE is loaded."
struct PaddleDerivative <: NeuralPDE.AbstractDerivativeLowering end

PaddleChainRules.PaddleDerivative() = PaddleDerivative()

"Rows of a net's input for each differentiation: the directions of an `nn_jvp` of this package."
struct Exact{D} end

# As NeuralPDE's own for Enzyme, in whose place these directions tell `nn_jvp` what to call.
function NeuralPDE.lower_derivative(::PaddleDerivative, inner, ctx, shift, direction, order)
    directions, call = fill(direction, order), NeuralPDE.unwrap(inner)
    while NeuralPDE.iscall(call) && NeuralPDE.operation(call) isa NeuralPDE.Differential
        D = NeuralPDE.operation(call)
        x = NeuralPDE.unwrap(D.x)
        D.order isa Integer && haskey(ctx.iv_global, x) ||
            refuse("a derivative by an independent variable, of a whole order", D)
        append!(directions, fill(ctx.iv_global[x], D.order))
        call = NeuralPDE.unwrap(only(NeuralPDE.arguments(call)))
    end
    1 <= length(directions) <= 4 || refuse("a total order of one to four", length(directions))
    NeuralPDE.iscall(call) && haskey(ctx.networks, NeuralPDE.operation(call)) ||
        refuse("derivatives of dependent variables alone", call)
    net = ctx.networks[NeuralPDE.operation(call)]
    variables = map(NeuralPDE.arguments(call), net.args) do argument, slot
        a = NeuralPDE.unwrap(argument)
        is_number = NeuralPDE._isnumber(a)
        is_number || haskey(ctx.iv_global, a) ||
            refuse("independent variables and numbers as arguments", a)
        get(ctx.iv_global, is_number ? NeuralPDE.unwrap(slot) : a, 0)
    end
    rows = map(d -> Tuple(findall(==(d), variables)), Tuple(directions))
    return NeuralPDE.lower_depvar(call, ctx, shift, Exact{rows}())
end

refuse(needed, got) = throw(
    ArgumentError(
        "PaddleDerivative takes $needed, got $got; use a variable of its own for the inner part, " *
        "or FiniteDifferenceDerivative()",
    ),
)

# Of numbers: symbols have methods of NeuralPDE's own, for any kind of direction.
NeuralPDE.nn_jvp(f, X::AbstractMatrix{<:AbstractFloat}, θ, ::Exact{D}, k) where {D} =
    row_derivative(net_in(f), X, θ, D, k)

function ChainRulesCore.rrule(::typeof(NeuralPDE.nn_jvp), f, X, θ, ::Exact{D}, k) where {D}
    y, back = ChainRulesCore.rrule(row_derivative, net_in(f), X, θ, D, k)
    function nn_jvp_pullback(ȳ)
        _, f̄, X̄, θ̄, D̄, k̄ = back(ȳ)
        return ChainRulesCore.NoTangent(), f̄, X̄, θ̄, D̄, k̄
    end
    return y, nn_jvp_pullback
end

end

end
