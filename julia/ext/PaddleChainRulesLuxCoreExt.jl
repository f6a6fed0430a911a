# Nets as layers of Lux.
module PaddleChainRulesLuxCoreExt

using LuxCore: LuxCore, AbstractLuxLayer
using PaddleChainRules:
    PaddleChainRules, PaddleModuleWrapper, PaddleNet, as_float, check_all_trained, fresh_parameters,
    in_precision, initial_state
using Random: AbstractRNG

"""
    PaddleLuxLayer

What `luxlayer` gives: immutable, with the parameters outside.
"""
struct PaddleLuxLayer{P<:Tuple} <: AbstractLuxLayer
    net::PaddleNet
    params::P # of a layer that does not draw its own
end

function PaddleChainRules.luxlayer(w::PaddleModuleWrapper)
    check_all_trained(w, "a layer of Lux")
    return PaddleLuxLayer(in_precision(w.net, w.params), w.params)
end

named(net::PaddleNet, params) = NamedTuple{Tuple(net.names)}(Tuple(params))

function LuxCore.initialparameters(rng::AbstractRNG, layer::PaddleLuxLayer)
    drawn = fresh_parameters(layer.net, rand(rng, UInt32))
    return named(layer.net, drawn === nothing ? map(copy, layer.params) : drawn)
end

LuxCore.initialstates(rng::AbstractRNG, layer::PaddleLuxLayer) =
    initial_state(layer.net; seed = rand(rng, UInt64))
LuxCore.parameterlength(layer::PaddleLuxLayer) = layer.net.nparams

(layer::PaddleLuxLayer)(x, ps, st::NamedTuple) = layer.net(as_float(layer.net, x), ps, st)

Base.show(io::IO, layer::PaddleLuxLayer) = print(io, "luxlayer(", layer.net, ")")

end
