# Zygote forces every thunk, so for it all gradients come in one crossing.
module PaddleChainRulesZygoteExt

using ChainRulesCore: ChainRulesCore
using PaddleChainRules:
    Eager, Inputs, PaddleModuleWrapper, PaddleNet, derivative, derivative_rule, derivatives,
    derivatives_rule, jvp,
    jvp_rule, laplacian, laplacian_rule, net_rule, wrapper_rule
using Zygote: ZygoteRuleConfig

ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps) =
    net_rule(Eager(), net, x, ps)
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

end
