# Derivatives of derivatives as Lux has them, of a net of Paddle beside its twin of Lux with the
# same weights: Lux turns the inner ones into dual numbers.

using ComponentArrays: ComponentArray
using ForwardDiff: ForwardDiff
using Lux: Lux, AutoForwardDiff, AutoZygote, StatefulLuxLayer
using Optimisers: Adam
using PaddleChainRules: PaddleModuleWrapper, luxlayer, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

"A layer of Paddle, one of Lux, and how its parameters are called."
function pair(T)
    paddle.seed(1)
    parts = paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 4), paddle.nn.Silu(), paddle.nn.Linear(4, 2)
    ours = luxlayer(PaddleModuleWrapper(paddle.nn.Sequential(parts...).to(dtype = lowercase(string(T)))))
    silu(z) = z / (1 + exp(-z))
    theirs = Lux.Chain(Lux.Dense(3 => 5, tanh), Lux.Dense(5 => 4, silu), Lux.Dense(4 => 2))
    (p, st), (q, st_twin) = Lux.setup(Xoshiro(0), ours), Lux.setup(Xoshiro(0), theirs)
    (w, b, v, c, u, d) = values(p)
    q = (layer_1 = (weight = w, bias = b), layer_2 = (weight = v, bias = c), layer_3 = (weight = u, bias = d))
    return ours, p, st, theirs, q, st_twin
end
flat(x::AbstractArray) = vec(collect(x))
flat(x::Number) = [x]
flat(xs) = reduce(vcat, map(flat, values(xs)))

function close(a, b)
    a, b = flat(a), flat(b)
    tolerance = eltype(b) === Float32 ? 1e-5 : 1e-10
    return size(a) == size(b) && eltype(a) == eltype(b) && maximum(abs, a .- b) <= tolerance * maximum(abs, b)
end

const LOSSES = (
    gradient = (model, x, _) -> sum(abs2, Zygote.gradient(sum ∘ (y -> y .^ 2) ∘ model, x)[1]),
    gradient_by_parameters = (model, x, ps) -> sum(abs2, Zygote.gradient(Base.Fix1(sum, abs2) ∘ Base.Fix1(model, x), ps)[1]),
    batched_jacobian = (model, x, _) -> sum(abs2, Lux.batched_jacobian(model, AutoZygote(), x)),
    batched_jacobian_forward = (model, x, _) -> sum(abs2, Lux.batched_jacobian(model, AutoForwardDiff(), x)),
    jacobian = (model, x, _) -> sum(abs2, Zygote.jacobian(model, x)[1]),
    jacobian_forward = (model, x, _) -> sum(abs2, ForwardDiff.jacobian(model, x)),
    vector_jacobian_product = (model, x, _) -> sum(abs2, Lux.vector_jacobian_product(model, AutoZygote(), x, ones(eltype(x), 2, size(x, 2)))),
    jacobian_vector_product = (model, x, _) -> sum(abs2, Lux.jacobian_vector_product(model, AutoForwardDiff(), x, 2 .* x)),
)

@testset "$name, $T" for T in (Float64, Float32), (name, loss) in pairs(LOSSES)
    ours, p, st, theirs, q, st_twin = pair(T)
    name === :gradient_by_parameters && ((p, q) = map(ComponentArray, (p, q)))
    x = randn(Xoshiro(1), T, 3, 6)
    of(layer, st) = (x, ps) -> (m = StatefulLuxLayer{true}(layer, ps, st); loss(m, x, ps) + sum(sin, m(x)))
    f, g = of(ours, st), of(theirs, st_twin)
    @test over_tasks(() -> close(f(x, p), g(x, q)))
    found, expected = over_tasks(() -> (Zygote.gradient(f, x, p), Zygote.gradient(g, x, q)))
    @test close(found[1], expected[1])
    @test close(found[2], expected[2])
end

@testset "training by dual numbers in the parameters, $T" for T in (Float64, Float32)
    ours, p, st, theirs, q, st_twin = pair(T)
    data = randn(Xoshiro(1), T, 3, 6), randn(Xoshiro(2), T, 2, 6)
    function trained(layer, ps, st)
        state = Lux.Training.TrainState(layer, ComponentArray(ps), st, Adam(T(0.01)))
        for _ in 1:4
            _, _, _, state = Lux.Training.single_train_step!(AutoForwardDiff(), Lux.MSELoss(), data, state)
        end
        return state.parameters
    end
    @test close(trained(ours, p, st), trained(theirs, q, st_twin))
end

@testset "a state, through an inner gradient" begin
    paddle.seed(1)
    # Without random numbers: Lux computes the second derivative with the next state.
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 16), paddle.nn.BatchNorm1D(16), paddle.nn.Tanh(), paddle.nn.Linear(16, 2))
    ours = luxlayer(PaddleModuleWrapper(layer.to(dtype = "float64")))
    ps, st = Lux.setup(Xoshiro(0), ours)
    x, v = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 3, 6)
    function loss(x)
        model = StatefulLuxLayer{false}(ours, ps, st)
        return sum(abs2, Zygote.gradient(sum ∘ (y -> y .^ 2) ∘ model, x)[1])
    end
    slope = (loss(x .+ 1e-5 .* v) - loss(x .- 1e-5 .* v)) / 2e-5
    @test isapprox(sum(v .* Zygote.gradient(loss, x)[1]), slope; rtol = 1e-6)
end
