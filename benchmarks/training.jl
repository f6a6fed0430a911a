# A step of Adam on Burgers' equation from Julia: derivatives with Zygote and Optimisers.update!, and train!, by runs of two
# lengths, of which what train! does before its first step is told apart; in turn, one thread. `make bench-training`, or
#
#     julia --project=$(julia julia/environment.jl Optimisers Zygote | head -1) benchmarks/training.jl

using Optimisers, PaddleChainRules, Zygote
using PaddleChainRules: compile, train!

const ROUNDS = haskey(ENV, "QUICK") ? 2 : 9
const NETS = (("3x16, 100 points", 3, 16, 100, (1000, 10_000)), ("5x64, 1,000 points", 5, 64, 1000, (30, 300)))

function loss(net, theta, x)
    u, u_t, u_x, u_xx = derivatives(net, x, theta, ((0, 0), (1, 0), (0, 1), (0, 2)))
    r = u_t .+ u .* u_x .- 0.01f0 .* u_xx
    return sum(abs2, r) / length(r)
end

function by_zygote(net, theta, state, x, steps)
    value = 0.0f0
    for _ in 1:steps
        value, (gradient,) = Zygote.withgradient(theta -> loss(net, theta, x), theta)
        Optimisers.update!(state, theta, gradient)
    end
    return value
end

by_train(net, theta, state, x, steps) = last(train!(loss, net, theta, state, x; steps))

"Seconds of a run from the start, and its last loss."
function timed(run, net, start, x, steps)
    theta = copy(start)
    state = Optimisers.setup(Optimisers.Adam(1.0f-3), theta)
    value = Ref(0.0f0)
    seconds = @elapsed value[] = run(net, theta, state, x, steps)
    return seconds, value[]
end

function main()
    println("| minimum (mean) | Zygote, Optimisers.update!, us a step | train!, us a step | before the first, ms |\n|---|---|---|---|")
    for (name, layers, width, points, (few, many)) in NETS
        wrapper = PaddleFCNet(2, 1, layers + 1, width; activation = "tanh", seed = 0)
        net, theta, x = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params)), 2 .* rand(Float32, 2, points) .- 1
        compile(net, x, theta)
        sides = ((by_zygote, few), (by_train, few), (by_train, many))
        rounds = [map(side -> timed(first(side), net, theta, x, last(side)), sides) for _ in 0:ROUNDS][2:end]
        for row in rounds # the same steps
            isapprox(row[1][2], row[2][2]; rtol = 1e-2) || error("the losses differ: $row")
        end
        cells = map((minimum, row -> sum(row) / length(row))) do of # of runs, since a difference of noisy ones may be anything
            loop, short, long = (of([row[k][1] for row in rounds]) for k in 1:3)
            step = (long - short) / (many - few)
            map(x -> round(x; digits = 1), (1e6 * loop / few, 1e6 * step, 1e3 * (short - few * step)))
        end
        println("| Burgers, $name, $few and $many steps | ", join(("$least ($mean)" for (least, mean) in zip(cells...)), " | "), " |")
    end
end

main()
