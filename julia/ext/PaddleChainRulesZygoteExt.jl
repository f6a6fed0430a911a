# Zygote forces every thunk, so for it all gradients come in one crossing.
module PaddleChainRulesZygoteExt

using ChainRulesCore: ChainRulesCore
using PaddleChainRules:
    Eager, Inputs, PaddleModuleWrapper, PaddleNet, derivative, derivative_rule, derivatives,
    derivatives_rule, jvp, jvp_rule, keyword_rule, laplacian, laplacian_rule, net_rule, state_rule,
    wrapper_rule
using Zygote: Zygote, ZygoteRuleConfig

ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps) =
    net_rule(Eager(), net, x, ps)
ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps, st::NamedTuple) =
    state_rule(Eager(), net, x, ps, st)
ChainRulesCore.rrule(::ZygoteRuleConfig, w::PaddleModuleWrapper, xs...) =
    wrapper_rule(Eager(), w, xs...)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(laplacian), net::PaddleNet, x, ps) =
    laplacian_rule(Eager(), net, x, ps)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(derivative), net::PaddleNet, x, ps, index) =
    derivative_rule(Eager(), net, x, ps, index)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(derivatives), net::PaddleNet, x, ps, indices) =
    derivatives_rule(Eager(), net, x, ps, indices)
ChainRulesCore.rrule(::ZygoteRuleConfig, ::typeof(jvp), net::PaddleNet, x, ps, v) =
    jvp_rule(Eager(), net, x, ps, v)

# Its fields are properties of their own, which Zygote would look into.
Zygote._pullback(
    ::Zygote.AContext, ::typeof(Zygote.literal_getproperty), w::PaddleModuleWrapper, ::Val{:net},
) = w.net, Returns(nothing)
Zygote._pullback(
    cx::Zygote.AContext, ::typeof(Zygote.literal_getproperty), w::PaddleModuleWrapper, name::Val{:params},
) = Zygote._pullback(cx, Zygote.literal_getfield, w, name)

# Zygote drops the gradients of keyword arguments of rules; these are given to it.
function Zygote._pullback(
    ::Zygote.AContext, ::typeof(Core.kwcall), kw::NamedTuple,
    f::Union{PaddleNet,PaddleModuleWrapper}, xs...,
)
    y, back = keyword_rule(Eager(), f, xs, kw)
    function zygote_keyword_pullback(ȳ)
        k̄w, f̄, x̄s = back(Zygote.wrap_chainrules_input(ȳ))
        return nothing, map(Zygote.wrap_chainrules_output, (k̄w, f̄, x̄s...))...
    end
    zygote_keyword_pullback(::Nothing) = nothing
    return y, zygote_keyword_pullback
end

end
