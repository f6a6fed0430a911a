# Seconds from `using` to the first gradient, step by step, in a fresh process:
#
#     julia --project=$(julia julia/environment.jl Zygote | head -1) benchmarks/first_gradient.jl

load = @elapsed using PaddleChainRules
zygote = @elapsed using Zygote
start = @elapsed PaddleChainRules.bridge()
net = @elapsed wrapper = PaddleFCNet(8, 4, 2, 64; activation = "relu", seed = 0)
x = ones(Float32, 8, 64)
call = @elapsed wrapper(x)
gradient = @elapsed Zygote.gradient(w -> sum(abs2, w(x)), wrapper)

for (step, seconds) in (
    "using PaddleChainRules" => load, "using Zygote" => zygote,
    "starting Paddle" => start, "first net" => net, "first call" => call,
    "first gradient by Zygote" => gradient,
)
    println(step, '\t', seconds)
end
