# Zygote forces every thunk, so for it all gradients come in one crossing.
module PaddleChainRulesZygoteExt

using ChainRulesCore: ChainRulesCore
using PaddleChainRules:
    Eager, Inputs, PaddleModuleWrapper, PaddleNet, net_rule, wrapper_rule
using Zygote: ZygoteRuleConfig

ChainRulesCore.rrule(::ZygoteRuleConfig, net::PaddleNet, x::Inputs, ps) =
    net_rule(Eager(), net, x, ps)
ChainRulesCore.rrule(::ZygoteRuleConfig, w::PaddleModuleWrapper, xs...) =
    wrapper_rule(Eager(), w, xs...)

end
