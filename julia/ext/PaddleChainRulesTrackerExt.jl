# Nets under Tracker: a call is one tracked function.
module PaddleChainRulesTrackerExt

using PaddleChainRules:
    PaddleChainRules, PaddleNet, RowCall, has_derivative, kind_of, plain_type, reversible, row_call,
    row_gradients
using Tracker: Tracker, TrackedArray, TrackedReal, data

struct ByTracker end # in place of a type of dual numbers

PaddleChainRules.dual_type(::Type{<:TrackedReal}) = ByTracker
PaddleChainRules.plain_type(::Type{<:TrackedReal{T}}) where {T} = plain_type(T)

function PaddleChainRules.forward_of_duals(::Type{ByTracker}, net::PaddleNet, xs::Tuple, ps)
    call, args = row_call(net, xs, ps)
    return Tracker.track(call, map(in_one, args)...)
end

in_one(x::AbstractArray{<:TrackedReal}) = x isa TrackedArray ? x : Tracker.collect(x)
in_one(x) = x

function Tracker._forward(call::RowCall, args...)
    y, reverse = reversible(call, map(data, args))
    y isa AbstractArray && has_derivative(y) || throw(
        ArgumentError(
            "Tracker follows one floating array, and $(call.net) gives $(kind_of(y)); take the part " *
            "that you differentiate in the layer, or use Zygote",
        ),
    )
    moved = map(Tracker.istracked, args)
    net_back(ȳ) = map(once, row_gradients(call, reverse, data(ȳ), moved))
    return y, net_back
end

const TWICE =
    "Tracker has no second derivatives of nets; take ForwardDiff over Tracker, or Zygote within Zygote"
once(x̄::AbstractArray) = Tracker.nobacksies(TWICE, x̄)
once(::Nothing) = nothing

end
