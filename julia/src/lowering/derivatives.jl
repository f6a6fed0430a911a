# Derivatives by the input of lowered nets: those of the net, lowered in their turn on first use.

laplacian(l::Lowered, x, ps) = derived_value(l, "laplacian", (x,), ps)
derivative(l::Lowered, x, ps, index) =
    derived_value(l, checked_index(l.net, x, index), (x,), ps)
derivatives(l::Lowered, x, ps, wanted) =
    in_order_of(wanted, derived_value(l, checked_wanted(l.net, x, wanted), (x,), ps))
function jvp(l::Lowered, x, ps, v)
    check_one_array(x)
    v === nothing && throw(ArgumentError("jvp needs a direction of x, got nothing; give an array"))
    along = direction(x, spread(x, v))
    takes_columns(l, x) &&
        return as_columns_of(x, jvp(l, as_columns(x), ps, as_columns(along)))
    return slope_of(derived_value(l, "jvp", (x, reshape(along, size(along)..., 1)), ps))
end

laplacian(m::LoweredModule, x) = laplacian(m.net, x, m.params)
derivative(m::LoweredModule, x, index) = derivative(m.net, x, m.params, index)
derivatives(m::LoweredModule, x, indices) = derivatives(m.net, x, m.params, indices)
jvp(m::LoweredModule, x, v) = jvp(m.net, x, m.params, v)

function derived_value(l::Lowered, what, inputs::Tuple, ps)
    x = check_one_array(first(inputs))
    takes_columns(l, x) &&
        return as_columns_of(x, derived_value(l, what, map(as_columns, inputs), ps))
    call = derived_call(l, what, inputs)
    check_inputs(call, inputs)
    return run_lowered(call, inputs, in_order(l.net, ps))
end

check_one_array(x) = x isa AbstractArray ? x : throw(
    ArgumentError("derivatives of a lowered net are by one array, got $(kind_of(x)); give an array"),
)

"Whether points are of more or fewer dimensions than one a column."
takes_columns(l::Lowered, x) =
    l.net.features > 0 ? ndims(x) ∉ (0, 2) : ndims(x) == 1 && is_sample(l.call, length(x))
is_sample(call::LoweredCall, features) =
    length(call.sizes) == 1 && length(call.sizes[1]) == 2 && call.sizes[1][1] == features && call.free == [2]
as_columns(x) = reshape(x, size(x, 1), :)

"What is lowered for a derivative."
function derived_net(l::Lowered, what, inputs::Tuple)
    what == "jvp" || return applied(l.net, what, first(inputs))
    x, v = inputs
    return first(pushing(l.net, (x,), (), (v,), map(Returns(nothing), Tuple(l.net.names))))
end

"""
    derived_call(lowered, what, inputs)

A derivative of a lowered net as a lowered call, made at the first call of a kind.
"""
function derived_call(l::Lowered, what, inputs::Tuple)
    check_features(l.net, inputs[1:1])
    samples = ndims(first(inputs)) == 0 ? 0 : last(size(first(inputs)))
    kind = map(inputs) do x # but for how many samples there are
        ntuple(i -> i == free_dimension(size(x), samples) ? 0 : size(x, i), ndims(x))
    end
    return lock(l.lock) do
        found = get(l.derivatives, (what, kind), nothing)
        found === nothing || return found
        key = (what, map(size, inputs))
        return get!(l.derivatives, key) do
            T = something(l.net.eltype, Float32)
            examples = map(x -> sample_like(some.(size(x)), T), inputs)
            x = length(examples) == 1 ? only(examples) : examples
            call = lowered_call(derived_net(l, what, examples), x, sample_params(l.net, x), (;))
            call.samples == 0 && (l.derivatives[what, kind] = call)
            call
        end
    end
end

"Of no samples at all nothing can be captured."
some(length) = length == 0 ? 3 : length
