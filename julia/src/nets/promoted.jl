# Inputs, parameters and states of different floating types, as layers of Lux take them: in the
# widest of these, as Julia's products are. Nets themselves refuse a mixture.

"""
    Precision{T}

The floating type `T` that a call computes in, as a value that rules may hand on; of `nothing` all
arrays stay as they are.
"""
struct Precision{T} end

"""
    common_precision(arrays...) -> Precision

The widest of the floating types of arrays, which may be nested and hold dual numbers.
"""
common_precision(parts...) = precision_of(Union{map(float_types, parts)...})

precision_of(T::Type) = Precision{T in values(FLOATS) ? T : nothing}()
precision_of(T::Union) = precision_of(widest(T))

widest(T::Type) = T
widest(T::Union) = promote_type(widest(T.a), widest(T.b))

"The union of the floating types among arrays."
float_types(x::AbstractArray) = (T = plain_type(eltype(x)); T <: AbstractFloat ? T : Union{})
float_types(xs::Union{Tuple,NamedTuple}) =
    length(xs) > MAX_TUPLE_LENGTH ? float_types(picked(xs, 1:length(xs))) : Union{map(float_types, values(xs))...}
float_types(xs::Vector{Any}) = Union{unique(map(float_types, xs))...}
float_types(_) = Union{}

"""
    in_precision_of(precision, x)

The floating arrays of `x` in that type, themselves where they have it.
"""
in_precision_of(::Precision{T}, x::AbstractArray) where {T} =
    T === nothing || float_types(x) in (T, Union{}) ? x : with_plain(T, x)
in_precision_of(precision, xs::Union{Tuple,NamedTuple}) =
    is_in(precision, xs) ? xs : map(x -> in_precision_of(precision, x), xs)
in_precision_of(_, x) = x

is_in(::Precision{T}, x) where {T} = T === nothing || float_types(x) in (T, Union{})

with_plain(T::Type, x::AbstractArray) = convert.(replace_plain(eltype(x), T), x)

"""
    input_in(precision, net, x)

An input in that type; of a chain of Linear layers one of whole numbers too, such as the corners of a
domain.
"""
input_in(precision, _, x) = in_precision_of(precision, x)
input_in(precision::Precision{T}, net::PaddleNet, x::AbstractArray) where {T} =
    T !== nothing && net.features > 0 && plain_type(eltype(x)) <: Integer ? with_plain(T, x) :
    in_precision_of(precision, x)
