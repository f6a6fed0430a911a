# Lowered nets beside the same nets written by hand in Julia, and beside calls of Paddle: values,
# Zygote's gradients, and steps with a Laplacian against central differences. In turn in one process,
# one thread. Prints net, task, and microseconds, minima and means of lowered, wrapped, by hand.
#
#     make bench-lowered

using LinearAlgebra: BLAS
using PaddleChainRules
using PaddleChainRules: compile
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

BLAS.set_num_threads(1)
const QUICK = haskey(ENV, "QUICK")
const ROUNDS = QUICK ? 5 : 40

mlp(ps::Tuple{Any,Any}, x) = ps[1] * x .+ ps[2]
mlp(ps::Tuple, x) = mlp(ps[3:end], tanh.(ps[1] * x .+ ps[2]))

"A modified MLP by hand, its parameters in the order of the layer below."
function modified(ps::Tuple, x)
    u, v = tanh.(ps[1] * x .+ ps[2]), tanh.(ps[3] * x .+ ps[4])
    for i in 5:2:length(ps)-2
        h = tanh.(ps[i] * x .+ ps[i+1])
        x = h .* u .+ (1 .- h) .* v
    end
    return ps[end-1] * x .+ ps[end]
end

function nets(width)
    paddle.seed(0)
    pyimport("sys").path.insert(0, @__DIR__)
    made = pyimport("nets")
    made.WIDTH = width
    return (
        "MLP 3x$width" => (made.Named(pylist([2, width, width, width, 1])), mlp),
        "modified MLP 3x$width" => (made.ModifiedMLP(2, 1), modified),
    )
end

# After so many calls each side runs as ever: machine code is looked for every 36 calls.
const SETTLED = 120

"Minimum and mean of each side's microseconds, the sides in turn, once machine code is there."
function in_turn(sides)
    for (_, f) in sides, _ in 1:SETTLED
        f()
    end
    calls = map(sides) do (_, f)
        one = @elapsed f()
        clamp(round(Int, 2e-3 / one), 1, 200)
    end
    found = [Float64[] for _ in sides]
    for _ in 1:ROUNDS, (i, (_, f)) in enumerate(sides)
        start = time_ns()
        for _ in 1:calls[i]
            f()
        end
        push!(found[i], (time_ns() - start) / 1e3 / calls[i])
    end
    return map(minimum, found), map(us -> sum(us) / length(us), found)
end

mean_square(r) = sum(abs2, r) / length(r)

function differences(net, ps, x, step)
    ex, ey = [step, 0], [0, step]
    around = net(ps, x .+ ex) .+ net(ps, x .- ex) .+ net(ps, x .+ ey) .+ net(ps, x .- ey)
    return (around .- 4 .* net(ps, x)) ./ step^2
end

function rows(name, layer, by_hand, points)
    wrapper = PaddleModuleWrapper(layer; jit = true)
    ps, x = wrapper.params, randn(Xoshiro(1), Float32, 2, points)
    lowered, net = lower(wrapper, x), PaddleNet(wrapper)
    compile(net, x, ps)
    isapprox(by_hand(ps, x), wrapper(x); rtol = 1e-4) || error("$name by hand is another net")
    gradient(f) = () -> Zygote.gradient((ps, x) -> mean_square(f(ps, x)), ps, x)
    step(f) = () -> Zygote.gradient(ps -> mean_square(f(ps)), ps)
    tasks = (
        "value" => (() -> lowered(x), () -> wrapper(x), () -> by_hand(ps, x)),
        "gradients" => (
            gradient((ps, x) -> lowered.net(x, ps)), gradient((ps, x) -> net(x, ps)), gradient(by_hand),
        ),
        "Laplacian step" => (
            step(ps -> laplacian(lowered.net, x, ps)), step(ps -> laplacian(net, x, ps)),
            step(ps -> differences(by_hand, ps, x, 1.0f-2)),
        ),
    )
    for (task, sides) in tasks
        names = ("lowered", "wrapped", "by hand")
        least, means = in_turn(collect(zip(names, sides)))
        println(join(("$name, $points points", task, least..., means...), '\t'))
        flush(stdout)
    end
end

for (width, points) in ((16, 100), (64, 1000)), (name, (layer, by_hand)) in nets(width)
    rows(name, layer, by_hand, points)
end
