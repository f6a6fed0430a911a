# The built-in activations and their first three derivatives, in Julia alone. Formulas and their
# sources are those of the Python side's `_derivatives.py`.

"""
    Activation(name)

A built-in activation as a function, of numbers of any kind.
"""
struct Activation{name} end

Activation(name::AbstractString) = Activation{Symbol(name)}()

"""
    slopes(activation, z, f) -> f', f'', f'''

Derivatives at a number `z`, where the value is `f`.
"""
function slopes end

(::Activation{:identity})(z) = z
slopes(::Activation{:identity}, z, _) = (one(z), zero(z), zero(z))

(::Activation{:sigmoid})(z) = 1 / (1 + exp(-z))
function slopes(::Activation{:sigmoid}, _, f)
    f1 = f * (1 - f)
    return f1, f1 * (1 - 2 * f), f1 * (1 - 6 * f1)
end

(::Activation{:tanh})(z) = tanh(z)
function slopes(::Activation{:tanh}, _, f)
    f1 = (1 - f) * (1 + f)
    return f1, -2 * f * f1, f1 * (4 - 6 * f1)
end

(::Activation{:relu})(z) = max(z, zero(z))
slopes(::Activation{:relu}, z, _) = (ifelse(z > 0, one(z), zero(z)), zero(z), zero(z))

(::Activation{:leaky_relu})(z) = z > 0 ? z : z / 100
slopes(::Activation{:leaky_relu}, z, _) = (ifelse(z > 0, one(z), one(z) / 100), zero(z), zero(z))

(::Activation{:silu})(z) = z / (1 + exp(-z))
function slopes(::Activation{:silu}, z, _)
    sigmoid = Activation{:sigmoid}()
    s = sigmoid(z)
    s1, s2, s3 = slopes(sigmoid, z, s)
    return z * s1 + s, z * s2 + 2 * s1, z * s3 + 3 * s2
end

# Beyond 20 as Paddle has it.
(::Activation{:softplus})(z) = z > 20 ? z : log1p(exp(z))
function slopes(::Activation{:softplus}, z, _)
    sigmoid = Activation{:sigmoid}()
    s = sigmoid(z)
    s1, s2, _ = slopes(sigmoid, z, s)
    return s, s1, s2
end

(::Activation{:elu})(z) = z > 0 ? z : expm1(z)
function slopes(::Activation{:elu}, z, _)
    z > 0 && return one(z), zero(z), zero(z)
    decay = exp(z)
    return decay, decay, decay
end

(::Activation{:sin})(z) = sin(z)
function slopes(::Activation{:sin}, z, f)
    c = cos(z)
    return c, -f, -c
end
