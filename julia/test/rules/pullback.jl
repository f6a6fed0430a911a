using ChainRulesCore: AbstractThunk, InplaceableThunk, add!!, rrule, unthunk
using ComponentArrays: ComponentVector
using FillArrays: Fill
using LinearAlgebra: Diagonal
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, laplacian, paddle
using PythonCall
using Random: Xoshiro

include("../oracle.jl")

const pullback = PaddleChainRules.pullback

"Two inputs, one of them integers, and no chain."
function two_inputs()
    paddle.seed(3)
    return python_module("layers").Two()
end

const CASES = (
    ("chain", sequential, () -> (randn(Xoshiro(1), Float32, 3, 6),)),
    ("recorded", two_inputs, () -> (randn(Xoshiro(1), Float32, 4, 6), [0, 6, 2, 2, 1, 5])),
)

filled(arrays) = map(a -> eltype(a) <: Integer ? nothing : fill!(similar(a), 7), arrays)
close(a, b) = same(a, b; rtol = 1e-5, atol = 1e-6)

@testset "gradients without automatic differentiation, $name" for (name, make, arguments) in CASES
    layer, xs = make(), arguments()
    wrapper = PaddleModuleWrapper(layer)
    net, c = PaddleNet(wrapper), randn(Xoshiro(2), Float32, 2, 6)
    _, expected_ps, expected_xs = native(layer, xs, (c,))
    x = length(xs) == 1 ? only(xs) : xs
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    theta = reduce(vcat, vec.(wrapper.params))
    reversed = NamedTuple{reverse(keys(named))}(named)
    before = snapshot(layer)
    for ps in (theta, named, reversed, wrapper.params)
        y, back = pullback(net, x, ps)
        @test close(y, wrapper(xs...))
        for _ in 1:2
            x̄, p̄s = back(c)
            @test close(x isa Tuple ? x̄[1] : x̄, expected_xs[1])
            x isa Tuple && @test x̄[2] === nothing
            if ps isa AbstractVector
                @test close(p̄s, reduce(vcat, vec.(expected_ps)))
            elseif ps isa Tuple
                @test all(map(close, p̄s, Tuple(expected_ps)))
            else
                @test keys(p̄s) == keys(ps)
                @test all(close(p̄s[n], g) for (n, g) in zip(net.names, expected_ps))
            end
        end
        # Into arrays of the caller's: assigned, added, assigned again.
        into = (x isa Tuple ? filled(x) : fill!(similar(x), 7), ps isa AbstractVector ? fill!(similar(ps), 7) : filled(ps))
        x̄, p̄s = back(c)
        flat(part) = part isa AbstractVector{<:Number} ? [part] : filter(!isnothing, collect(Any, part isa AbstractArray ? (part,) : values(part)))
        for (times, accumulate) in ((1, false), (2, true), (1, false))
            @test back(c; into, accumulate) === into
            for (found, one) in zip([flat(into[1]); flat(into[2])], [flat(x̄); flat(p̄s)])
                @test close(found, Float32(times) .* one)
            end
        end
    end
    # Of some parameters only; the others are not touched, and neither is the input.
    for keep in 1:length(wrapper.params)
        y, back = pullback(net, x, wrapper.params)
        buffers = ntuple(i -> i == keep ? fill!(similar(wrapper.params[i]), 7) : nothing, length(wrapper.params))
        back(c; into = (nothing, buffers))
        @test close(buffers[keep], expected_ps[keep])
        back(c; into = (nothing, buffers), accumulate = true)
        @test close(buffers[keep], 2 .* expected_ps[keep])
    end
    y, back = pullback(net, x, theta)
    for ps in (theta, wrapper.params, named)
        @test pullback(net, x, ps)[2](c; into = (nothing, nothing)) == (nothing, nothing)
    end
    if !(x isa Tuple)
        @test close(pullback(wrapper, x)[2](c)[2], expected_xs[1])
    end
    @test is_unchanged(layer, before)
end

@testset "no new arrays of that size" begin
    wrapper = PaddleFCNet(64, 64, 2, 256; seed = 1)
    net, x, theta = PaddleNet(wrapper), randn(Float32, 64, 8), reduce(vcat, vec.(wrapper.params))
    y, back = pullback(net, x, theta)
    into = (zero(x), zero(theta))
    back(y; into)
    @test @allocated(back(y; into)) < sizeof(theta) / 10
    @test @allocated(back(y; into, accumulate = true)) < sizeof(theta) / 10
    @test @allocated(back(y)) > sizeof(theta)
end

@testset "work in proportion to what is asked" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; activation = "tanh", seed = 1)
    net, x = PaddleNet(wrapper), randn(Float32, 3, 5)
    foreach(_ -> pullback(net, x, wrapper.params), 1:6) # until it runs as a program
    y, back = pullback(net, x, wrapper.params)
    last = (nothing, nothing, nothing, nothing, zero(wrapper.params[5]), nothing)
    run = operators_run(() -> back(y; into = (nothing, last)))
    @test run == ["matmul"] || !programs_are_on()
end

@testset "micro-batches add up to one batch" begin
    wrapper = PaddleModuleWrapper(sequential())
    net, x, c = PaddleNet(wrapper), randn(Xoshiro(1), Float32, 3, 12), randn(Xoshiro(2), Float32, 2, 12)
    theta = reduce(vcat, vec.(wrapper.params))
    expected = pullback(net, x, theta)[2](c)[2]
    total = zero(theta)
    for r in (1:4, 5:8, 9:12)
        pullback(net, x[:, r], theta)[2](c[:, r]; into = (nothing, total), accumulate = true)
    end
    @test same(total, expected; rtol = 1e-4, atol = 1e-5)
    # The same by ChainRules, whose thunks add in place.
    summed = zero(theta)
    for r in (1:4, 5:8, 9:12)
        p̄ = rrule(net, x[:, r], theta)[2](c[:, r])[3]
        @test p̄ isa InplaceableThunk
        @test add!!(summed, p̄) === summed
    end
    @test same(summed, expected; rtol = 1e-4, atol = 1e-5)
end

@testset "thunks that add in place" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", activation = "tanh", seed = 1)
    net, x, c = PaddleNet(wrapper), randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    for back in (rrule(net, x, theta)[2], b -> rrule(laplacian, net, x, theta)[2](b)[2:end])
        _, x̄, p̄ = back(c)
        for (thunk, primal) in ((x̄, x), (p̄, theta))
            @test thunk isa InplaceableThunk
            start = randn(Xoshiro(3), size(primal))
            buffer = copy(start)
            @test add!!(buffer, thunk) === buffer
            @test same(buffer, start .+ unthunk(thunk); rtol = 1e-12, atol = 1e-13)
            @test_throws DimensionMismatch add!!(zeros(7, 7, 7), thunk)
        end
    end
    # Structured inputs and parameters as a tuple are projected, so added by value.
    _, x̄, p̄ = rrule(net, copy(x')', wrapper.params)[2](c)
    @test x̄ isa AbstractThunk && !(x̄ isa InplaceableThunk)
    @test p̄ isa AbstractThunk && !(p̄ isa InplaceableThunk)
end

@testset "bad buffers leave all as it was" begin
    wrapper = PaddleModuleWrapper(sequential())
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), Float32, 3, 5)
    ps = wrapper.params
    y, back = pullback(net, x, ps)
    good, memory = filled(ps), zeros(Float32, 100)
    with(i, buffer) = Base.setindex(good, buffer, i)
    for (into, kind, words) in (
        (good, ArgumentError, "must be a pair"),
        ((nothing, collect(good)), ArgumentError, "a tuple of 4"),
        ((nothing, good[1:3]), ArgumentError, "a tuple of 4"),
        ((nothing, with(4, 1.0)), ArgumentError, "must hold arrays or nothing"),
        ((nothing, with(4, zeros(Float32, 3))), DimensionMismatch, "its gradient (2,)"),
        ((nothing, with(4, zeros(2))), ArgumentError, "its gradient Float32"),
        ((x, with(4, good[2][1:2])), ArgumentError, "overlaps another"),
        ((nothing, with(4, ps[4])), ArgumentError, "overlaps another"),
        ((nothing, with(4, view(good[2], 1:2))), ArgumentError, "overlaps another"),
    )
        err = @test_throws kind back(y; into)
        @test occursin(words, err.value.msg)
    end
    # What can't be written is refused before a gradient is computed.
    repeated = view(zeros(Float32, 2), [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2])
    for buffer in (1.0f0:16.0f0, view(1.0f0:20.0f0, 3:18), Fill(0.0f0, 16), repeated)
        run = operators_run() do
            err = @test_throws ArgumentError back(y; into = (nothing, with(2, buffer)))
            @test occursin("not every element can be set", err.value.msg)
        end
        @test isempty(run)
    end
    @test_throws "not every element can be set" pullback(net, x[:, 1:3], ps)[2](y[:, 1:3]; into = (Diagonal(zeros(Float32, 3)), nothing))
    @test_throws DimensionMismatch back(y[:, 1:2]; into = (nothing, good))
    @test_throws ArgumentError back(y; accumulate = true)
    @test all(buffer -> all(==(7), buffer), good)
    named = NamedTuple{Tuple(net.names)}(ps)
    _, back = pullback(net, x, named)
    @test_throws ArgumentError back(y; into = (nothing, named[(:var"0.weight",)]))
    _, back = pullback(PaddleModuleWrapper(two_inputs()).net, (randn(Float32, 4, 3), [1, 2, 3]), PaddleModuleWrapper(two_inputs()).params)
    err = @test_throws ArgumentError back(randn(Float32, 2, 3); into = ((nothing, [1, 2, 3]), nothing))
    @test occursin("has no gradient", err.value.msg)
end

@testset "disjoint views of one vector as buffers" begin
    wrapper = PaddleModuleWrapper(sequential())
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), Float32, 3, 5)
    y, back = pullback(net, x, wrapper.params)
    x̄, p̄s = back(y)
    memory = fill!(zeros(Float32, length(x) + net.nparams + 2), 7)
    stops = cumsum([1; length(x); map(length, wrapper.params)...])
    parts = [reshape(view(memory, (i+1):j), size(p)) for (i, j, p) in zip(stops, stops[2:end], (x, wrapper.params...))]
    into = (parts[1], Tuple(parts[2:end]))
    for times in (1, 2)
        back(y; into, accumulate = times == 2)
        @test close(memory[2:end-1], Float32(times) .* reduce(vcat, map(vec, (x̄, p̄s...))))
        @test memory[[1, end]] == [7, 7]
    end
    # A part of the same memory is refused, in whatever form.
    shifted(n) = reshape(view(memory, (stops[1]+n):(stops[2]+n-1)), size(x)) # by n - 1
    @test_throws "overlaps another" back(y; into = (shifted(2), Tuple(parts[2:end])))
    own = unsafe_wrap(Array, pointer(memory, 3), size(x))
    GC.@preserve memory @test_throws "overlaps another" back(y; into = (own, Tuple(parts[2:end])))
    # Rows in turn span the same addresses and share none.
    rows = zeros(Float32, 6, 5)
    @test PaddleChainRules.overlap(view(rows, 1:2:5, :), view(rows, 1:4, :))
    @test !PaddleChainRules.overlap(view(rows, 1:2:5, :), view(rows, 2:2:6, :))
    @test !PaddleChainRules.overlap(view(rows, 6:-1:4, :), view(rows, 1:3, :))
    @test !PaddleChainRules.overlap(view(rows, 1:0, :), rows)
    two = pullback(net, x, wrapper.params)[2]
    two(y; into = (view(rows, 6:-2:2, :), nothing))
    @test close(rows[6:-2:2, :], x̄) && all(iszero, rows[1:2:5, :])
    vector = ComponentVector(; x, p = p̄s[1])
    @test !PaddleChainRules.overlap(vector.x, vector.p) && PaddleChainRules.overlap(vector, vector.p)
end

@testset "a view as a buffer" begin
    wrapper = PaddleModuleWrapper(sequential())
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), Float32, 3, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    y, back = pullback(net, x, theta)
    all_of_them = zeros(Float32, length(theta) + 10)
    back(y; into = (nothing, view(all_of_them, 6:(length(theta)+5))))
    back(y; into = (nothing, view(all_of_them, 6:(length(theta)+5))), accumulate = true)
    @test close(all_of_them[6:end-5], 2 .* back(y)[2])
    @test all(iszero, all_of_them[[1:5; end-4:end]])
end

@testset "a vector that was resized after the call" begin
    wrapper = PaddleModuleWrapper(sequential())
    net, x, c = PaddleNet(wrapper), randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    for _ in 1:2 # through Paddle, and by code where there is any
        for length_then in (2, length(theta) + 1)
            given = copy(theta)
            y, back = pullback(net, x, given)
            resize!(given, length_then)
            @test_throws "was resized" back(c)
            @test_throws "was resized" back(c; into = (nothing, zeros(Float32, length_then)))
            given = map(copy, wrapper.params)
            y, back = rrule(net, x, given)
            resize!(given[2], 1)
            @test_throws "was resized" unthunk(back(c)[3])
        end
        v = x[:, 1]
        for change! in (v -> resize!(v, 7), v -> resize!(v, 2), empty!)
            given = copy(v)
            y, back = pullback(net, given, theta)
            _, x̄s_and_p̄s = rrule(net, given, theta)
            change!(given)
            @test_throws "was resized" back(y)
            @test_throws "was resized" back(y; into = (zeros(Float32, 3), nothing))
            @test_throws "was resized" unthunk(x̄s_and_p̄s(y)[2])
        end
        foreach(_ -> foreach(ps -> pullback(net, x, ps)[2](c), (theta, wrapper.params)), 1:60)
        foreach(_ -> pullback(net, v, theta)[2](c[:, 1]), 1:60)
    end
end

@testset "a vector that was resized and has its length again, in other memory" begin
    wrapper = PaddleModuleWrapper(sequential(); jit = false) # through Paddle, which has a share in the memory
    x, theta = randn(Xoshiro(1), Float32, 3), reduce(vcat, vec.(wrapper.params))
    for given in (x, theta)
        y, back = pullback(PaddleNet(wrapper), x, theta)
        length_before = length(given)
        resize!(resize!(given, 10^6), length_before)
        @test_throws "was resized" back(y)
    end
end
