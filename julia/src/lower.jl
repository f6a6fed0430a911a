# Fully connected nets in Julia alone.

const LOWERED = Dict{String,Any}(
    "identity" => identity,
    "sigmoid" => z -> 1 / (1 + exp(-z)),
    "tanh" => tanh,
    "relu" => z -> max(z, zero(z)),
    "silu" => z -> z / (1 + exp(-z)),
    "softplus" => z -> z > 20 ? z : log1p(exp(z)),
    "elu" => z -> z > 0 ? z : expm1(z),
    "leaky_relu" => z -> z > 0 ? z : z / 100,
    "sin" => sin,
)

"""
    Lowered

What [`lower`](@ref) gives of a net.
"""
struct Lowered{F,S<:Tuple,R<:Tuple}
    activation::F
    names::Vector{Symbol}
    sizes::S
    ranges::R # of each parameter in the flat vector
end

"""
    lower(net)
    lower(wrapper)

A fully connected net as a pure Julia function of the same arguments: `lower(net)(x, ps)`, and
`lower(wrapper)(x)` on the parameters of the wrapper, which it shares.

It calls no Paddle, so that small nets pay no crossing, and what Paddle does not take enters:
dual numbers of ForwardDiff, other element types. Equal to the Paddle call to rounding, and
differentiated as any Julia code. The activation `"gelu"` needs `using SpecialFunctions`.

Throws an `ArgumentError` for a net that is no chain of Linear layers with one of the built-in
activations between.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh", seed = 0)
x = rand(Float32, 3, 4)
lower(wrapper)(x) ≈ wrapper(x)
```
"""
function lower(net::PaddleNet)
    activation = net.handle.activation
    isempty(activation) && throw(
        ArgumentError(
            "only a fully connected net with one of the built-in activations, or a Sequential " *
            "of Linear layers with one of them between, can be lowered; got $net",
        ),
    )
    haskey(LOWERED, activation) || throw(
        ArgumentError("to lower a net with $activation say `using SpecialFunctions` first"),
    )
    stops = cumsum(map(prod, net.sizes))
    ranges = ntuple(i -> (i == 1 ? 1 : stops[i-1] + 1):stops[i], length(stops))
    return Lowered(LOWERED[activation], net.names, Tuple(net.sizes), ranges)
end

(l::Lowered)(x::AbstractArray, ps::Tuple) = through(l.activation, x, ps...)

(l::Lowered)(x::AbstractArray, ps::NamedTuple) = l(x, Tuple(ps[name] for name in l.names))

(l::Lowered)(x::AbstractArray, theta::AbstractVector) =
    l(x, map((range, size) -> reshape(view(theta, range), size), l.ranges, l.sizes))

through(_, h, weight, bias) = affine(weight, bias, h)
through(activation::F, h, weight, bias, rest...) where {F} =
    through(activation, activation.(affine(weight, bias, h)), rest...)

affine(weight, bias, h::AbstractVecOrMat) = weight * h .+ bias
affine(weight, bias, h::AbstractArray) =
    reshape(affine(weight, bias, reshape(h, size(h, 1), :)), size(weight, 1), size(h)[2:end]...)

function Base.show(io::IO, l::Lowered)
    widths = [l.sizes[1][2]; map(first, l.sizes[1:2:end])...]
    return print(io, "Lowered(", join(widths, " => "), ")")
end

"""
    LoweredModule

What [`lower`](@ref) gives of a wrapper: a function with parameters of its own, for Functors
and Optimisers as the wrapper is.
"""
struct LoweredModule{L<:Lowered,P<:Tuple}
    net::L
    params::P
end

@functor LoweredModule (params,)
@leaf Lowered

lower(w::PaddleModuleWrapper) = LoweredModule(lower(w.net), w.params)

(m::LoweredModule)(x) = m.net(x, m.params)
