# Broadcasts over arrays of one size as a single loop over their memory. Julia's own loops are
# nested by dimension, which costs half of the time where the first one is small.

using Base.Broadcast: Broadcast, Broadcasted

"""
    fuse.(broadcast)

The same in one loop where it is of numbers and of arrays of one size, as Julia has it elsewhere.
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
    sizes = first_size(broadcast)
    isconcretetype(T) && sizes !== nothing && has_size(broadcast, sizes) ||
        return copy(Broadcast.instantiate(broadcast))
    out = Array{T}(undef, sizes)
    @inbounds @simd for i in eachindex(out)
        out[i] = at(broadcast, i)
    end
    return out
end

# Of arguments one by one, so that the compiler sees through.
first_size(x::Broadcasted) = first_size(x.args...)
first_size(x::Array, rest...) = size(x)
first_size(x, rest...) = first_size(rest...)
first_size(x::Broadcasted, rest...) = first_size(x.args..., rest...)
first_size() = nothing

has_size(x::Broadcasted, sizes) = have_size(sizes, x.args...)
have_size(_) = true
have_size(sizes, x::Number, rest...) = have_size(sizes, rest...)
have_size(sizes, x::Array, rest...) = size(x) === sizes && have_size(sizes, rest...)
have_size(sizes, x::Broadcasted, rest...) = has_size(x, sizes) && have_size(sizes, rest...)
have_size(_, x, rest...) = false

@inline at(x::Number, _) = x
Base.@propagate_inbounds at(x::Array, i) = x[i]
Base.@propagate_inbounds at(x::Broadcasted, i) = x.f(each_at(i, x.args...)...)
@inline each_at(_) = ()
Base.@propagate_inbounds each_at(i, x, rest...) = (at(x, i), each_at(i, rest...)...)

"A function's code with its broadcasts fused."
fused(code) = code
function fused(code::Expr)
    if code.head === :(=) && is_broadcast(code.args[2])
        return Expr(:(=), code.args[1], :(fuse.($(code.args[2]))))
    end
    return Expr(code.head, map(fused, code.args)...)
end

is_broadcast(code) = false
is_broadcast(code::Expr) =
    (code.head === :. && Meta.isexpr(code.args[2], :tuple)) ||
    (code.head === :call && code.args[1] isa Symbol && startswith(string(code.args[1]), '.'))
