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

each_leaf(f, x::Union{AbstractArray,Number}) = f(x)
each_leaf(f, ::Nothing) = nothing
each_leaf(f, xs) = map(x -> each_leaf(f, x), xs)

"The i-th samples of nested arrays, as batches of one."
batch(xs, i) = each_leaf(x -> collect(selectdim(x, ndims(x), i:i)), xs)

matches(a::AbstractArray, b::AbstractArray, tolerance) = same(a, b; rtol = tolerance, atol = tolerance)
matches(::Nothing, ::Nothing, _) = true
matches(as::T, bs, tolerance) where {T<:Union{Tuple,NamedTuple}} =
    keys(as) == keys(bs) && all(key -> matches(as[key], bs[key], tolerance), keys(as))
matches(_, _, _) = false

"Whether gradients of each sample are those of `vjp` at that sample alone."
function separate(net, x, ps, ȳ; tolerance = 1e-11, kw...)
    x̄, p̄s = batched_vjp(net, x, ps, ȳ; kw...)
    return all(1:N) do i
        alone, by_params = vjp(net, batch(x, i), ps, batch(ȳ, i); kw...)
        grown = each_leaf(g -> reshape(vcat(g), size(g)..., 1), by_params)
        matches(batch(x̄, i), alone, tolerance) && matches(batch(p̄s, i), grown, tolerance)
    end
end

"Parameters as a tuple, with names in two orders, flat, and with numbers for arrays without dimensions."
function forms(net, ps)
    named = NamedTuple{Tuple(net.names)}(ps)
    return ps, named, named[reverse(keys(named))], reduce(vcat, vec.(ps)), map(p -> ndims(p) == 0 ? only(p) : p, named)
end

function gated()
    scope = pydict()
    pyexec("""
    import paddle
    class Gated(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.last = paddle.nn.Embedding(7, 3), paddle.nn.Linear(5, 2)
            self.shift = self.create_parameter([], default_initializer=paddle.nn.initializer.Constant(0.3))
            self.idle = self.create_parameter([4])
        def forward(self, image, ids, gain):
            hidden = paddle.concat([self.table(ids), image], -1)
            return paddle.tanh(self.last(hidden) + self.shift) * gain
    """, scope)
    return scope["Gated"]()
end

"Random arrays of nested sizes."
drawn(size::Dims) = randn(Xoshiro(prod(size)), size)
drawn(x::Union{AbstractArray,Nothing}) = x
drawn(xs) = map(drawn, xs)

const N = 6
paddle.seed(1)

@testset "gradients of each sample of $name" for (name, layer, x, ȳ, kw) in (
    ("an array", perceptron(), (3, N), (2, N), (;)),
    ("images", paddle.nn.Conv2D(2, 3, 2), (5, 4, 2, N), (4, 3, 3, N), (;)),
    ("a tuple", paddle.nn.Bilinear(3, 2, 4), ((3, N), (2, N)), (4, N), (;)),
    ("integers", paddle.nn.Embedding(7, 4), rand(Xoshiro(3), 0:6, 3, N), (4, 3, N), (;)),
    ("a tuple with integers", gated(), ((2, N), rand(Xoshiro(3), 0:6, N)), (2, N), (; gain = [0.5, -2.0])),
    ("names and integers", gated(), (; ids = rand(Xoshiro(3), 0:6, N), image = (2, N)), (2, N), (; gain = [0.5, -2.0])),
    ("several results", python_module("layers").Several(), (3, N),
        (; score = (2, N), unused = nothing, hidden = ((4, N), nothing), word = nothing), (;)),
    ("statistics that are held", paddle.nn.BatchNorm1D(3).eval(), (3, N), (3, N), (;)),
    ("no parameters", paddle.nn.Tanh(), (3, N), (3, N), (;)),
)
    w = PaddleModuleWrapper(layer.to(dtype = "float64"))
    net = w.net
    x, ȳ = drawn(x), drawn(ȳ)
    for ps in (isempty(w.params) ? (w.params,) : forms(net, w.params))
        @test separate(net, x, ps, ȳ; kw...)
        @test separate(net, x, ps, nothing; kw...)
    end
    @test batched_vjp(w, x, ȳ; kw...) == reverse(batched_vjp(net, x, w.params, ȳ; kw...))
end

@testset "gradients of each sample in other precisions" begin
    w = PaddleFCNet(3, 2, 3, 5; activation = "tanh", dtype = "float64", seed = 1)
    net, x, c = PaddleNet(w), drawn((3, N)), drawn((2, N))
    tanh = PaddleModuleWrapper(paddle.nn.Tanh()).net
    for ps in forms(net, w.params)
        @test separate(net, x, ps, c)
        @test separate(net, x, ps, Float32.(c)) && separate(net, x, ps, round.(Int, c))
        single = each_leaf(p -> Float32.(p), ps)
        @test separate(net, Float32.(x), single, Float32.(c); tolerance = 1e-5)
        @test batched_vjp(net, Float32.(x), single, Float64.(Float32.(c))) == batched_vjp(net, Float32.(x), single, Float32.(c))
    end
    @test separate(tanh, Float32.(x), (), x; tolerance = 1e-5)
end

@testset "gradients of each sample, and Jacobians" begin
    w = PaddleModuleWrapper(perceptron())
    net, ps, x, c = w.net, w.params, drawn((3, N)), drawn((2, N))
    x̄, p̄s = batched_vjp(net, x, ps, c)
    J = batched_jacobian(w, x)
    @test size(x̄) == (3, N) && map(size, p̄s) == ((5, 3, N), (5, N), (2, 5, N), (2, N)) && size(J) == (2, 3, N)
    @test all(i -> isapprox(x̄[:, i], J[:, :, i]' * c[:, i]; rtol = 1e-12), 1:N)
    for i in 1:N, o in 1:2
        row = vjp(net, x[:, i:i], ps, reshape(Float64.(1:2 .== o), 2, 1))[1]
        @test isapprox(J[o, :, i], vec(row); rtol = 1e-12)
    end
    @test right((x, ps) -> sum(sin, batched_jacobian(net, x, ps)), x, ps)
end

@testset "what has no gradients of each sample" begin
    x = Float32.(drawn((3, N)))
    dropping = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5)))
    @test_throws PyException batched_jacobian(dropping, x)
    reader = PaddleModuleWrapper(paddle.nn.LSTM(3, 4))
    err = @test_throws PyException batched_vjp(reader, reshape(x, 3, 2, :), ones(Float32, 4, 2, 3))
    @test occursin("the output as (*, *, *)", sprint(showerror, err.value))
    err = @test_throws DimensionMismatch batched_vjp(reader, (), nothing)
    @test occursin("got the sizes none", sprint(showerror, err.value))
end
