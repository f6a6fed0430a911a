# Nets in streams: files of Serialization, and other processes.

using Distributed: addprocs, remotecall_eval, rmprocs
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, laplacian, luxlayer, paddle
using PythonCall: PythonCall, PyException, pyimport
using Random: Xoshiro
using Serialization: deserialize, serialize
using Zygote: Zygote

isdefined(@__MODULE__, :python_module) || include("../oracle.jl")

function again(x)
    stream = IOBuffer()
    serialize(stream, x)
    return deserialize(seekstart(stream))
end

const TRAVELLERS = (
    chain = () -> PaddleFCNet(3, 2, 3, 5; dtype = "float64", activation = "tanh", seed = 1),
    norms = () -> PaddleModuleWrapper(
        paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.5)).to(dtype = "float64"),
    ),
    convolutions = function ()
        layer = paddle.nn.Sequential(paddle.nn.Conv1D(3, 4, 3; padding = 1), paddle.nn.ReLU(), paddle.nn.MaxPool1D(2))
        return PaddleModuleWrapper(layer.to(dtype = "float64"); frozen = "0.bias")
    end,
)
sizes(name) = name === :convolutions ? (6, 3, 2) : (3, 7)

"Value, gradients and new state of a net with states, seeded."
function of_all(w, x)
    net = PaddleNet(w)
    st = PaddleChainRules.initial_state(net; seed = 3)
    y, next = net(x, w.params, st)
    grads = Zygote.gradient((x, ps) -> sum(abs2, first(net(x, ps, st))), x, w.params)
    return y, next, grads
end

@testset "a wrapper comes back from a stream: $name" for (name, make) in pairs(TRAVELLERS)
    w, x = make(), randn(Xoshiro(1), sizes(name)...)
    back = again(w)
    @test typeof(back) == typeof(w) && back.params == w.params
    @test back.net.names == w.net.names && string(back) == string(w)
    @test back.net.handle !== w.net.handle
    @test isequal(of_all(back, x), of_all(w, x))
    # The one is not the other: buffers and parameters are its own.
    back.params[1] .= 0
    @test w.params[1] != back.params[1]
end

@testset "what is shared, frozen and nested stays so" begin
    w = PaddleChainRules.freeze(PaddleFCNet(3, 2, 2, 4; activation = "tanh", seed = 1), "0.*")
    x = randn(Xoshiro(1), Float32, 3, 5)
    model = (first = w, net = w.net, data = [x])
    back = again(model)
    @test back.first.net.handle === back.net.handle
    @test PaddleChainRules.trained(back.first) == (false, false, true, true)
    @test back.first(x) == w(x) && laplacian(back.first, x) == laplacian(w, x)
    quiet = PaddleNet(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.9)).eval())
    @test again(quiet)(x, (ones(Float32, 4, 3), ones(Float32, 4))) == quiet(x, (ones(Float32, 4, 3), ones(Float32, 4)))
end

@testset "what is not Paddle's own is refused, and nothing is written" begin
    for net in (
        PaddleModuleWrapper(python_module("layers").Two()),
        PaddleFCNet(3, 2, 2, 4; activation = pyimport("paddle").tanh),
        PaddleModuleWrapper(paddle.nn.utils.weight_norm(paddle.nn.Linear(3, 2))),
    )
        err = @test_throws PyException again(net)
        @test occursin("save_params", sprint(showerror, err.value))
    end
end

@testset "a wrapper goes to another process and comes back" begin
    id = only(addprocs(1; exeflags = "--project=$(Base.active_project())"))
    try
        there(code) = remotecall_eval(Main, id, code)
        there(:(using PaddleChainRules, Zygote))
        there(:(both(w, x) = (w(x), Zygote.gradient(w -> sum(abs2, w(x)), w)[1].params); nothing))
        there(:(doubled(w) = PaddleModuleWrapper(w.net, map(p -> 2 .* p, w.params)); nothing))
        for (make, size) in ((TRAVELLERS.chain, (3, 7)), (TRAVELLERS.convolutions, (6, 3, 2)))
            w, x = make(), randn(Xoshiro(1), size...)
            y, grads = there(:(both($w, $x)))
            @test y ≈ w(x)
            @test all(map(≈, grads, Zygote.gradient(w -> sum(abs2, w(x)), w)[1].params))
            found = there(:(doubled($w)))
            @test found.params == map(p -> 2 .* p, w.params)
            @test found(x) ≈ w.net(x, found.params)
        end
        made = there(:(PaddleFCNet(3, 2, 2, 4; seed = 5)))
        @test made.params == PaddleFCNet(3, 2, 2, 4; seed = 5).params
        other = PaddleModuleWrapper(python_module("layers").Two())
        @test_throws "save_params" there(:(identity($other)))
        @test there(:(1 + 1)) == 2
        @test_throws "save_params" there(:(PaddleModuleWrapper(paddle.nn.utils.weight_norm(paddle.nn.Linear(3, 2)))))
        @test there(:(1 + 1)) == 2
    finally
        rmprocs(id)
    end
end
