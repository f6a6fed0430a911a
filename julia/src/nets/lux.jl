# Nets as layers of Lux; the methods are in the extension for LuxCore.

"""
    luxlayer(wrapper)

Return a net as a layer of Lux: `layer(x, ps, st)` gives `(y, st)`.

Needs `using LuxCore` or `using Lux`. `LuxCore.initialparameters(rng, layer)` gives a named
tuple with the names of the parameters: fresh ones drawn by `rng` for a
[`PaddleFCNet`](@ref), and for any other layer a copy of those that it had. The states are
the net's buffers, its mode and the seed of what it draws, see
[`initial_state`](@ref PaddleChainRules.initial_state). A chain of Linear layers draws
nothing, so its states leave `rng` as it is.

# Arguments

- `wrapper`: a [`PaddleModuleWrapper`](@ref). The layer takes arrays of different floating
  types in the widest of them, as layers of Lux do, and gives gradients in the types of
  their primals. A chain of Linear layers takes whole numbers too.

# Examples

```jldoctest
julia> using LuxCore, Random

julia> layer = luxlayer(PaddleFCNet(3, 2, 2, 16; activation = "tanh"));

julia> ps, st = LuxCore.setup(Xoshiro(0), layer);

julia> y, st = layer(rand(Float32, 3, 4), ps, st);

julia> size(y)
(2, 4)
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
