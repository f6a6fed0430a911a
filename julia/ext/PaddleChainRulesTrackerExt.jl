# Nets under Tracker: a call is one tracked function.
module PaddleChainRulesTrackerExt

using PaddleChainRules:
    Asked, PaddleChainRules, PaddleNet, by_position, cotangents, gradients, has_derivative,
    is_flat, kind_of, plain_type, reversible
using Tracker: Tracker, TrackedArray, TrackedReal, data

struct ByTracker end # in place of a type of dual numbers

PaddleChainRules.dual_type(::Type{<:TrackedReal}) = ByTracker
PaddleChainRules.plain_type(::Type{<:TrackedReal{T}}) where {T} = plain_type(T)

"The call of a net of so many inputs; its other arguments are parameters."
struct Call
    net::PaddleNet
    count::Int
    flat::Bool
end

function PaddleChainRules.forward_of_duals(::Type{ByTracker}, net::PaddleNet, xs::Tuple, ps)
    row, flat = by_position(net, ps), is_flat(ps)
    args = map(in_one, (xs..., (flat ? (row,) : row)...))
    return Tracker.track(Call(net, length(xs), flat), args...)
end

in_one(x::AbstractArray{<:TrackedReal}) = x isa TrackedArray ? x : Tracker.collect(x)
in_one(x) = x

function Tracker._forward(call::Call, args...)
    plain = map(data, args)
    ps = call.flat ? last(plain) : plain[call.count+1:end]
    y, reverse = reversible(call.net, plain[1:call.count], ps)
    y isa AbstractArray && has_derivative(y) || throw(
        ArgumentError(
            "Tracker follows one floating array, and $(call.net) gives $(kind_of(y)); take the part " *
            "that you differentiate in the layer, or use Zygote",
        ),
    )
    moved = map(Tracker.istracked, args)
    asked = Asked(any(moved[call.count+1:end]), any(moved[1:call.count]))
    function net_back(ȳ)
        p̄s, x̄s = gradients(reverse, cotangents(reverse, data(ȳ)), asked)
        return map(once, (x̄s..., p̄s...))
    end
    return y, net_back
end

const TWICE =
    "Tracker has no second derivatives of nets; take ForwardDiff over Tracker, or Zygote within Zygote"
once(x̄::AbstractArray) = Tracker.nobacksies(TWICE, x̄)
once(::Nothing) = nothing

end
