# Pullbacks of dual numbers: of what is linear part by part, elsewhere by derivatives of gradients.

"""
    gradients_net(net, count, params, inputs)

The gradients of a net of so many inputs as a net with the same parameters, of the source of random
numbers or `nothing`, the inputs, and a cotangent for each output: a tuple with those of the
parameters, then of the inputs. `params` says which, by one flag or one for each.
"""
gradients_net(net::PaddleNet, count::Int, params = true, inputs::Bool = true) =
    derived(net, (:vjp, count, params, inputs)) do handle
        handle.vjp(count, params isa Bool ? params : pytuple(params), inputs)
    end

function reversible_of_duals(net::PaddleNet, xs::Tuple, ps, trained)
    source = crossing(() -> BRIDGE.random_state())
    y = forward(net, xs, ps)
    row = by_position(net, ps)
    flat = is_flat(row)
    return y, ReverseOfDuals(net, flat ? (row,) : row, xs, flat, outline(y), trained, source)
end

function gradients(reverse::ReverseOfDuals, cotangents::Vector, asked::NeedsGrad = ALL)
    net, xs = reverse.net, reverse.inputs
    every = asked.params && something(reverse.trained, true)
    flags = asked.some === nothing ? every : Tuple(asked.some)
    of = gradients_net(net, length(xs), flags, asked.inputs)
    ps = reverse.flat ? only(reverse.params) : reverse.params
    found = forward(of, (reverse.source, xs..., cotangents...), ps)
    by_params, by_inputs = found[1:end-length(xs)], found[end-length(xs)+1:end]
    return reverse.flat ? (in_one(net, by_params),) : by_params, by_inputs
end

"Gradients of parameters as one vector, or one row a parameter's element; `nothing` for none."
function in_one(net::PaddleNet, grads::Tuple, n...)
    all(isnothing, grads) && return nothing
    some = something(grads...)
    filled = map(grads, Tuple(net.sizes)) do g, size
        g === nothing ? zeros_like(some, eltype(some), (prod(size), n...)) : reshape(g, prod(size), n...)
    end
    return reduce(vcat, filled)
end

"""
    nested_gradients(net, x, ps, found, n...) -> x̄, p̄s

Nest gradients in a row, those of the parameters first, as `x` and `ps`. Those of `n` samples have
one dimension more for the parameters.
"""
function nested_gradients(net::PaddleNet, x, ps, found::Tuple, n...)
    count = length(net.names)
    by_params, by_inputs = found[1:count], found[count+1:end]
    x̄ = nested_as((_, x̄) -> x̄, x, Iterators.Stateful(by_inputs))
    return x̄, is_flat(ps) ? in_one(net, by_params, n...) : nest_params(by_params, ps, net.names)
end

function gradients_of_duals(
    ::Type{D}, reverse::PullbackState, cotangents::Vector, asked::NeedsGrad,
) where {D}
    of(f) = gradients(reverse, Any[f(c) for c in cotangents], asked)
    left, reverse.left = reverse.left, NeedsGrad(false, false) # keeps what Paddle has recorded
    slopes = [of(c -> partial(D, c, k)) for k in 1:partials_count(D)]
    reverse.left = left
    return joined(D, of(c -> primal(D, c)), stacked_parts(slopes))
end

has_duals(reverse::AnyReverse, cotangents) =
    dual_type((reverse.params, reverse.inputs, cotangents)) !== nothing
