# Nets on ReverseDiff's tape: a call is one instruction.
module PaddleChainRulesReverseDiffExt

using PaddleChainRules:
    Asked, PaddleChainRules, PaddleNet, by_position, cotangents, each_array, gradients,
    has_derivative, is_flat, plain_type, replace_plain, reversible
using ReverseDiff: ReverseDiff, SpecialInstruction, TrackedReal, deriv, istracked, value

struct OnTape end # in place of a type of dual numbers

PaddleChainRules.dual_type(::Type{<:TrackedReal}) = OnTape
PaddleChainRules.plain_type(::Type{<:TrackedReal{V}}) where {V} = plain_type(V)
PaddleChainRules.replace_plain(::Type{<:TrackedReal{V,D}}, F::Type) where {V,D} =
    TrackedReal{replace_plain(V, F),replace_plain(D, F),Nothing}

"The call of a net of so many inputs; its other arguments are parameters."
struct Call
    net::PaddleNet
    count::Int
    flat::Bool
end

function (call::Call)(args)
    ps = call.flat ? last(args) : args[call.count+1:end]
    return reversible(call.net, args[1:call.count], ps)
end

function PaddleChainRules.forward_of_duals(::Type{OnTape}, net::PaddleNet, xs::Tuple, ps)
    row, flat = by_position(net, ps), is_flat(ps)
    call, args = Call(net, length(xs), flat), (xs..., (flat ? (row,) : row)...)
    tape = ReverseDiff.tape(args...)
    y, reverse = call(map(value, args))
    output = each_array(y -> has_derivative(y) ? ReverseDiff.track(y, tape) : y, y)
    ReverseDiff.record!(tape, SpecialInstruction, call, args, output, Ref{Any}(reverse))
    return output
end

function ReverseDiff.special_reverse_exec!(instruction::SpecialInstruction{Call})
    (; func, input, output, cache) = instruction
    moved = map(istracked, input)
    asked = Asked(any(moved[func.count+1:end]), any(moved[1:func.count]))
    ȳ = each_array(y -> has_derivative(y) ? copy(deriv(y)) : nothing, output)
    p̄s, x̄s = gradients(cache[], cotangents(cache[], ȳ), asked)
    foreach(add!, input, (x̄s..., p̄s...))
    each_array(y -> (has_derivative(y) && ReverseDiff.unseed!(y); nothing), output)
    return nothing
end

add!(x, x̄) = istracked(x) && x̄ !== nothing && ReverseDiff.increment_deriv!(x, x̄)

# Of a tape that runs again, at other numbers.
function ReverseDiff.special_forward_exec!(instruction::SpecialInstruction{Call})
    (; func, input, output, cache) = instruction
    foreach(ReverseDiff.pull_value!, input)
    y, cache[] = func(map(x -> copied(value(x)), input))
    set_values!(output, y)
    return nothing
end

copied(x::AbstractArray) = copy(x)
copied(x) = x

set_values!(output::AbstractArray, y) = has_derivative(output) ? ReverseDiff.value!(output, y) : copyto!(output, y)
set_values!(output::Union{Tuple,NamedTuple}, y) = foreach(set_values!, values(output), values(y))
set_values!(_, _) = nothing

end
