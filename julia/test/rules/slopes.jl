# Gradients of functions of nested arrays beside central differences, and nets to take them of.

using PaddleChainRules: paddle, vjp
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

function smooth()
    paddle.seed(1)
    return python_module("layers").Smooth().to(dtype = "float64")
end

function perceptron()
    paddle.seed(1)
    return paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2)).to(dtype = "float64")
end

"Slope of `f` along `v` at `x`, nested alike."
function slope(f, x, v; step = 1e-5)
    moved(t) = nested_map((a, b) -> a .+ t .* b, x, v)
    return (f(moved(step)) - f(moved(-step))) / 2step
end
nested_map(f, x::AbstractArray, v) = f(x, v)
nested_map(f, xs::Union{Tuple,NamedTuple}, vs) = map((x, v) -> nested_map(f, x, v), xs, vs)
inner(a::AbstractArray, b) = sum(a .* b)
inner(::Nothing, _) = 0.0
inner(as, bs) = sum(inner(as[key], bs[key]) for key in keys(bs))
directions(x::AbstractArray) = randn(Xoshiro(length(x)), size(x))
directions(xs) = map(directions, xs)

"All gradients of `f` at nested points against slopes along random directions."
function right(f, points...)
    found = Zygote.gradient(f, points...)
    return all(eachindex(points)) do i
        v = directions(points[i])
        expected = slope(x -> f(Base.setindex(points, x, i)...), points[i], v)
        isapprox(inner(found[i], v), expected; rtol = 1e-6, atol = 1e-8)
    end
end

"A number of all gradients of a net."
function penalty(net, x, ps, c; kw...)
    x̄, p̄s = vjp(net, x, ps, c; kw...)
    return total(p̄s) + total(x̄)
end
total(a::AbstractArray) = sum(sin, a)
total(::Nothing) = 0.0
total(parts) = sum(total, values(parts))
