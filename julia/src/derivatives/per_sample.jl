# Gradients and Jacobians of each sample of a batch, all of them in one crossing.

"""
    PaddleChainRules.batched_vjp(net, x, ps, ȳ; kwargs...)
    PaddleChainRules.batched_vjp(wrapper, x, ȳ; kwargs...)

The gradients of the parameters by each sample apart: of `sum(ȳᵢ .* yᵢ)` for the sample `i`, with
one dimension more than the parameters, the last, and nested as they are; `nothing` where there is
none. Samples are along the last dimension of all arrays of `x` and of `ȳ`, which is nested as
`net(x, ps; kwargs...)`; keyword arguments are shared by all.

Throws a Python error with a sentence where samples can't be told apart, as in batch normalization
in training, or for random layers.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0)
x, ȳ = rand(Float32, 3, 8), ones(Float32, 2, 8)
map(size, PaddleChainRules.batched_vjp(wrapper, x, ȳ)) # ((16, 3, 8), (16, 8), (2, 16, 8), (2, 8))
```
"""
function batched_vjp(net::PaddleNet, x, ps, ȳ; kwargs...)
    flat, row, of = per_sample(net, "vjp", x, values(kwargs))
    ȳs = ȳ isa AbstractArray ? (dense(ȳ),) :
         Tuple(collect_cotangents!(Any[], ȳ, outline(forward(flat, row, ps))))
    found = forward(of, (row..., ȳs...), ps)
    is_flat(ps) || return nest_params(found, ps, net.names)
    n = size(first(leaves(x)), ndims(first(leaves(x))))
    return in_one(net, map(g -> g === nothing ? g : reshape(g, :, n), found), n)
end
batched_vjp(w::PaddleModuleWrapper, x, ȳ; kwargs...) = batched_vjp(w.net, x, w.params, ȳ; kwargs...)

"""
    PaddleChainRules.batched_jacobian(net, x, ps; kwargs...)
    PaddleChainRules.batched_jacobian(wrapper, x; kwargs...)

The Jacobian of each sample: `(outputs, inputs, n)` for `x` with `n` samples along its last
dimension, where a sample of several dimensions counts as one vector, as `vec` makes it.

For a net of one array that gives one, whose samples do not depend on each other; keyword arguments
are shared by all. Differentiable with respect to `x` and `ps`.

Throws as [`batched_vjp`](@ref PaddleChainRules.batched_vjp), and for a net that gives several
results.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0)
size(PaddleChainRules.batched_jacobian(wrapper, rand(Float32, 3, 8))) # (2, 3, 8)
```
"""
function batched_jacobian(net::PaddleNet, x::AbstractArray, ps; kwargs...)
    _, row, of = per_sample(net, "jacobian", x, values(kwargs))
    return forward(of, row, ps)
end
batched_jacobian(w::PaddleModuleWrapper, x; kwargs...) =
    batched_jacobian(w.net, x, params_of(w); kwargs...)

"The net and its inputs in a row, and the net of what is asked of each sample."
function per_sample(net::PaddleNet, what::String, x, kw::NamedTuple)
    flat, row = in_a_row(net, x, kw)
    check_features(flat, row)
    many = (map(leaf -> leaf isa AbstractArray, leaves(x))..., map(Returns(false), leaves(kw))...)
    of = derived(flat, (:per_sample, what, many)) do handle
        handle.per_sample(what, pytuple(many))
    end
    return flat, row, of
end
