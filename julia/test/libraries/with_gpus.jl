# Included by gpus.jl, with some calls, and by all_gpus.jl, where JLArrays are there. Each call of a table is made three ways: on arrays of the host,
# which other tests compare with Paddle, and on JLArrays that can be shared, with the same results, on the device;
# on JLArrays that can't, and on some of either kind, which is refused. Scalar indexing is forbidden.

using Adapt: adapt
using ChainRulesCore: ChainRulesCore, AbstractZero, NoTangent, Tangent, frule, rrule, unthunk
using ComponentArrays: ComponentVector
using ForwardDiff: ForwardDiff
using Functors: Functors
using JLArrays: JLArrays, JLArray, jl
using LinearAlgebra: Diagonal, dot
using LuxCore: LuxCore
using Optimisers: Optimisers
using PaddleChainRules
using PaddleChainRules: PaddleChainRules as P
using Random: Xoshiro
using SparseArrays: sprand
using Zygote: Zygote

include("../oracle.jl")
include("pretended.jl")

JLArrays.allowscalar(false)

"The numbers of a result in a row, and what holds each array."
function numbers!(found, x)
    x = unthunk(x)
    x isa JLArray && push!(found, :device => Array(x))
    x isa Union{Array,Number} && push!(found, :host => x)
    x isa Tangent && return numbers!(found, ChainRulesCore.backing(x))
    x isa PaddleModuleWrapper && return numbers!(found, (x.params, values(P.present(x).buffers)))
    x isa ComponentVector && return numbers!(found, getfield(x, :data))
    x isa P.Packed && return numbers!(found, x.values)
    x isa Union{Tuple,NamedTuple} && foreach(part -> numbers!(found, part), values(x))
    return found
end
numbers(x) = numbers!(Pair{Symbol,Any}[], x)

same_numbers(a::Number, b::Number) = isapprox(a, b; rtol = 1e-5, atol = 1e-6)
same_numbers(a, b) = same(a, b)

"The same numbers, and each array on the device; numbers of Julia's are on none."
function same_on_device(found, expected)
    a, b = numbers(found), numbers(expected)
    !isempty(b) && length(a) == length(b) && all(zip(a, b)) do ((where, x), (_, y))
        same_numbers(x, y) && (where === :device || x isa Number)
    end
end

const N = 5
const WRAPPER = PaddleFCNet(3, 2, 3, 4; activation = "tanh", seed = 1)
const NET = PaddleNet(WRAPPER)
const NAMED = NamedTuple{Tuple(NET.names)}(WRAPPER.params)
random(i, size...) = randn(Xoshiro(i), Float32, size...)
const θ0, x0, ȳ0, v0 = reduce(vcat, vec.(WRAPPER.params)), random(2, 3, N), random(3, 2, N), random(4, 3, N)

loss(y) = sum(abs2, y)
gradient(f, xs...) = Zygote.gradient(f, xs...)
thunks(f, ȳ) = map(unthunk, f(ȳ))
filled(f, arrays...) = (f(arrays...); arrays)
like(x, value, size...) = fill!(similar(x, size...), value)
named(θ) = ComponentVector(θ, getfield(ComponentVector(NAMED), :axes))
steps(row) = [0.1f0 .* (1:3 .== row)]

# What each is called with, and the call.
const CALLS = [
    ("value", (θ0, x0), (θ, x) -> NET(x, θ)),
    ("one sample", (θ0, x0), (θ, x) -> NET(x[:, 2], θ)),
    ("a ComponentVector", (θ0, x0), (θ, x) -> NET(x, named(θ))),
    ("views and adjoints", (θ0, x0), (θ, x) -> map(x -> NET(x, view(θ, 1:length(θ))), (view(x, :, 1:2:5), permutedims(x)', reshape(view(x, :, 1:2:5), 3, 3), PermutedDimsArray(permutedims(x), (2, 1))))),
    ("a diagonal", (θ0, x0), (θ, x) -> NET(Diagonal(x[:, 1]), θ)),
    ("forward!", (θ0, x0, ȳ0), (θ, x, ȳ) -> P.forward!(copy(ȳ), NET, x, θ)),
    ("pullback", (θ0, x0, ȳ0), (θ, x, ȳ) -> ((y, back) = P.pullback(NET, x, θ); (y, back(ȳ), back(2 .* ȳ)))),
    ("into", (θ0, x0, ȳ0), (θ, x, ȳ) -> filled(similar(x), similar(θ)) do x̄, θ̄
        P.pullback(NET, x, θ)[2](ȳ; into = (x̄, θ̄))
    end),
    ("into, added", (θ0, x0, ȳ0), (θ, x, ȳ) -> filled(like(x, 1, 3, N), like(θ, 2, length(θ))) do x̄, θ̄
        P.pullback(NET, x, θ)[2](ȳ; into = (x̄, θ̄), accumulate = true)
    end),
    ("into an adjoint and a view", (θ0, x0, ȳ0), (θ, x, ȳ) -> filled(like(x, 1, N, 3), like(θ, 2, 2length(θ))) do x̄, θ̄
        P.pullback(NET, x, θ)[2](ȳ; into = (x̄', view(θ̄, 1:2:2length(θ))), accumulate = true)
    end),
    ("into arrays that are given", (θ0, x0, v0), (θ, x, v) -> filled(copy(v)) do x̄
        P.pullback(NET, x, θ)[2](like(x, 1, 2, N); into = (x̄, nothing))
    end),
    ("rrule", (θ0, x0, ȳ0), (θ, x, ȳ) -> ((y, back) = rrule(NET, x, θ); (y, thunks(back, ȳ)))),
    ("a cotangent of Float64", (θ0, x0, ȳ0), (θ, x, ȳ) -> thunks(rrule(NET, x, θ)[2], Float64.(ȳ))),
    ("thunks that add", (θ0, x0, ȳ0), (θ, x, ȳ) -> ChainRulesCore.add!!(like(θ, 2, length(θ)), rrule(NET, x, θ)[2](ȳ)[3])),
    ("frule", (θ0, x0, v0), (θ, x, v) -> frule((NoTangent(), v, 2 .* θ), NET, x, θ)),
    ("Zygote", (θ0, x0), (θ, x) -> gradient((x, θ) -> loss(NET(x, θ)), x, θ)),
    ("Zygote of a sum", (θ0, x0), (θ, x) -> gradient((x, θ) -> sum(NET(x, θ)), x, θ)),
    ("vjp", (θ0, x0, ȳ0), (θ, x, ȳ) -> vjp(NET, x, θ, ȳ)),
    ("Zygote of vjp", (θ0, x0, ȳ0), (θ, x, ȳ) -> gradient((x, θ, ȳ) -> loss(vjp(NET, x, θ, ȳ)[1]), x, θ, ȳ)),
    ("Zygote in Zygote", (θ0, x0), (θ, x) -> gradient(θ -> loss(gradient(x -> loss(NET(x, θ)), x)[1]), θ)),
    ("ForwardDiff", (θ0, x0), (θ, x) -> ForwardDiff.derivative(t -> loss(NET(x .+ t .* x, θ)), 0.0f0)),
    ("ForwardDiff of a gradient", (θ0, x0, ȳ0), (θ, x, ȳ) -> ForwardDiff.derivative(0.0f0) do t
        sum(map(sum, P.pullback(NET, x .+ t .* x, θ)[2](ȳ)))
    end),
    ("laplacian", (θ0, x0), (θ, x) -> (laplacian(NET, x, θ), gradient((x, θ) -> loss(laplacian(NET, x, θ)), x, θ))),
    ("derivative", (θ0, x0), (θ, x) -> gradient((x, θ) -> loss(P.derivative(NET, x, θ, (1, 0, 1))), x, θ)),
    ("derivatives", (θ0, x0), (θ, x) -> gradient((x, θ) -> sum(map(loss, derivatives(NET, x, θ, ((0, 0, 0), (2, 0, 0))))), x, θ)),
    ("derivatives by names", (θ0, x0), (θ, x) -> derivatives(NET, x, θ, (u = (2,), u_xx = (1, 1, 1)))),
    ("jvp", (θ0, x0, v0), (θ, x, v) -> (P.jvp(NET, x, θ, v), gradient((x, θ, v) -> loss(P.jvp(NET, x, θ, v)), x, θ, v))),
    ("jvp along one vector", (θ0, x0, v0), (θ, x, v) -> P.jvp(NET, x, θ, v[:, 1], θ)),
    ("batched_vjp", (θ0, x0, ȳ0), (θ, x, ȳ) -> P.batched_vjp(NET, x, θ, ȳ)),
    ("batched_jacobian", (θ0, x0), (θ, x) -> gradient((x, θ) -> loss(P.batched_jacobian(NET, x, θ)), x, θ)),
    ("exact_derivative", (θ0, x0), (θ, x) -> exact_derivative(NET)(nothing, nothing, x, steps(2), 1, θ)),
    ("stencil_derivative", (θ0, x0), (θ, x) -> stencil_derivative(nothing, (x, θ, _) -> NET(x, θ), x, steps(2), 1, θ)),
    ("a row's derivative", (θ0, x0), (θ, x) -> P.row_derivative(NET, x, θ, ((1, 2), (2,)), 2)),
    ("luxlayer", (θ0, x0), (θ, x) -> luxlayer(WRAPPER)(x, Float64.(θ), NamedTuple())[1]),
    ("train!", (θ0, x0, ȳ0), (θ, x, ȳ) -> filled(copy(θ)) do θ
        state = Optimisers.setup(Optimisers.Adam(0.01f0), θ)
        P.train!((net, θ, x) -> loss(net(x, θ) .- ȳ) + sum(ȳ * net(x, θ)'), NET, θ, state, x; steps = 3)
    end),
]
# With a wrapper, which is moved as a whole.
function normed(T = Float32)
    paddle.seed(1)
    layers = paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.5), paddle.nn.Linear(4, 2)
    return PaddleModuleWrapper(paddle.nn.Sequential(layers...))
end
const NORMED = normed()
const STATE = merge(P.initial_state(NORMED; seed = 3), (; training = Val(true)))
const TABLE_OF = PaddleModuleWrapper(paddle.nn.Embedding(9, 4))
const PAIR = PaddleModuleWrapper(paddle.nn.Bilinear(3, 2, 4))
const DEEP = PaddleFCNet(3, 2, 20, 4; seed = 1)
const READER = PaddleModuleWrapper(paddle.nn.LSTM(3, 4))

updated(w, x) = Optimisers.update(Optimisers.setup(Optimisers.Adam(0.1f0), w), w, gradient(w -> loss(w(x)), w)[1])[2]
saved(w) = mktempdir(dir -> (path = joinpath(dir, "net.npz"); P.save_params(path, w); P.load_params(path, w)))

const WRAPPERS = [
    ("value", (WRAPPER, x0), (w, x) -> w(x)),
    ("tuples and named tuples", (WRAPPER.params, NAMED, x0), (ps, named, x) -> (NET(x, ps), gradient(named -> loss(NET(x, named)), named))),
    ("Zygote", (WRAPPER, x0), (w, x) -> Tuple(gradient(w -> loss(w(x)), w)[1].params)),
    ("pullback", (WRAPPER, x0, ȳ0), (w, x, ȳ) -> P.pullback(w, x)[2](ȳ)),
    ("laplacian", (WRAPPER, x0), (w, x) -> Tuple(gradient(w -> loss(laplacian(w, x)), w)[1].params)),
    ("forty arrays", (DEEP, x0), (w, x) -> Tuple(gradient(w -> loss(w(x)), w)[1].params)),
    ("frozen", (WRAPPER, x0), (w, x) -> Tuple(filter(!isnothing, gradient(w -> loss(w(x)), P.freeze(w, "0.*"))[1].params))),
    ("update", (WRAPPER, x0), updated),
    ("destructure", (WRAPPER, x0), (w, x) -> ((θ, rebuild) = Optimisers.destructure(w); gradient(θ -> loss(rebuild(θ)(x)), θ))),
    ("a file", (WRAPPER,), saved),
    ("explain", (WRAPPER, x0), (w, x) -> (occursin("through Python", P.explain(w, x)) || error("no reason"); w(x))),
    ("test mode and buffers", (NORMED, x0), (w, x) -> P.testmode(w)(x)),
    ("buffers changed", (NORMED, x0), (w, x) -> P.testmode(Functors.fmap(p -> 2 .* p, w))(x)),
    ("a state", (NORMED.params, STATE, x0), (ps, st, x) -> ((y, st) = PaddleNet(NORMED)(x, ps, st); (y, values(st.buffers)))),
    ("Zygote with a state", (NORMED.params, STATE, x0), (ps, st, x) -> gradient(ps -> loss(PaddleNet(NORMED)(x, ps, st)[1]), ps)),
    ("whole numbers", (TABLE_OF, [3 1 4; 1 5 8]), (w, x) -> (w(x), gradient(w -> loss(w(x)), w)[1].params)),
    ("two inputs", (PAIR, x0, ȳ0), (w, x, y) -> gradient((x, y) -> loss(w(x, y)), x, y)),
    ("a named tuple", (PAIR, x0, ȳ0), (w, x, y) -> PaddleNet(w)((; x1 = x, x2 = y), w.params)),
    ("sequences", (READER, x0, v0), (w, x, v) -> w(P.Packed([x, v[:, 1:2]]))[1].values),
]

device(to::Bool) = x -> to ? on_device(x) : on_host(x)
on_device(x) = adapt(JLArray, x)
on_host(x) = x isa AbstractArray ? copy(x) : x
called(call, given, there) = call(map((x, to) -> device(to)(x), given, there)...)

@testset "$what" for (what, calls) in ("arrays" => CALLS, "wrappers" => WRAPPERS)
    @testset "$name" for (name, given, call) in calls
        EVERY || name in SOME || continue
        all_there, none = map(Returns(true), given), map(Returns(false), given)
        expected = called(call, given, none)
        empty!(ORDER)
        @test same_on_device(shared(() -> called(call, given, all_there)), expected)
        @test UNORDERED[] == 0 && !isempty(ORDER) && last(ORDER) == (PADDLES_STREAM, OWN_STREAM)
        # A device that no package shares.
        @test_throws "can't be shared with Paddle here. Move it to the host" called(call, given, all_there)
        # All but one.
        for i in (length(given) > 1 ? eachindex(given) : ())
            there = Base.setindex(all_there, false, i)
            err = @test_throws ArgumentError shared(() -> called(call, given, there))
            @test occursin("the host", err.value.msg) && occursin("GPU 0", err.value.msg)
        end
    end
end

@testset "many arguments, of which the first are constants" begin
    θ = on_device(θ0)
    shared() do
        empty!(ORDER)
        @test P.in_turn(() -> TURN[], Any[nothing, 3, θ])
        @test ORDER == [(OWN_STREAM, PADDLES_STREAM), (PADDLES_STREAM, OWN_STREAM)]
        empty!(ORDER)
        @test P.in_turn(() -> 7, Any[nothing, 3]) == 7
        @test isempty(ORDER)
    end
end

@testset "where nobody tells Paddle's stream, the host waits" begin
    θ, x = map(on_device, (θ0, x0))
    shared() do
        (; major, minor, prev, allocator, managed_from_object, object_from_managed, view_of_object) = P.TABLE[]
        P.TABLE[] = ExchangeTable(
            major, minor, prev, allocator, managed_from_object, object_from_managed, view_of_object, C_NULL,
        )
        empty!(ORDER)
        @test same_on_device(NET(x, θ), NET(x0, θ0))
        @test ORDER == [(OWN_STREAM, OWN_STREAM), (C_NULL, C_NULL), (OWN_STREAM, OWN_STREAM), (C_NULL, C_NULL)]
    end
end

@testset "other devices and builds" begin
    θ, x = map(on_device, (θ0, x0))
    shared() do
        # The wrapper's buffers lie on the host, and the state has others.
        ps, st = on_device(NORMED.params), on_device(merge(STATE, (; training = Val(false))))
        @test_throws "buffers are on the host, what it is called with on GPU 0" PaddleNet(NORMED)(x, ps)
        @test same_on_device(PaddleNet(NORMED)(x, ps, st)[1], P.testmode(NORMED)(x0))
        CURRENT[] = 1
        @test_throws "on GPU 0, and Julia works on GPU 1 now" NET(x, θ)
        CURRENT[] = 0
        P.IS_GPU_BUILD[] = false
        @test_throws "paddlepaddle-gpu" NET(x, θ)
        P.IS_GPU_BUILD[] = true
        @test same_on_device(NET(x, θ), NET(x0, θ0))
    end
end

@testset "what shows its device in broadcasts alone" begin
    if Base.identify_package("OneHotArrays") === nothing
        skip_test("libraries/gpus, one-hot arrays", "OneHotArrays not in Julia's environment")
    else
        OneHotArrays = Base.require(Base.identify_package("OneHotArrays"))
        rows = Base.invokelatest(OneHotArrays.OneHotMatrix, jl(UInt32[1, 3, 2, 3]), 3)
        found = shared(() -> Base.invokelatest(P.dense, rows))
        @test found isa JLArray{Bool,2} && Array(found) == Bool[1 0 0 0; 0 0 1 0; 0 1 0 1]
    end
end

@testset "sparse matrices of a device" begin
    sparse = JLArrays.JLSparseMatrixCSC(sprand(Xoshiro(5), Float32, 3, N, 0.5))
    for share in (f -> f(), shared)
        @test_throws ArgumentError share(() -> NET(sparse, on_device(θ0)))
    end
end

EVERY && @testset "lowered nets" begin
    low = lower(NET, x0)
    call(θ, x) = gradient((x, θ) -> loss(low(x, θ)), x, θ)
    @test same_on_device(call(on_device(θ0), on_device(x0)), call(θ0, x0)) # plain Julia, which needs no sharing
end
