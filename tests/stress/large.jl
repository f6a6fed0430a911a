# Arrays of more than 2^31 bytes through a net and back: `julia large.jl`; about 14 GB of memory.

using PaddleChainRules

const N = 2^29 + 3 # Float32 samples of one feature

function gradient()
    net = PaddleFCNet(1, 1, 1, 1; seed = 1)
    weight = only(net.params[1])
    x = zeros(Float32, 1, N)
    x[[3, N]] .= 2.0f0
    y, back = PaddleChainRules.pullback(net, x)
    sizeof(y) > 2^31 || error("not large: $(sizeof(y)) bytes")
    for i in (1, 3, 2^29, 2^29 + 1, N - 1, N)
        y[i] ≈ weight * x[i] + only(net.params[2]) || error("y[$i] is $(y[i])")
    end
    y = nothing
    ȳ = zeros(Float32, 1, N)
    ȳ[[3, 2^29 + 2, N]] .= 1.0f0
    (w̄, b̄), x̄ = back(ȳ)
    only(w̄) == 4 && only(b̄) == 3 || error("parameters' gradients $w̄ and $b̄")
    for i in (1, 3, 2^29 + 1, 2^29 + 2, N)
        x̄[i] ≈ weight * ȳ[i] || error("x̄[$i] is $(x̄[i])")
    end
    count(!iszero, x̄) == 3 || error("$(count(!iszero, x̄)) entries are not zero")
    return nothing
end

function bytes()
    net = PaddleModuleWrapper(paddle.nn.Identity())
    x = zeros(UInt8, 2^31 + 7)
    x[[1, 2^31, 2^31 + 1, 2^31 + 7]] .= (1, 2, 3, 4)
    y = net(x)
    y == x || error("an array of $(length(x)) bytes changed on its way")
    return nothing
end

foreach((bytes, gradient)) do f
    f()
    GC.gc()
end
println("right")
