# Small nets from Julia: the value, the gradients of a mean square, and steps of Adam, beside SimpleChains, Lux and Flux where they
# are installed. All sides take turns in one process, one thread; their results are compared first. Prints task, net, side, and
# microseconds, minimum and mean, for small_nets_julia.py.
#
#     make bench-small-nets

using LinearAlgebra: BLAS
using Optimisers, PaddleChainRules, Random, Zygote
using PaddleChainRules: compile, forward!, mse, pullback, train!, value_and_gradient!

has(name) = Base.find_package(name) !== nothing
const HAS_CHAINS, HAS_LUX, HAS_FLUX = has("SimpleChains"), has("Lux"), has("Flux")
HAS_CHAINS && @eval import SimpleChains
HAS_LUX && @eval import Lux
HAS_FLUX && @eval import Flux

BLAS.set_num_threads(1)
const ROUNDS = haskey(ENV, "QUICK") ? 3 : 25
const SECONDS = haskey(ENV, "QUICK") ? 1e-3 : 4e-3 # of one side in a round
# The activations of SimpleChains, and those of a library on NNlib. Each gelu is the exact one.
of_chains(activation) = activation == "relu" ? SimpleChains.relu : activation == "gelu" ? SimpleChains.SLEEFPirates.gelu : tanh
has_gradient(activation) = activation != "gelu" # in SimpleChains, which differentiates it by dual numbers that it refuses
of_nnlib(library, activation) = activation == "relu" ? library.relu : activation == "gelu" ? library.NNlib.gelu_erf : tanh
# Name, sizes, activation, and numbers of samples.
const CASES = (
    ("8-64-4 ReLU", (8, 64, 4), "relu", (1, 8, 64)), ("2-16-16-16-1 tanh", (2, 16, 16, 16, 1), "tanh", (1, 100)),
    ("3-64-64-64-1 tanh", (3, 64, 64, 64, 1), "tanh", (1, 64, 1024)), ("32-256-256-10 ReLU", (32, 256, 256, 10), "relu", (128,)),
    ("32-256-256-10 GELU", (32, 256, 256, 10), "gelu", (128,)),
)

calls_in(f, seconds) = (f(); f(); clamp(round(Int, seconds / max(@elapsed(f()), 1e-8)), 1, 100_000))
function microseconds(f::F, calls) where {F}
    start = time_ns()
    for _ in 1:calls
        f()
    end
    return (time_ns() - start) / 1e3 / calls
end

"Minimum and mean of each side in turn."
function in_turn(sides)
    calls = map(side -> calls_in(side[2], SECONDS), sides)
    rounds = [map((side, count) -> microseconds(side[2], count), sides, calls) for _ in 1:ROUNDS]
    return Dict(side[1] => (minimum(r -> r[k], rounds), sum(r -> r[k], rounds) / ROUNDS) for (k, side) in enumerate(sides))
end

loss(net, theta, x, y) = mse(net(x, theta), y)

layers_of(make, sizes, f) = [make(sizes[i], sizes[i+1], i == length(sizes) - 1 ? identity : f) for i in 1:length(sizes)-1]

# What each library has for the same net with the same parameters: value, and gradient of the mean square.
function by_chains(sizes, activation, x, y, params)
    f = of_chains(activation)
    chain = SimpleChains.SimpleChain(SimpleChains.static(first(sizes)), layers_of((i, o, g) -> SimpleChains.TurboDense(g, o), sizes, f)...)
    ps = copyto!(SimpleChains.init_params(chain), reduce(vcat, vec.(params)))
    with_loss, grads = SimpleChains.add_loss(chain, SimpleChains.SquaredLoss(y)), similar(ps)
    gradient = has_gradient(activation) ? () -> SimpleChains.valgrad!(grads, with_loss, x, ps) : nothing
    return () -> chain(x, ps), gradient
end

function by_lux(sizes, activation, x, y, params)
    model = Lux.Chain(layers_of((i, o, g) -> Lux.Dense(i => o, g), sizes, of_nnlib(Lux, activation))...)
    ps, st = Lux.setup(Xoshiro(0), model)
    for (layer, k) in zip(ps, 1:2:length(params))
        copyto!(layer.weight, params[k]), copyto!(layer.bias, params[k+1])
    end
    return () -> first(model(x, ps, st)), () -> Zygote.withgradient(ps -> mse(first(model(x, ps, st)), y), ps)
end

function by_flux(sizes, activation, x, y, params)
    model = Flux.Chain(layers_of((i, o, g) -> Flux.Dense(i => o, g), sizes, of_nnlib(Flux, activation))...)
    for (layer, k) in zip(model.layers, 1:2:length(params))
        copyto!(layer.weight, params[k]), copyto!(layer.bias, params[k+1])
    end
    return () -> model(x), () -> Zygote.withgradient(model -> mse(model(x), y), model)
end

const OTHERS = [name => by for (name, by, there) in (("SimpleChains", by_chains, HAS_CHAINS), ("Lux", by_lux, HAS_LUX), ("Flux", by_flux, HAS_FLUX)) if there]

function print_rows(task, net, found)
    for (side, (least, mean)) in found
        println(join((task, net, side, least, mean), '\t'))
    end
    flush(stdout)
end

function print_versions()
    println("version\tJulia\t$VERSION")
    for (name, there) in (("SimpleChains", HAS_CHAINS), ("Lux", HAS_LUX), ("Flux", HAS_FLUX))
        there && println("version\t$name\t$(pkgversion(getfield(Main, Symbol(name))))")
    end
end

function main()
    print_versions()
    for (name, sizes, activation, numbers) in CASES, n in numbers
        wrapper = PaddleFCNet(first(sizes), last(sizes), length(sizes) - 1, sizes[2]; activation, seed = 0)
        net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
        x, y = randn(Xoshiro(1), Float32, first(sizes), n), randn(Xoshiro(2), Float32, last(sizes), n)
        compile(net, x, theta)
        out, grads = similar(y), similar(theta)
        value, (expected,) = Zygote.withgradient(theta -> loss(net, theta, x, y), theta)
        found = [name => by(sizes, activation, x, y, wrapper.params) for (name, by) in OTHERS]
        values, valgrads = [name => fs[1] for (name, fs) in found], [name => fs[2] for (name, fs) in found if fs[2] !== nothing]
        for (side, f) in values
            f() ≈ net(x, theta) || error("$side: another value, $name, $n")
        end
        isapprox(value_and_gradient!(grads, net, x, theta, mse, y), value; rtol = 1e-4) && isapprox(grads, expected; rtol = 1e-3) ||
            error("another gradient, $name, $n")
        function by_pullback()
            ȳ, back = pullback(net, x, theta)
            ȳ .-= y
            back(ȳ; into = (nothing, grads))
        end
        print_rows("value", "$name, $n", in_turn([("forward!", () -> forward!(out, net, x, theta)), ("net(x, ps)", () -> net(x, theta)), map(Tuple, values)...]))
        print_rows("gradient", "$name, $n", in_turn([
            ("value_and_gradient!", () -> value_and_gradient!(grads, net, x, theta, mse, y)), ("pullback, buffers", by_pullback),
            ("Zygote", () -> Zygote.withgradient(theta -> loss(net, theta, x, y), theta)), map(Tuple, valgrads)...,
        ]))
        n == 1 || print_rows("step", "$name, $n", steps_of_adam(net, theta, x, y, sizes, activation))
    end
end

function steps_of_adam(net, theta, x, y, sizes, activation)
    count = length(theta) * size(x, 2) > 1_000_000 ? 50 : 1000
    ours = copy(theta)
    state = Optimisers.setup(Optimisers.Adam(1.0f-4), ours)
    sides = Any[
        ("train!", () -> train!(loss, net, ours, state, x, y; steps = count)),
        ("train!, 1 step", () -> train!(loss, net, ours, state, x, y; steps = 1)),
    ]
    if HAS_CHAINS && has_gradient(activation)
        f = of_chains(activation)
        layers = [SimpleChains.TurboDense(i == length(sizes) - 1 ? identity : f, sizes[i+1]) for i in 1:length(sizes)-1]
        bare = SimpleChains.SimpleChain(SimpleChains.static(first(sizes)), layers...)
        chain, ps = SimpleChains.add_loss(bare, SimpleChains.SquaredLoss(y)), SimpleChains.init_params(bare)
        grads, rule = similar(ps), SimpleChains.ADAM(1.0f-4)
        push!(sides, ("SimpleChains", () -> SimpleChains.train_unbatched!(grads, ps, chain, x, rule, count)))
    end
    first(sides)[2]()
    found = in_turn(sides)
    return Dict(name => name == "train!, 1 step" ? times : times ./ count for (name, times) in found)
end

main()
