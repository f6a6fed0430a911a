# Nets as layers of Lux.
module PaddleChainRulesLuxCoreExt

using LuxCore: LuxCore, AbstractLuxLayer
using PaddleChainRules:
    PaddleChainRules, PaddleModuleWrapper, PaddleNet, check_all_trained, common_precision, fresh_parameters,
    in_precision, in_precision_of, initial_state, input_in, is_chain
using Random: AbstractRNG

"""
    PaddleLuxLayer

What `luxlayer` gives: immutable, with the parameters outside.
"""
struct PaddleLuxLayer{N<:PaddleNet,P<:Tuple} <: AbstractLuxLayer
    net::N
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

# A chain of Linear layers draws nothing, and takes nothing from `rng` then, as Lux's layers.
LuxCore.initialstates(rng::AbstractRNG, layer::PaddleLuxLayer) =
    initial_state(layer.net; seed = is_chain(layer.net.handle) ? UInt64(0) : rand(rng, UInt64))
LuxCore.parameterlength(layer::PaddleLuxLayer) = layer.net.nparams

# Arrays of different floating types are taken in the widest of them.
function (layer::PaddleLuxLayer)(x, ps, st::NamedTuple)
    precision, net = common_precision(x, ps, st), layer.net
    return net(input_in(precision, net, x), in_precision_of(precision, ps), in_precision_of(precision, st))
end

Base.show(io::IO, layer::PaddleLuxLayer) = print(io, "luxlayer(", layer.net, ")")

end
