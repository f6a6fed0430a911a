# Forward rules and directions, derivatives by names, and those of each sample, against differences.

using ChainRulesCore: ChainRulesCore, NoTangent, Tangent, ZeroTangent, frule
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, lower,
    paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../rules/slopes.jl")

const batched_vjp, batched_jacobian = PaddleChainRules.batched_vjp, PaddleChainRules.batched_jacobian

plain(x::AbstractArray) = x
plain(x::Tangent) = map(plain, ChainRulesCore.backing(x))
plain(x) = x

"Whether a tangent of `f` at nested points is that of differences along `vs`."
function follows(found, f, points, vs; rtol = 1e-6)
    moved(t) = f(map((x, v) -> nested_map((a, b) -> a .+ t .* b, x, v), points, vs)...)
    step = 1e-5
    compare(::Any, plus, _) = !(plus isa AbstractArray{<:AbstractFloat})
    compare(a::AbstractArray, plus, minus) =
        size(a) == size(plus) && isapprox(a, (plus .- minus) ./ 2step; rtol, atol = 1e-8)
    compare(as::Union{Tuple,NamedTuple}, plus, minus) =
        all(key -> compare(as[key], plus[key], minus[key]), keys(plus))
    return compare(plain(found), moved(step), moved(-step))
end

tangent_of(::AbstractArray, v) = v
tangent_of(xs::Tuple, vs) = Tangent{typeof(xs)}(vs...)
tangent_of(xs::NamedTuple, vs) = Tangent{typeof(xs)}(; vs...)

@testset "along inputs, parameters and keyword arguments" begin
    layer = smooth()
    w = PaddleModuleWrapper(layer)
    net, ps = w.net, w.params
    image, scale = randn(Xoshiro(1), 6, 5, 2, 4), randn(Xoshiro(2), 1, 4)
    named = NamedTuple{Tuple(net.names)}(ps)
    x = (; image, scale)
    @test unchanged(layer) do
        for p in (ps, named, NamedTuple{reverse(keys(named))}(named), reduce(vcat, vec.(ps)))
            vx, vp = directions(x), directions(p)
            y, ẏ = frule((NoTangent(), tangent_of(x, vx), tangent_of(p, vp)), net, x, p)
            @test y ≈ net(x, p) && follows(ẏ, (x, p) -> net(x, p), (x, p), (vx, vp))
            @test jvp(net, x, p, vx, vp) ≈ ẏ
            @test follows(jvp(net, x, p, vx), x -> net(x, p), (x,), (vx,))
            @test follows(jvp(net, x, p, nothing, vp), p -> net(x, p), (p,), (vp,))
        end
        v, vs = directions(image), directions(scale)
        @test follows(jvp(net, image, ps, v; scale), image -> net(image, ps; scale), (image,), (v,))
        _, ẏ = frule((NoTangent(), (; scale = vs), NoTangent(), v, NoTangent()), Core.kwcall, (; scale), net, image, ps)
        @test follows(ẏ, (image, scale) -> net(image, ps; scale), (image, scale), (v, vs))
        ẇ = Tangent{typeof(w)}(; params = directions(ps))
        _, ẏ = frule((NoTangent(), (; scale = vs), ẇ, v), Core.kwcall, (; scale), w, image)
        @test follows(ẏ, (image, scale, ps) -> net(image, ps; scale), (image, scale, ps), (v, vs, directions(ps)))
        @test frule((NoTangent(), ZeroTangent(), NoTangent()), net, x, ps)[2] isa ZeroTangent
        @test right((image, v, vp) -> sum(sin, jvp(net, image, ps, v, vp; scale)), image, v, directions(ps))
        @test right((x, ps) -> sum(sin, jvp(net, x, ps, directions(x))), x, ps)
    end
    @test_throws ArgumentError jvp(net, x, ps, nothing)
    @test_throws DimensionMismatch jvp(net, x, ps, (image = image[:, :, :, 1:2], scale = nothing))
end

@testset "several results, and a state" begin
    paddle.seed(3)
    several = PaddleModuleWrapper(python_module("layers").Several().to(dtype = "float64"))
    x, v = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 3, 5)
    y, ẏ = frule((NoTangent(), v), several, x)
    @test y.hidden[2] isa Matrix{Int64} || y.hidden[2] isa Vector{Int64}
    @test follows(ẏ, x -> several(x), (x,), (v,))
    @test ẏ.word isa NoTangent && ẏ.hidden[2] isa NoTangent
    noisy = PaddleModuleWrapper(python_module("layers").Noisy().to(dtype = "float64"))
    st = PaddleChainRules.initial_state(noisy; seed = 3)
    (y, next), Δ = frule((NoTangent(), v, NoTangent(), NoTangent()), noisy.net, x, noisy.params, st)
    plain_y, after = noisy.net(x, noisy.params, st)
    @test y ≈ plain_y && next.seed == after.seed
    @test follows(Δ[1], x -> noisy.net(x, noisy.params, st)[1], (x,), (v,); rtol = 1e-5)
end

@testset "rules of derivatives and of gradients" begin
    w = PaddleModuleWrapper(perceptron())
    net, ps, x = w.net, w.params, randn(Xoshiro(1), 3, 4)
    v, vp, c, vc = directions(x), directions(ps), randn(Xoshiro(2), 2, 4), randn(Xoshiro(3), 2, 4)
    moved = Tangent{typeof(ps)}(vp...)
    for (f, more) in ((laplacian, ()), (derivative, ((1, 0, 1),)), (derivatives, (((0, 0, 0), (2, 0, 0)),)))
        y, ẏ = frule((NoTangent(), NoTangent(), v, moved, map(Returns(NoTangent()), more)...), f, net, x, ps, more...)
        @test follows(ẏ, (x, ps) -> f(net, x, ps, more...), (x, ps), (v, vp))
    end
    _, ẏ = frule((NoTangent(), NoTangent(), v, moved, vc), vjp, net, x, ps, c)
    @test follows(ẏ, (x, ps, c) -> vjp(net, x, ps, c), (x, ps, c), (v, vp, vc))
    _, ẏ = frule((NoTangent(), NoTangent(), v, moved, c[[1, 1, 2], :]), jvp, net, x, ps, v)
    @test follows(ẏ, (x, ps, v) -> jvp(net, x, ps, v), (x, ps, v), (v, vp, c[[1, 1, 2], :]))
end

@testset "derivatives by names" begin
    scope = pydict()
    pyexec("""
    import paddle
    class Wave(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner, self.last = paddle.nn.Linear(2, 5), paddle.nn.Linear(5, 2)
        def forward(self, x, t, gain=None):
            u = self.last(paddle.tanh(self.inner(paddle.concat([x, t], -1))))
            return {"u": u if gain is None else u * gain, "t": t}
    """, scope)
    paddle.seed(1)
    w = PaddleModuleWrapper(scope["Wave"]().to(dtype = "float64"))
    net, ps = w.net, w.params
    x, t, gain = randn(Xoshiro(1), 1, 6), randn(Xoshiro(2), 1, 6), randn(Xoshiro(3), 2)
    at(x, t) = net((x, t), ps; gain).u
    h = 1e-4
    u_x = (at(x .+ h, t) .- at(x .- h, t)) ./ 2h
    u_tt = (at(x, t .+ h) .- 2 .* at(x, t) .+ at(x, t .- h)) ./ h^2
    u_xx = (at(x .+ h, t) .- 2 .* at(x, t) .+ at(x .- h, t)) ./ h^2
    for (point, first, second) in (((; x, t), :x, :t), ((; t, x), :x, :t), ((x, t), 1, 2))
        wanted = (u_tt = (:u, second, second), u_x = (:u, first), one = ((:u, 2), first))
        found = derivatives(net, point, ps, wanted; gain)
        @test keys(found) == keys(wanted)
        @test isapprox(found.u_x, u_x; rtol = 1e-6) && isapprox(found.u_tt, u_tt; rtol = 1e-5)
        @test isapprox(found.one, u_x[2:2, :]; rtol = 1e-6)
        @test isapprox(laplacian(net, point, ps; gain).u, u_xx .+ u_tt; rtol = 1e-5)
        @test right((point, ps) -> sum(sin, derivatives(net, point, ps, wanted; gain).u_tt), point, ps)
    end
    _, ẏ = frule((NoTangent(), NoTangent(), (; x, t), NoTangent(), NoTangent()), derivatives, net, (; x, t), ps, (u_x = (:u, :x),))
    @test follows(ẏ, p -> derivatives(net, p, ps, (u_x = (:u, :x),)), ((; x, t),), ((; x, t),))
    for wrong in ((u = (:u, 0),), (u = (),), (u = :u,))
        err = @test_throws ArgumentError derivatives(net, (x, t), ps, wrong)
        @test occursin("indices from 1 on", err.value.msg)
    end
    err = @test_throws ArgumentError derivative(net, (x, t), ps, (1, 0))
    @test occursin("name derivatives by its parts", err.value.msg)
    err = @test_throws PyException laplacian(net, (x, t), ps; gain, seed = 3)
    @test occursin("leave seed out", sprint(showerror, err.value))
end

# In an order that is not that of the names.
@testset "derivatives of a fully connected net by names" begin
    w = PaddleFCNet(2, 2, 2, 5; activation = "tanh", dtype = "float64", seed = 2)
    net, x = PaddleNet(w), randn(Xoshiro(1), 2, 7)
    wanted = (u_xx = (1, 1, 1), u_t = (2, 2), all = (nothing, 1))
    both = derivatives(w, x, ((2, 0), (0, 1), (1, 0)))
    rows = (both[1][1:1, :], both[2][2:2, :], both[3])
    c = map(y -> randn(Xoshiro(3), size(y)), rows)
    by_names(f) = sum(map((c, y) -> sum(c .* y), c, Tuple(f)))
    by_rows(f) = by_names((f[1][1:1, :], f[2][2:2, :], f[3]))
    lowered = lower(w)
    for of in (w, lowered)
        found = derivatives(of, x, wanted)
        @test keys(found) == keys(wanted) && all(map((a, b) -> isapprox(a, b; rtol = 1e-12), Tuple(found), rows))
    end
    for point in (x, x .+ 1)
        found = Zygote.gradient((w, x) -> by_names(derivatives(w, x, wanted)), w, point)
        expected = Zygote.gradient((w, x) -> by_rows(derivatives(w, x, ((2, 0), (0, 1), (1, 0)))), w, point)
        @test all(map((a, b) -> a === b === nothing || isapprox(a, b; rtol = 1e-11), found[1].params, expected[1].params))
        @test isapprox(found[2], expected[2]; rtol = 1e-11)
    end
    _, ẏ = frule((NoTangent(), NoTangent(), x, NoTangent(), NoTangent()), derivatives, net, x, w.params, wanted)
    h = 1e-6
    ahead, behind = (derivatives(w, x .* (1 + s), wanted) for s in (h, -h))
    @test all(name -> isapprox(getproperty(ẏ, name), (ahead[name] .- behind[name]) ./ 2h; rtol = 1e-6), keys(wanted))
end

@testset "of each sample" begin
    w = PaddleModuleWrapper(perceptron())
    net, ps, x, c = w.net, w.params, randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 2, 4)
    found = batched_vjp(w, x, c)
    J = batched_jacobian(w, x)
    @test map(size, found) == ((5, 3, 4), (5, 4), (2, 5, 4), (2, 4)) && size(J) == (2, 3, 4)
    for i in 1:4
        expected = vjp(net, x[:, i:i], ps, c[:, i:i])[2]
        @test all(map((a, b) -> isapprox(selectdim(a, ndims(a), i), b; rtol = 1e-12), found, expected))
        for o in 1:2
            row = vjp(net, x[:, i:i], ps, reshape(Float64.(1:2 .== o), 2, 1))[1]
            @test isapprox(J[o, :, i], vec(row); rtol = 1e-12)
        end
    end
    theta = reduce(vcat, vec.(ps))
    flat = batched_vjp(net, x, theta, c)
    @test size(flat) == (length(theta), 4) && flat ≈ reduce(vcat, map(g -> reshape(g, :, 4), found))
    named = batched_vjp(net, x, NamedTuple{Tuple(net.names)}(ps), c)
    @test keys(named) == Tuple(net.names) && values(named) == found
    @test right((x, ps) -> sum(sin, batched_jacobian(net, x, ps)), x, ps)
    dropping = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5)))
    @test_throws PyException batched_jacobian(dropping, Float32.(x))
end
