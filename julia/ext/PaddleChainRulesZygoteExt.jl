# Zygote forces every thunk, so for it all gradients come in one crossing.
module PaddleChainRulesZygoteExt

using ChainRulesCore: AbstractZero, ChainRulesCore, NoTangent, unthunk
using PaddleChainRules:
    Eager, Inputs, PaddleHandle, PaddleModuleWrapper, PaddleNet, batched_jacobian, batched_jacobian_rule,
    derivative, derivative_rule, derivatives, derivatives_rule, is_zero, jvp, jvp_rule, keyword_rule,
    laplacian, laplacian_rule, net_rule, stand_in, state_rule, vjp, wrapper_rule
using PrecompileTools: @compile_workload, @setup_workload
using PythonCall: Py
using Zygote: Context, Zygote, ZygoteRuleConfig

ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps) =
    net_rule(Eager(), net, x, ps)
ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps, st::NamedTuple) =
    state_rule(Eager(), net, x, ps, st)
ChainRulesCore.rrule(::ZygoteRuleConfig, w::PaddleModuleWrapper, xs...) =
    wrapper_rule(Eager(), w, xs...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(laplacian), net::PaddleNet, x, ps; kw...) =
    laplacian_rule(Eager(), net, x, ps; kw...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(derivative), net::PaddleNet, x, ps, index; kw...) =
    derivative_rule(Eager(), net, x, ps, index; kw...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(derivatives), net::PaddleNet, x, ps, wanted; kw...) =
    derivatives_rule(Eager(), net, x, ps, wanted; kw...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(batched_jacobian), net::PaddleNet, x, ps; kw...) =
    batched_jacobian_rule(Eager(), net, x, ps; kw...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(jvp), net::PaddleNet, x, ps, v...; kw...) =
    jvp_rule(Eager(), net, x, ps, v...; kw...)

# Zygote looks into what is made of calls that have rules, so as to differentiate it again.
ChainRulesCore.@opt_out ChainRulesCore.rrule(
    ::ZygoteRuleConfig, ::typeof(jvp), ::PaddleNet, ::AbstractArray, ps, ::AbstractArray,
)

# Calls of Python in a loss, such as `paddle.seed(1)` or `paddle.nn.Tanh()`: Zygote would look into PythonCall. They
# have no derivative, which is refused where one is asked for. PythonCall has no rules, so these stand here.
function ChainRulesCore.rrule(::ZygoteRuleConfig, f::Py, args...; kw...)
    return f(args...; kw...), python_pullback(length(args))
end
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(getproperty), object::Py, name::Symbol) =
    getproperty(object, name), python_pullback(2)

function python_pullback(count)
    function pullback_of_python(Δ)
        is_zero(unthunk(Δ)) || throw(
            ArgumentError(
                "a derivative of what Python computes was asked for, and none passes through calls of Python's objects; " *
                "give PaddleModuleWrapper a layer that computes it, or put the call into ignore_derivatives",
            ),
        )
        return ntuple(Returns(NoTangent()), count + 1)
    end
    return pullback_of_python
end

# Its fields are properties of their own, which Zygote would look into.
Zygote._pullback(
    ::Zygote.AContext, ::typeof(Zygote.literal_getproperty), w::PaddleModuleWrapper, ::Val{:net},
) = w.net, Returns(nothing)
Zygote._pullback(
    cx::Zygote.AContext, ::typeof(Zygote.literal_getproperty), w::PaddleModuleWrapper, name::Val{:params},
) = Zygote._pullback(cx, Zygote.literal_getfield, w, name)

# Zygote drops the gradients of keyword arguments of rules; these are given to it.
function Zygote._pullback(
    cx::Zygote.AContext, ::typeof(Core.kwcall), kw::NamedTuple,
    f::Union{PaddleNet,PaddleModuleWrapper}, xs...,
)
    y, back = keyword_rule(Eager(), f, xs, kw)
    function zygote_keyword_pullback(ȳ)
        k̄w, f̄, x̄s = back(Zygote.wrap_chainrules_input(ȳ))
        return nothing, noted(cx, (kw, f, xs...), map(Zygote.wrap_chainrules_output, (k̄w, f̄, x̄s...)))...
    end
    zygote_keyword_pullback(::Nothing) = nothing
    return y, zygote_keyword_pullback
end

# Implicit parameters, `Zygote.Params`, are noted where they are read, which rules hide from Zygote:
# so each array that a rule differentiates by is noted here.
const Nested = Union{Tuple,NamedTuple}
const ByInput = Union{typeof(laplacian),typeof(derivative),typeof(derivatives),typeof(vjp)}

Zygote._pullback(cx::Context{true}, net::PaddleNet, x::Inputs, more...) = implicit(cx, net, x, more...)
Zygote._pullback(cx::Context{true}, w::PaddleModuleWrapper, xs...) = implicit(cx, w, xs...)
Zygote._pullback(cx::Context{true}, f::ByInput, net::PaddleNet, more...) = implicit(cx, f, net, more...)
Zygote._pullback(cx::Context{true}, f::typeof(jvp), net::PaddleNet, x::Nested, more...) =
    implicit(cx, f, net, x, more...)
Zygote._pullback(cx::Context{true}, f::typeof(jvp), net::PaddleNet, x::AbstractArray, ps, v, vps) =
    implicit(cx, f, net, x, ps, v, vps)
Zygote._pullback(cx::Context{true}, f::typeof(net_rule), more...) = implicit(cx, f, more...)

function implicit(cx::Context{true}, called...)
    y, back = Zygote.chain_rrule(ZygoteRuleConfig(cx), called...)
    implicit_pullback(ȳ) = noted(cx, called, back(ȳ))
    return y, implicit_pullback
end

"A tangent, of which the arrays of `Zygote.Params` have theirs and leave nothing."
noted(_, _, x̄) = x̄
noted(cx::Context{true}, x::AbstractArray, x̄) = Zygote.accum_param(cx, x, x̄)
noted(cx::Context{true}, xs::Union{Tuple,NamedTuple}, x̄s::Union{Tuple,NamedTuple}) =
    map((x, x̄) -> noted(cx, x, x̄), xs, x̄s)
noted(cx::Context{true}, w::PaddleModuleWrapper, w̄::NamedTuple) =
    merge(w̄, (; params = noted(cx, w.params, w̄.params)))

# `Zygote.pushforward` goes by the forward rules, with the tangents of everything in one crossing.
Zygote.Forward.zerolike(::Union{PaddleNet,PaddleModuleWrapper,PaddleHandle}) = nothing
Zygote.Forward._pushforward(ȧs::Tuple, f::Union{PaddleNet,PaddleModuleWrapper}, args...) = pushed_by_rule(ȧs, f, args...)
Zygote.Forward._pushforward(ȧs::Tuple, f::Union{ByInput,typeof(jvp)}, net::PaddleNet, args...) =
    pushed_by_rule(ȧs, f, net, args...)
Zygote.Forward._pushforward(
    ȧs::Tuple, f::typeof(Core.kwcall), kw::NamedTuple, of::Union{PaddleNet,PaddleModuleWrapper}, args...,
) = pushed_by_rule(ȧs, f, kw, of, args...)

function pushed_by_rule(ȧs, called...)
    y, ẏ = ChainRulesCore.frule(ȧs, called...)
    return y, ẏ isa AbstractZero ? Zygote.Forward.zerolike(y) : Zygote.wrap_chainrules_output(ẏ)
end

# A first gradient compiles Zygote's own code more than anything else: what looks into a loss, and the rules of
# what losses are made of.
@setup_workload for T in (Float32, Float64)
    w = stand_in(T, (16, 3), (16,), (2, 16), (2,))
    x, y = ones(T, 3, 32), ones(T, 2, 32)
    @compile_workload begin
        loss(net, x) = sum(abs2, net(x) .- y)
        Zygote.gradient(net -> loss(net, x), w)
    end
end

end
