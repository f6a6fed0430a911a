# Nets on ReverseDiff's tape: a call is one instruction.
module PaddleChainRulesReverseDiffExt

using PaddleChainRules:
    PaddleChainRules, PaddleNet, RowCall, each_array, has_derivative, plain_type, replace_plain, reversible,
    row_call, row_gradients
using ReverseDiff: ReverseDiff, SpecialInstruction, TrackedReal, deriv, istracked, value

struct OnTape end # in place of a type of dual numbers

PaddleChainRules.dual_type(::Type{<:TrackedReal}) = OnTape
PaddleChainRules.plain_type(::Type{<:TrackedReal{V}}) where {V} = plain_type(V)
PaddleChainRules.replace_plain(::Type{<:TrackedReal{V,D}}, F::Type) where {V,D} =
    TrackedReal{replace_plain(V, F),replace_plain(D, F),Nothing}

function PaddleChainRules.forward_of_duals(::Type{OnTape}, net::PaddleNet, xs::Tuple, ps)
    call, args = row_call(net, xs, ps)
    tape = ReverseDiff.tape(args...)
    y, reverse = reversible(call, map(value, args))
    output = each_array(y -> has_derivative(y) ? ReverseDiff.track(y, tape) : y, y)
    ReverseDiff.record!(tape, SpecialInstruction, call, args, output, Ref{Any}(reverse))
    return output
end

function ReverseDiff.special_reverse_exec!(instruction::SpecialInstruction{RowCall})
    (; func, input, output, cache) = instruction
    ȳ = each_array(y -> has_derivative(y) ? copy(deriv(y)) : nothing, output)
    foreach(add!, input, row_gradients(func, cache[], ȳ, map(istracked, input)))
    each_array(y -> (has_derivative(y) && ReverseDiff.unseed!(y); nothing), output)
    return nothing
end

add!(x, x̄) = istracked(x) && x̄ !== nothing && ReverseDiff.increment_deriv!(x, x̄)

# Of a tape that runs again, at other numbers.
function ReverseDiff.special_forward_exec!(instruction::SpecialInstruction{RowCall})
    (; func, input, output, cache) = instruction
    foreach(ReverseDiff.pull_value!, input)
    y, cache[] = reversible(func, map(x -> copied(value(x)), input))
    set_values!(output, y)
    return nothing
end

copied(x::AbstractArray) = copy(x)
copied(x) = x

set_values!(output::AbstractArray, y) = has_derivative(output) ? ReverseDiff.value!(output, y) : copyto!(output, y)
set_values!(output::Union{Tuple,NamedTuple}, y) = foreach(set_values!, values(output), values(y))
set_values!(_, _) = nothing

end
