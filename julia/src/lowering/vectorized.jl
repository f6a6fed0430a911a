# tanh and sigmoid without a branch, so that a loop over them becomes vector instructions: of Float32
# and Float64 within three units in the last place. Of other numbers they are as they were.

"What becomes what within a loop."
const VECTORIZED = Dict(:tanh => :tanh_fast, :sigmoid => :sigmoid_fast, :silu => :silu_fast)

tanh_fast(x) = tanh(x)
@inline function tanh_fast(x::T) where {T<:Union{Float32,Float64}}
    scale, part = power_and_rest(-2 * min(abs(x), T(20)))
    e = muladd(scale, part, scale - 1)
    return copysign(-e / (2 + e), x)
end

sigmoid_fast(x) = sigmoid(x)
@inline function sigmoid_fast(x::T) where {T<:Union{Float32,Float64}}
    scale, part = power_and_rest(-min(abs(x), T === Float32 ? 87 : 708)) # to the least normal number
    decay = muladd(scale, part, scale)
    return ifelse(x >= 0, one(T), decay) / (1 + decay)
end

silu_fast(x) = silu(x)
@inline silu_fast(x::Union{Float32,Float64}) = x * sigmoid_fast(x)

"A power of two, and expm1 of what is left: exp(x) is their product and the power."
@inline function power_and_rest(x::T) where {T}
    (; shift, bias, bits, high, low, series) = exponent_parts(T)
    shifted = muladd(x, T(1.4426950408889634), shift) # rounds x / log(2), into the last bits
    n = shifted - shift
    rest = muladd(n, -low, muladd(n, -high, x))
    scale = reinterpret(T, (reinterpret(typeof(bias), shifted) + bias) << bits)
    return scale, rest * evalpoly(rest, series)
end

# log(2) in two parts, of which the first times a small integer is exact; the series of expm1(x) / x.
@inline exponent_parts(::Type{Float32}) = (;
    shift = 12582912.0f0, bias = Int32(127), bits = 23, high = 0.69314575f0, low = 1.4286068f-6,
    series = (1.0f0, 0.5f0, 0.16666667f0, 0.041666668f0, 0.008333334f0, 0.0013888889f0, 0.0001984127f0),
)
@inline exponent_parts(::Type{Float64}) = (;
    shift = 6755399441055744.0, bias = 1023, bits = 52,
    high = 0.6931471803691238, low = 1.9082149292705877e-10,
    series = (
        1.0, 0.5, 0.16666666666666666, 0.041666666666666664, 0.008333333333333333,
        0.001388888888888889, 0.0001984126984126984, 2.48015873015873e-5, 2.7557319223985893e-6,
        2.755731922398589e-7, 2.505210838544172e-8, 2.08767569878681e-9, 1.6059043836821613e-10,
        1.1470745597729725e-11,
    ),
)
