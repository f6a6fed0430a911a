# Nets in the precision of what they are given: a Python side for each element type, made when it
# is first needed. The layer that was wrapped keeps its own.

is_float(x) = x isa AbstractArray && eltype(x) <: AbstractFloat

dtype_name(T::Type) = lowercase(string(T))

"""
    float_type_of(what, arrays) -> Union{DataType,Nothing}

The one floating element type of a tuple or named tuple of arrays, nothing where there is none.

Throws an `ArgumentError` where there are several.
"""
function float_type_of(what, arrays)
    types = unique(eltype(x) for x in values(arrays) if is_float(x))
    length(types) <= 1 || throw(
        ArgumentError(
            "$what hold $(join(types, " and ")); convert all of them to one element type, for " *
            "example with f32 or f64 of Lux or Flux",
        ),
    )
    return isempty(types) ? nothing : only(types)
end

"""
    in_dtype(net::N, T) -> N

The net for parameters of the element type `T`, itself where it is that already.
"""
function in_dtype(net::N, T::Union{Type,Nothing}) where {N<:PaddleNet}
    (T === nothing || T === net.eltype || !haskey(FLOATS, dtype_name(T))) && return net
    return of_kind(N, derived(handle -> handle.in_dtype(dtype_name(T)), net, T))
end

"""
    in_precision(net, ps) -> PaddleNet

The net for parameters of the element type that `ps` has; itself where `ps` has the net's own, or
mixed ones, which are refused later.

Throws an `ArgumentError` where the net's buffers are of another element type.
"""
in_precision(net::PaddleNet, ps::AbstractVector) =
    eltype(ps) === net.eltype || net.eltype === nothing ? net : switched(net, eltype(ps))
function in_precision(net::PaddleNet, ps::Union{Tuple,NamedTuple})
    isempty(ps) && return net
    T = length(ps) > MAX_TUPLE_LENGTH ? common_type(collect(Any, values(ps))) : common_type(ps...)
    return T === nothing || T === net.eltype ? net : switched(net, T)
end
in_precision(net::PaddleNet, _) = net

# Unrolled over the tuple, whose arrays differ in type.
common_type(p) = p isa Union{AbstractArray,Number} ? eltype(p) : nothing
common_type(ps::Vector{Any}) = allequal(map(common_type, ps)) ? common_type(first(ps)) : nothing
common_type(p, rest...) = common_type(rest...) === common_type(p) ? common_type(p) : nothing

"""
    other_precision(net, what, buffers) -> Union{DataType,Nothing}

The floating element type of buffers, nothing where they have those of the net's own.

Throws an `ArgumentError` for others of mixed types.
"""
function other_precision(net::PaddleNet, what, buffers::NamedTuple)
    own = net.handle.buffers
    is_own(name) = !haskey(own, name) || eltype(own[name]) == eltype(buffers[name])
    return all(is_own, keys(buffers)) ? nothing : float_type_of(what, buffers)
end

function switched(net::PaddleNet, T::Type)
    haskey(FLOATS, dtype_name(T)) || return net
    all(==(T), net.eltypes) && return net
    for (name, buffer) in pairs(net.handle.buffers)
        is_float(buffer) && eltype(buffer) != T && throw(
            ArgumentError(
                "the parameters hold $T, the buffer $name of the net $(eltype(buffer)); convert " *
                "both, as f32(wrapper) and f64(wrapper) of Lux or Flux do, or give the buffers " *
                "too: net(x, ps, st)",
            ),
        )
    end
    return in_dtype(net, T)
end
