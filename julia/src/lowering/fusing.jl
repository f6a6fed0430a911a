# Broadcasts over arrays of one size, and columns of it, as a loop over their memory. Julia's own loops
# are nested by dimension, which costs half of the time where the first one is small, and choose an
# index for each array at each place, which no vector instruction does.

using Base.Broadcast: Broadcast, Broadcasted

"""
    fuse.(broadcast)

The same in one loop where it is of numbers, of arrays of one size, and of columns of that size; as
Julia has it elsewhere.
"""
fuse(x) = x

struct Fused{B<:Broadcasted}
    broadcast::B
end

Broadcast.broadcasted(::typeof(fuse), broadcast::Broadcasted) = Fused(broadcast)
# Not for anything: code of other packages that broadcasts what it does not know would be compiled anew.
Broadcast.broadcasted(::typeof(fuse), x::Union{Number,Array{<:Number}}) = x
Broadcast.materialize(x::Fused) = looped(x.broadcast)

function looped(broadcast::Broadcasted)
    T = Broadcast.combine_eltypes(broadcast.f, broadcast.args)
    sizes = full_size(broadcast)
    isconcretetype(T) && sizes !== nothing && has_size(broadcast, sizes) ||
        return copy(Broadcast.instantiate(broadcast))
    out = Array{T}(undef, sizes)
    length(sizes) > 1 && has_column(broadcast, out) ? by_columns!(out, plain(broadcast)) : at_once!(out, broadcast)
    return out
end

function at_once!(out, broadcast)
    @inbounds @simd for i in eachindex(out)
        out[i] = at(broadcast, out, i, i)
    end
end

function by_columns!(out, broadcast)
    rows = max(size(out, 1)::Int, 1)
    for start in 0:rows:length(out)::Int-1
        @inbounds @simd for row in 1:rows
            out[start+row] = at(broadcast, out, start + row, row)
        end
    end
end

"What may be one column beside arrays of more dimensions; a view is of one or of none."
const Column = Union{Vector,SubArray}

# Of arguments one by one, so that the compiler sees through.
"The size of the first array of the most dimensions."
full_size(x::Broadcasted) = larger_size(map(full_size, x.args)...)
full_size(x::Array) = size(x)
full_size(x::Array{<:Any,0}) = nothing
full_size(x) = nothing
larger_size(a) = a
larger_size(a, b, rest...) = larger_size(larger_of(a, b), rest...)
larger_of(a, b) = length(a) >= length(b) ? a : b
larger_of(a, ::Nothing) = a
larger_of(::Nothing, b) = b
larger_of(::Nothing, ::Nothing) = nothing

"Whether all arrays have that size, or are columns of it."
has_size(x::Broadcasted, sizes) = all(map(arg -> has_size(arg, sizes), x.args))
has_size(x::Number, sizes) = true
has_size(x::Array, sizes) = size(x) === sizes
has_size(x::Vector, sizes) = length(sizes) == 1 ? size(x) === sizes : length(x) === sizes[1]
has_size(x::SubArray, sizes) = length(sizes) > 1 && length(x) === size(x, 1) === sizes[1]
has_size(x, sizes) = false

has_column(x::Broadcasted, out) = any(map(arg -> has_column(arg, out), x.args))
has_column(x::Column, out) = ndims(out) > 1
has_column(x, out) = false

"Views copied, since a loop over them costs four times as much."
plain(x::Broadcasted) = Broadcasted(x.f, map(plain, x.args))
plain(x::SubArray) = vec(collect(x))
plain(x) = x

@inline at(x::Number, out, i, row) = x
Base.@propagate_inbounds at(x::Array{<:Any,N}, out::Array{<:Any,N}, i, row) where {N} = x[i]
Base.@propagate_inbounds at(x::Vector, out, i, row) = x[row]
Base.@propagate_inbounds at(x::Vector, out::Vector, i, row) = x[i]
Base.@propagate_inbounds at(x::Broadcasted, out, i, row) = x.f(each_at(out, i, row, x.args...)...)
@inline each_at(out, i, row) = ()
Base.@propagate_inbounds each_at(out, i, row, x, rest...) =
    (at(x, out, i, row), each_at(out, i, row, rest...)...)

"A function's code with its broadcasts fused, and functions in them that become vector instructions."
fused(code) = code
fused(name::Symbol) = get(VECTORIZED, name, name)
function fused(code::Expr)
    if code.head === :(=) && is_broadcast(code.args[2])
        return Expr(:(=), code.args[1], :(fuse.($(fused(code.args[2])))))
    end
    return Expr(code.head, map(fused, code.args)...)
end

is_broadcast(code) = false
is_broadcast(code::Expr) =
    (code.head === :. && Meta.isexpr(code.args[2], :tuple)) ||
    (code.head === :call && code.args[1] isa Symbol && startswith(string(code.args[1]), '.'))
