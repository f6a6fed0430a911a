# Functions of traced numbers, which are those of the elements of arrays in broadcasts, too.

const KNOWN_FUNCTIONS = "write it by functions that they have (docs/training-julia.md)"

# By the names that Paddle has for them.
for (f, name) in (
    (:exp, :exp), (:expm1, :expm1), (:log, :log), (:log2, :log2), (:log10, :log10), (:log1p, :log1p), (:sqrt, :sqrt),
    (:sin, :sin), (:cos, :cos), (:tan, :tan), (:asin, :asin), (:acos, :acos), (:atan, :atan), (:sinh, :sinh),
    (:cosh, :cosh), (:tanh, :tanh), (:asinh, :asinh), (:acosh, :acosh), (:atanh, :atanh),
)
    @eval Base.$f(x::TracedNumber{T}) where {T} = TracedNumber{float(T)}(PADDLE.$name(in_type(float(T), x)))
end
for (f, name) in ((:abs, :abs), (:sign, :sign), (:floor, :floor), (:ceil, :ceil))
    @eval Base.$f(x::TracedNumber{T}) where {T} = TracedNumber{T}(PADDLE.$name(x.tensor))
end
for (f, name) in ((:isfinite, :isfinite), (:isnan, :isnan), (:isinf, :isinf), (:!, :logical_not))
    @eval Base.$f(x::TracedNumber) = TracedNumber{Bool}(PADDLE.$name(x.tensor))
end

Base.:+(x::TracedNumber) = x
Base.:-(x::TracedNumber) = TracedNumber{eltype(x)}(-x.tensor)
Base.abs2(x::TracedNumber) = x * x
Base.inv(x::TracedNumber) = 1 / x
Base.exp2(x::TracedNumber) = exp(x * float(eltype(x))(log(2)))
Base.exp10(x::TracedNumber) = exp(x * float(eltype(x))(log(10)))
Base.cbrt(x::TracedNumber) = sign(x) * abs(x)^(1 / oftype(float(one(x)), 3))
Base.sincos(x::TracedNumber) = sin(x), cos(x)
Base.zero(::Union{TracedNumber{T},Type{TracedNumber{T}}}) where {T} = zero(T)
Base.one(::Union{TracedNumber{T},Type{TracedNumber{T}}}) where {T} = one(T)
Base.oneunit(x::Union{TracedNumber,Type{<:TracedNumber}}) = one(x)
Base.float(x::TracedNumber{T}) where {T} = TracedNumber{float(T)}(in_type(float(T), x))
Base.float(x::TracedNumber{<:AbstractFloat}) =
    (FLOATED[] += 1) <= MOST_FLOATED ? x :
    throw(TraceError("a function of Base does not know traced numbers, and calls itself without end", KNOWN_FUNCTIONS))
for T in (:Float32, :Float64)
    @eval Base.$T(x::TracedNumber) = TracedNumber{$T}(in_type($T, x))
end
for T in (:Int32, :Int64)
    @eval Base.$T(x::TracedNumber{<:Integer}) = TracedNumber{$T}(in_type($T, x))
end

Base.promote_rule(::Type{TracedNumber{S}}, ::Type{T}) where {S,T<:Real} = TracedNumber{promote_type(S, T)}
Base.promote_rule(::Type{TracedNumber{S}}, ::Type{TracedNumber{T}}) where {S,T} = TracedNumber{promote_type(S, T)}
Base.convert(::Type{TracedNumber{T}}, x::TracedNumber{T}) where {T} = x
Base.convert(::Type{TracedNumber{T}}, x::TracedNumber) where {T} = TracedNumber{T}(in_type(T, x))
Base.convert(::Type{TracedNumber{T}}, x::Real) where {T} = TracedNumber{T}(tensor_for(convert(T, x)))

"""
    both_in(T, operator, x, y) -> TracedNumber

An operator of Paddle's of two numbers, both in an element type.
"""
both_in(::Type{T}, operator, x, y) where {T} = traced_number(operator(in_type(T, x), in_type(T, y)))

in_common(operator, x, y) = both_in(promote_type(plain_eltype(x), plain_eltype(y)), operator, x, y)
tensors_in_common(operator, x, y) =
    in_common((a, b) -> operator(as_tensor(a, x, y), as_tensor(b, x, y)), x, y)

"Python's number as a tensor, where an operator takes no numbers."
function as_tensor(value::Py, x, y)
    PythonCall.pyisinstance(value, TENSOR) && return value
    T = promote_type(plain_eltype(x), plain_eltype(y))
    return tensor_for(convert(T, x isa TracedNumber ? y : x))
end

divided(x, y) = quotient(x, y)
# Rules of Optimisers divide arrays by numbers such as 1 - β^t: there each step has one division, not each element.
divided(x::TracedNumber, y::TracedNumber) =
    IN_RULE[] && !has_one_element(x) && has_one_element(y) ? by_inverse(x, y) : quotient(x, y)

"x / y as a product. The inverse of a very large or small number has few digits or is infinite, so these are scaled."
function by_inverse(x, y)
    T = float(promote_type(eltype(x), eltype(y)))
    far, scale = T === Float32 ? (2.0f0^100, 2.0f0^25) : (2.0^900, 2.0^225)
    distance = abs(T(y))
    by = ifelse(distance < inv(far), inv(scale), ifelse(distance > far, scale, one(T)))
    return product(product(x, quotient(by, y)), quotient(one(T), by))
end
quotient(x, y) = both_in(float(promote_type(plain_eltype(x), plain_eltype(y))), /, x, y)
has_one_element(x::TracedNumber) = isempty(facts(x.tensor)[2])
# Paddle keeps a number that is an exponent in Float32.
power(x, y) = y isa Real && !(y isa TracedNumber) && Float32(y) == y ? in_common(^, x, y) : tensors_in_common(^, x, y)
power(x::TracedNumber{T}, p::Integer) where {T} =
    T <: Integer && p < 0 ? throw(DomainError(p, "a whole number to a negative power is none; write float(x)^p")) :
    TracedNumber{T}(x.tensor^Py(T <: Integer ? p : T(p)))
maximum_of(x, y) = tensors_in_common((a, b) -> PADDLE.maximum(a, b), x, y)
minimum_of(x, y) = tensors_in_common((a, b) -> PADDLE.minimum(a, b), x, y)
angle_of(x, y) = tensors_in_common((a, b) -> PADDLE.atan2(a, b), x, y)
are_equal(x, y) = in_common(PythonCall.pyeq, x, y)
is_less(x, y) = in_common(PythonCall.pylt, x, y)
is_at_most(x, y) = in_common(PythonCall.pyle, x, y)
sum_of(x, y) = in_common(+, x, y)
difference(x, y) = in_common(-, x, y)
product(x, y) = in_common(*, x, y)
both_hold(x, y) = tensors_in_common((a, b) -> PADDLE.logical_and(a, b), x, y)
either_holds(x, y) = tensors_in_common((a, b) -> PADDLE.logical_or(a, b), x, y)

for (f, of) in (
    (:+, :sum_of), (:-, :difference), (:*, :product), (:/, :divided), (:^, :power), (:max, :maximum_of),
    (:min, :minimum_of), (:atan, :angle_of), (:(==), :are_equal), (:<, :is_less), (:<=, :is_at_most),
)
    @eval Base.$f(x::TracedNumber, y::TracedNumber) = $of(x, y)
    @eval Base.$f(x::TracedNumber, y::Real) = $of(x, y)
    @eval Base.$f(x::Real, y::TracedNumber) = $of(x, y)
end
# Base has methods of its own for these.
for f in (:(==), :<, :<=), S in (:AbstractIrrational, :Rational)
    of = Dict(:(==) => :are_equal, :< => :is_less, :<= => :is_at_most)[f]
    @eval Base.$f(x::TracedNumber, y::$S) = $of(x, y)
    @eval Base.$f(x::$S, y::TracedNumber) = $of(x, y)
end
for S in (:Integer, :Rational)
    @eval Base.:^(x::TracedNumber, y::$S) = power(x, y)
end
Base.:^(::Irrational{:ℯ}, x::TracedNumber) = exp(x)
Base.literal_pow(::typeof(^), x::TracedNumber, ::Val{p}) where {p} =
    p == 2 ? x * x : p == 3 ? x * x * x : p == 1 ? x : p == 0 ? one(x) : p == -1 ? inv(x) :
    p == -2 ? (y = inv(x); y * y) : x^p

for (f, of) in ((:&, :both_hold), (:|, :either_holds))
    @eval Base.$f(x::TracedNumber{Bool}, y::TracedNumber{Bool}) = $of(x, y)
    @eval Base.$f(x::TracedNumber{Bool}, y::Bool) = $of(x, y)
    @eval Base.$f(x::Bool, y::TracedNumber{Bool}) = $of(x, y)
end

Base.ifelse(mask::TracedNumber{Bool}, x::Real, y::Real) =
    TracedNumber{promote_type(plain_eltype(x), plain_eltype(y))}(chosen_of(mask.tensor, x, y))

function chosen_of(mask::Py, x, y)
    T = promote_type(plain_eltype(x), plain_eltype(y))
    each = map(v -> v isa TracedNumber ? in_type(T, v) : tensor_for(convert(T, v)), (x, y))
    return PADDLE.where(mask, each...)
end

Base.clamp(x::TracedNumber, low::Real, high::Real) = min(max(x, low), high)
Base.muladd(x::TracedNumber, y::Real, z::Real) = x * y + z
