# Derivatives by the input of lowered nets: those of the net, lowered in their turn on first use.

laplacian(l::Lowered, x, ps) = derived_value(l, "laplacian", (x,), ps)
derivative(l::Lowered, x, ps, index) =
    derived_value(l, checked_index(l.net, x, index), (x,), ps)
derivatives(l::Lowered, x, ps, indices) = derived_value(
    l, checked_indices(index -> checked_index(l.net, x, index), indices), (x,), ps,
)
jvp(l::Lowered, x, ps, v) = derived_value(l, "jvp", (x, checked_size(x, v)), ps)

laplacian(m::LoweredModule, x) = laplacian(m.net, x, m.params)
derivative(m::LoweredModule, x, index) = derivative(m.net, x, m.params, index)
derivatives(m::LoweredModule, x, indices) = derivatives(m.net, x, m.params, indices)
jvp(m::LoweredModule, x, v) = jvp(m.net, x, m.params, v)

function derived_value(l::Lowered, what, inputs::Tuple, ps)
    x = first(inputs)
    l.net.features > 0 && ndims(x) != 2 && return as_columns_of(
        x, derived_value(l, what, map(a -> as_columns(a, x), inputs), ps),
    )
    call = derived_call(l, what, inputs)
    check_inputs(call, inputs)
    return run_lowered(call, inputs, in_order(l.net, ps))
end

"As `x` with a point a column; one direction for all points as it is."
as_columns(a, x) = size(a) == size(x) ? reshape(a, size(a, 1), :) : a

"""
    derived_call(lowered, what, inputs)

A derivative of a lowered net as a lowered call, made at the first call of a kind.
"""
function derived_call(l::Lowered, what, inputs::Tuple)
    check_first(l, first(inputs))
    kind = map(x -> size(x)[1:end-1], inputs)
    return lock(l.lock) do
        found = get(l.derivatives, (what, kind), nothing)
        found === nothing || return found
        key = (what, map(size, inputs))
        return get!(l.derivatives, key) do
            T = something(l.net.eltype, Float32)
            examples = map(x -> sample_like(size(x), T), inputs)
            ps = map(sample_like, Tuple(l.net.sizes), Tuple(l.net.eltypes))
            call = lowered_call(applied(l.net, what), examples, ps, (;))
            call.samples == 0 && (l.derivatives[what, kind] = call)
            call
        end
    end
end

function check_first(l::Lowered, x)
    features = l.net.features
    features == 0 || (ndims(x) > 0 && size(x, 1) == features) || throw(
        DimensionMismatch(
            "the input has size $(size(x)), the net needs ($features, n): $features features " *
            "first, the batch last",
        ),
    )
    return nothing
end
