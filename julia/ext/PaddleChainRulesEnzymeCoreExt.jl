# Nets under Enzyme: refused by name, before it looks into calls of Python.
module PaddleChainRulesEnzymeCoreExt

using EnzymeCore: Annotation
using EnzymeCore.EnzymeRules: EnzymeRules, FwdConfig, RevConfig
using PaddleChainRules: PaddleModuleWrapper, PaddleNet

const Nets = Annotation{<:Union{PaddleNet,PaddleModuleWrapper}}

refuse(net) = throw(
    ArgumentError(
        "Enzyme can't differentiate $net, whose calls leave Julia; take Zygote (AutoZygote()), or give " *
        "Enzyme lower(net, x), which is plain Julia",
    ),
)

EnzymeRules.augmented_primal(::RevConfig, net::Nets, ::Type{<:Annotation}, ::Annotation...) =
    refuse(net.val)
EnzymeRules.reverse(::RevConfig, net::Nets, _, _, ::Annotation...) = refuse(net.val)
EnzymeRules.forward(::FwdConfig, net::Nets, ::Type{<:Annotation}, ::Annotation...) = refuse(net.val)

end
