# Nets under Mooncake: calls are primitives, by the rules for ChainRules.
module PaddleChainRulesMooncakeExt

using ChainRulesCore: AbstractThunk, AbstractZero, Tangent, ZeroTangent, rrule, unthunk
using Mooncake:
    @is_primitive, @zero_derivative, CoDual, DefaultCtx, Dual, FData, Mooncake, NoFData, NoTangent, fdata, primal,
    tangent, zero_rdata, zero_tangent
using PaddleChainRules:
    PaddleChainRules, PaddleModuleWrapper, PaddleNet, MutableState, common_precision, derivative, derivatives,
    laplacian

const Nets = Union{PaddleNet,PaddleModuleWrapper}
const ByInput = Union{typeof(laplacian),typeof(derivative),typeof(derivatives)}

# What they hold beside parameters has no derivative.
Mooncake.tangent_type(::Type{<:PaddleNet}) = NoTangent
Mooncake.tangent_type(::Type{<:MutableState}) = NoTangent

@zero_derivative DefaultCtx Tuple{typeof(common_precision),Vararg}

@is_primitive DefaultCtx Tuple{PaddleNet,Vararg}
@is_primitive DefaultCtx Tuple{PaddleModuleWrapper,Vararg}
@is_primitive DefaultCtx Tuple{typeof(Core.kwcall),NamedTuple,PaddleNet,Vararg}
@is_primitive DefaultCtx Tuple{typeof(Core.kwcall),NamedTuple,PaddleModuleWrapper,Vararg}
@is_primitive DefaultCtx Tuple{typeof(laplacian),PaddleNet,Any,Any}
@is_primitive DefaultCtx Tuple{typeof(derivative),PaddleNet,Any,Any,Any}
@is_primitive DefaultCtx Tuple{typeof(derivatives),PaddleNet,Any,Any,Any}

Mooncake.rrule!!(f::CoDual{<:Nets}, args::CoDual...) = by_chain_rules((;), f, args...)
Mooncake.rrule!!(f::CoDual{<:ByInput}, args::CoDual...) = by_chain_rules((;), f, args...)
function Mooncake.rrule!!(
    kwcall::CoDual{typeof(Core.kwcall)}, kw::CoDual{<:NamedTuple}, f::CoDual{<:Nets}, args::CoDual...,
)
    y, pullback = by_chain_rules(primal(kw), f, args...)
    keyword_pullback(ȳ) = (zero_rdata(primal(kwcall)), zero_rdata(primal(kw)), pullback(ȳ)...)
    return y, keyword_pullback
end

function by_chain_rules(kw::NamedTuple, called::CoDual...)
    primals = map(primal, called)
    y, back = rrule(primals...; kw...)
    dy = fdata(zero_tangent(y))
    function net_pullback!!(ry)
        ȳ = as_cotangent(tangent(dy, ry))
        # Nothing of the next state has a derivative.
        has_state = length(primals) == 4 && first(primals) isa PaddleNet
        found = back(has_state ? (ȳ[1], ZeroTangent()) : ȳ)
        foreach((x, x̄) -> add!(x.dx, x̄), called, found)
        return map(zero_rdata, primals)
    end
    return CoDual(y, dy), net_pullback!!
end

as_cotangent(ȳ) = ȳ
as_cotangent(::NoTangent) = ZeroTangent()
as_cotangent(ȳs::Union{Tuple,NamedTuple}) = map(as_cotangent, ȳs)

"Add a tangent of ChainRules to what Mooncake keeps of an argument's."
add!(_, ::AbstractZero) = nothing
add!(::NoFData, ::AbstractZero) = nothing
add!(::NoFData, _) = nothing
add!(dx, x̄::AbstractThunk) = add!(dx, unthunk(x̄))
add!(::NoFData, ::AbstractThunk) = nothing
add!(dx::AbstractArray, x̄::AbstractArray) = (dx .+= x̄; nothing)
add!(dx::FData, x̄::Tangent) = add!(dx.data, x̄)
add!(dxs::Union{Tuple,NamedTuple}, x̄s::Tangent) =
    foreach(key -> add!(dxs[key], getproperty(x̄s, key)), keys(dxs))
add!(dx, x̄) = throw(
    ArgumentError(
        "Mooncake keeps no array of its own for the gradient of a view, an adjoint or a reshaped " *
        "array; give the net a plain one, such as copy(x)",
    ),
)

const FORWARD = "nets have no forward mode of Mooncake; take ForwardDiff (AutoForwardDiff()), or Mooncake's " *
                "reverse mode (AutoMooncake())"
Mooncake.frule!!(::Dual{<:Union{Nets,ByInput}}, ::Dual...) = throw(ArgumentError(FORWARD))
Mooncake.frule!!(::Dual{typeof(Core.kwcall)}, ::Dual{<:NamedTuple}, ::Dual{<:Nets}, ::Dual...) =
    throw(ArgumentError(FORWARD))

end
