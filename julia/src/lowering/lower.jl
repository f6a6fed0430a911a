# Fully connected nets in Julia alone.

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
differentiated as any Julia code. [`laplacian`](@ref), [`derivative`](@ref) and
[`derivatives`](@ref) take it too, up to the second order, with rules in closed form. The
activation `"gelu"` needs `using SpecialFunctions`.

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
    formula = Activation(activation)
    hasmethod(formula, Tuple{Float64}) || throw(
        ArgumentError("to lower a net with $activation say `using SpecialFunctions` first"),
    )
    stops = cumsum(map(prod, net.sizes))
    ranges = ntuple(i -> (i == 1 ? 1 : stops[i-1] + 1):stops[i], length(stops))
    return Lowered(formula, net.names, Tuple(net.sizes), ranges)
end

(l::Lowered)(x::AbstractArray, ps) = through(l.activation, x, in_order(l, ps)...)

"Weights and biases as a tuple, views within a flat vector."
in_order(::Lowered, ps::Tuple) = ps
in_order(l::Lowered, ps::NamedTuple) = Tuple(ps[name] for name in l.names)
function in_order(l::Lowered, theta::AbstractVector)
    check_names(l.names, theta)
    return map((range, size) -> reshape(view(theta, range), size), l.ranges, l.sizes)
end

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

Functors.@functor LoweredModule (params,)
@leaf Lowered

function lower(w::PaddleModuleWrapper)
    check_all_trained(w, "a lowered net")
    return LoweredModule(lower(w.net), w.params)
end

(m::LoweredModule)(x) = m.net(x, m.params)
