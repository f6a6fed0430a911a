# Functions of numbers, of any kind: formulas of Paddle's activations and of their gradients.

square(x) = x * x
rsqrt(x) = inv(sqrt(x))
relu(x) = max(x, zero(x))
relu6(x) = clamp(x, 0, 6)
leaky_relu(x, slope) = x > 0 ? x : slope * x
elu(x, α) = x > 0 ? x : α * expm1(x)
celu(x, α) = x > 0 ? x : α * expm1(x / α)
selu(x, scale, α) = scale * elu(x, α)
function sigmoid(x)
    decay = exp(-abs(x))
    return x >= 0 ? inv(1 + decay) : decay / (1 + decay)
end
silu(x) = x * sigmoid(x)
logsigmoid(x) = min(x, zero(x)) - log1p(exp(-abs(x)))
softplus(x, β, threshold) = β * x > threshold ? x : log1p(exp(β * x)) / β
tanh_shrink(x) = x - tanh(x)
hardsigmoid(x, slope, offset) = clamp(slope * x + offset, 0, 1)
softshrink(x, t) = x > t ? x - t : x < -t ? x + t : zero(x)
thresholded_relu(x, t, value) = x > t ? x : oftype(x, value)
hardshrink(x, t) = abs(x) > t ? x : zero(x)
gelu(x) = x * (1 + erf(x / sqrt(oftype(x, 2)))) / 2
gelu_tanh(x) = x * (1 + tanh(sqrt(2 / oftype(x, π)) * (x + oftype(x, 0.044715) * x^3))) / 2

tanh_grad(y, ȳ) = ȳ * (1 - y * y)
sigmoid_grad(y, ȳ) = ȳ * y * (1 - y)
relu_grad(y, ȳ) = y > 0 ? ȳ : zero(ȳ)
leaky_relu_grad(x, ȳ, slope) = x > 0 ? ȳ : slope * ȳ
sin_grad(x, ȳ) = ȳ * cos(x)
cos_grad(x, ȳ) = -ȳ * sin(x)
square_grad(x, ȳ) = 2 * x * ȳ
abs_grad(x, ȳ) = iszero(x) ? zero(ȳ) : ȳ * (x / abs(x))

# A conversion that leaves dual numbers as they are.
as_float(::Type{T}, x::AbstractFloat) where {T<:AbstractFloat} = T(x)
as_float(::Type, x) = x
