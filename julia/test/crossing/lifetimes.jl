# What a call returns stays as it is, whatever becomes of everything else.

using ChainRulesCore: ChainRulesCore, rrule, unthunk
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using PythonCall: PythonCall, pyimport
using Random: Xoshiro

isdefined(@__MODULE__, :python_module) || include("../oracle.jl")

const MAKERS = (
    closed = () -> PaddleFCNet(3, 2, 3, 16; dtype = "float64", seed = 1),
    recorded = () -> PaddleModuleWrapper(
        paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.LayerNorm(4)).to(dtype = "float64"),
    ),
)

"Everything of one call in views of it; what they are of is gone when this returns."
@noinline function views(make)
    net, x = make(), randn(Xoshiro(1), 3, 40)
    y, back = rrule(net, x)
    p̄s, x̄ = unthunk.(back(cos.(y)))
    found = Any[
        vec(y), reshape(y, 2, :, 5), view(y, 1:2:2, 3:9), permutedims(y), PermutedDimsArray(x̄, (2, 1)),
        vec(x̄), reinterpret(ComplexF64, vec(x̄)), map(unthunk, p̄s.params)..., y', back, laplacian_of(net, x),
    ]
    copies = Any[item isa AbstractArray ? copy(item) : nothing for item in found]
    return push!(found, y), push!(copies, copy(y)), unthunk(back(cos.(y))[2])
end
laplacian_of(net, x) = PaddleChainRules.is_differentiable(eltype(x)) && net.net.features > 0 ?
                       PaddleChainRules.laplacian(net, x) : copy(x)

function storm(n = 30)
    for _ in 1:n
        [rand(1000) for _ in 1:100]
        rand(2^20)
    end
    GC.gc()
    pyimport("gc").collect()
    PythonCall.GC.gc()
    return nothing
end

@testset "results and gradients outlive all else: $name" for (name, make) in pairs(MAKERS)
    found, copies, x̄ = views(make)
    storm()
    # Paddle takes memory that it has let go of.
    other = PaddleFCNet(64, 64, 2, 64; dtype = "float64")
    for _ in 1:50
        other(rand(64, 100))
    end
    storm()
    for (item, expected) in zip(found, copies)
        item isa AbstractArray && @test item == expected
    end
    back, y = found[findfirst(item -> !(item isa AbstractArray), found)], found[end]
    @test unthunk(back(cos.(y))[2]) ≈ x̄
end

@testset "inputs may change or go after the call: $name" for (name, make) in pairs(MAKERS)
    net, x = make(), randn(Xoshiro(1), 3, 40)
    y = net(x)
    expected = copy(y)
    fill!(x, NaN)
    foreach(p -> fill!(p, NaN), net.params)
    x = nothing
    storm(5)
    @test y == expected
    y .= 0
    @test all(isnan, net(ones(3, 2)))
end

@testset "no array of one call shows in another: $name" for (name, layer) in (
    ("Identity", paddle.nn.Identity()), ("Views", python_module("layers").Views()),
)
    net, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), Float32, 3, 4)
    y, back = rrule(net, x)
    ys = y isa Tuple ? y : (y,)
    ȳs = map(copy, ys)
    p̄s, x̄ = unthunk.(back(y isa Tuple ? ȳs : only(ȳs)))
    grads = p̄s isa ChainRulesCore.AbstractZero ? () : map(unthunk, Tuple(unthunk(p̄s.params)))
    arrays = Array[x, net.params..., ys..., ȳs..., grads..., x̄]
    saved = map(copy, arrays)
    for i in eachindex(arrays)
        arrays[i] .= -7
        @test all(j -> arrays[j] == saved[j], (i+1):length(arrays))
    end
    foreach(copyto!, arrays, saved)
    again = net(x)
    @test (again isa Tuple ? again : (again,)) == ys
end
