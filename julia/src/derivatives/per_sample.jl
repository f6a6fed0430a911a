# Gradients and Jacobians of each sample of a batch, all of them in one crossing.

"""
    PaddleChainRules.batched_vjp(net, x, ps, ȳ; kwargs...) -> x̄, p̄s
    PaddleChainRules.batched_vjp(wrapper, x, ȳ; kwargs...) -> p̄s, x̄

Compute the gradients that [`vjp`](@ref) gives, for each sample separately.

For sample `i` they are those of `sum(ȳᵢ .* yᵢ)`.

# Arguments

- `x`, `ȳ`: samples along the last dimension of all their arrays. `ȳ` is nested as
  `net(x, ps; kwargs...)`.
- `kwargs`: keyword arguments of the net, shared by all samples.

# Returns

`x̄`, nested as `x` and of the same sizes, and `p̄s`, nested as the parameters, with one
dimension more for the samples, the last; `nothing` where there is no gradient.

# Throws

- A Python error with a sentence: samples cannot be separated, as in batch normalization in
  training, or the layer is random.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> x, ȳ = rand(Float32, 3, 8), ones(Float32, 2, 8);

julia> x̄, p̄s = PaddleChainRules.batched_vjp(PaddleNet(wrapper), x, wrapper.params, ȳ);

julia> size(x̄), map(size, p̄s)
((3, 8), ((16, 3, 8), (16, 8), (2, 16, 8), (2, 8)))
```
"""
function batched_vjp(net::PaddleNet, x, ps, ȳ; kwargs...)
    flat, row, of = per_sample(net, "vjp", x, values(kwargs))
    T = in_precision(net, ps).eltype
    is_known = ȳ isa AbstractArray{<:Real} && T !== nothing # Python checks the size
    shape = is_known ? Leaf(T, size(ȳ)) : outline(forward(flat, row, ps))
    ȳs = Tuple(collect_cotangents!(Any[], ȳ, shape, row))
    n = count_samples(net, (leaves(x)..., ȳs...))
    found = forward(of, (row..., ȳs...), ps)
    return nested_gradients(net, x, is_flat(ps) ? ps : in_filled_arrays(ps), found, n)
end
batched_vjp(w::PaddleModuleWrapper, x, ȳ; kwargs...) =
    reverse(batched_vjp(w.net, x, params_of(w), ȳ; kwargs...))

"""
    PaddleChainRules.batched_jacobian(net, x, ps; kwargs...)
    PaddleChainRules.batched_jacobian(wrapper, x; kwargs...)

Compute the Jacobian of each sample.

It can be differentiated with respect to `x` and `ps`.

# Arguments

- `net`, `wrapper`: a net of one array that gives one, whose samples do not depend on each
  other.
- `x`: `n` samples along the last dimension. A sample of several dimensions counts as one
  vector, as `vec` makes it.
- `kwargs`: keyword arguments of the net, shared by all samples.

# Returns

An array of size `(outputs, inputs, n)`.

# Throws

What [`batched_vjp`](@ref PaddleChainRules.batched_vjp) throws, and for a net that gives
several results.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> size(PaddleChainRules.batched_jacobian(wrapper, rand(Float32, 3, 8)))
(2, 3, 8)
```
"""
function batched_jacobian(net::PaddleNet, x, ps; kwargs...)
    _, row, of = per_sample(net, "jacobian", x, values(kwargs))
    return forward(of, row, ps)
end
batched_jacobian(w::PaddleModuleWrapper, x; kwargs...) =
    batched_jacobian(w.net, x, params_of(w); kwargs...)

"The net and its inputs in a row, and the net of what is asked of each sample."
function per_sample(net::PaddleNet, what::String, x, kw::NamedTuple)
    refuse_sparse("what is of each sample", x)
    flat, row = in_a_row(net, x, kw)
    check_features(flat, row)
    what == "jacobian" && check_by_one_array(x)
    count_samples(net, leaves(x))
    many = (map(leaf -> leaf isa AbstractArray, leaves(x))..., map(Returns(false), leaves(kw))...)
    of = derived(flat, (:per_sample, what, many)) do handle
        handle.per_sample(what, pytuple(many))
    end
    return flat, row, of
end

check_by_one_array(x) = x isa AbstractArray && has_derivative(x) || throw(
    ArgumentError("a Jacobian is by one array of floating numbers, got $(kind_of(x)); give such a one"),
)

"Return the number of samples. Refuse arrays that have different ones, or none."
function count_samples(net::PaddleNet, given::Tuple)
    sizes = [size(x) for x in given if x isa AbstractArray]
    least = net.features > 0 ? 2 : 1
    has_samples(size) = length(size) >= least && last(size) > 0
    !isempty(sizes) && all(has_samples, sizes) && allequal(map(last, sizes)) || throw(
        DimensionMismatch(
            "samples are along the last dimension of every array, as many in each and 1 or more, got the " *
            "sizes $(listed(sizes)); give one sample as reshape(x, size(x)..., 1)",
        ),
    )
    return last(first(sizes))
end
