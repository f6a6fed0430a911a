# Nets and their derivatives within a loss that is traced.

dual_type(::AnyTraced) = TracedNumber
with_plain(T::Type, x::Traced) = traced_array(in_type(T, x))

"""
    forward_of_duals(TracedNumber, net, xs, ps)

The value of a net as operators of Paddle's on the tensors that traced arrays stand for.
"""
function forward_of_duals(::Type{TracedNumber}, given::PaddleNet, xs::Tuple, ps)
    net = in_precision(given, ps)
    row, flat = by_position(net, ps), is_flat(ps)
    flat ? check_flat(net, ps) : check_sizes(net, row)
    check_features(net, xs)
    types = flat ? unique(net.eltypes) : net.eltypes
    for (T, p) in zip(types, flat ? (ps,) : row)
        check_eltype("a parameter", plain_eltype(p), T)
    end
    for x in xs
        x isa AbstractArray && eltype(x) <: AbstractFloat && net.eltype !== nothing &&
            check_eltype("an input", eltype(x), net.eltype)
    end
    crossed = map(x -> x isa AbstractArray ? tensor_for(x) : Py(x), xs)
    params = flat ? (tensor_for(ps),) : map(tensor_for, row)
    found = object_of(net.handle).traced(flat, params..., crossed...)
    PythonCall.pyisinstance(found, TENSOR) && return traced_array(found)
    leaves = Any[PythonCall.pyisinstance(leaf, TENSOR) ? traced_array(leaf) : leaf for leaf in found[1]]
    return nest(found[0], leaves)
end
