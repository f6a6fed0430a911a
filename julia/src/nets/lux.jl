# Nets as layers of Lux; the methods are in the extension for LuxCore.

"""
    luxlayer(wrapper)

A net as a layer of Lux: `layer(x, ps, st)` gives `(y, st)`.

`LuxCore.initialparameters(rng, layer)` gives a named tuple with the names of the parameters:
fresh ones drawn by `rng` for a [`PaddleFCNet`](@ref), and for any other layer a copy of those
that it had. The states are the net's buffers, its mode and the seed of what it draws, see
[`initial_state`](@ref PaddleChainRules.initial_state); for a chain of Linear layers, which draws
nothing, they leave `rng` as it is. Needs `using LuxCore` or `using Lux`.

Arrays of different floating types are taken in the widest of them, as layers of Lux take them, and
gradients come in the types of their primals. A chain of Linear layers takes whole numbers too.

```julia
using LuxCore, Random
layer = luxlayer(PaddleFCNet(3, 2, 2, 16; activation = "tanh"))
ps, st = LuxCore.setup(Xoshiro(0), layer)
y, st = layer(rand(Float32, 3, 4), ps, st)
```
"""
luxlayer(given) = throw(
    ArgumentError(
        Base.get_extension(@__MODULE__, :PaddleChainRulesLuxCoreExt) === nothing ?
        "luxlayer needs LuxCore; say `using LuxCore` (or `using Lux`) first" :
        "luxlayer takes a wrapper, whose parameters its layer starts from, got " *
        "$(kind_of(given)); give PaddleModuleWrapper(layer)",
    ),
)
