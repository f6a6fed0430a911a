# Parameters and gradients in every form, of each of FLOATS, against pure Julia.

near(a, b) = size(a) == size(b) && eltype(a) == eltype(b) && maximum(abs, a .- b; init = 0) <= 64eps(eltype(a)) * maximum(abs, b; init = 0)
flat(ps) = reduce(vcat, vec.(ps))

"The net 3-5-2 and its gradients, by hand."
by_hand(x, (W, b, V, c)) = V * tanh.(W * x .+ b) .+ c
function by_hand(x, (W, b, V, c), ȳ)
    h = tanh.(W * x .+ b)
    z̄ = (V' * ȳ) .* (1 .- h .^ 2)
    return W' * z̄, (z̄ * x', vec(sum(z̄; dims = 2)), ȳ * h', vec(sum(ȳ; dims = 2)))
end

HAS_CODE && @testset "values and gradients in every form, any number of samples: $T" for T in FLOATS
    wrapper = PaddleFCNet(3, 2, 2, 5; activation = "tanh", dtype = lowercase(string(T)), seed = 1)
    net, ps = PaddleNet(wrapper), wrapper.params
    θ = flat(ps)
    named = NamedTuple{Tuple(net.names)}(ps)
    @test occursin("too few", explain(net, rand(T, 3, 4), θ))
    @test occursin(CODE, compile(net, rand(Xoshiro(0), T, 3, 4), θ))
    for n in (1, 2, 4, 7, 64, 1001)
        x, ȳ = randn(Xoshiro(n), T, 3, n), randn(Xoshiro(n + 1), T, 2, n)
        @test occursin(CODE, explain(wrapper, x))
        y, (x̄, p̄s) = by_hand(x, ps), by_hand(x, ps, ȳ)
        for given in (ps, θ, named, ComponentVector(named))
            @test near(net(x, given), y)
            found, back = pullback(net, x, given)
            @test near(found, y)
            fill!(found, T(NaN)) # is the caller's
            a, b = back(ȳ)
            @test near(a, x̄)
            @test near(given isa AbstractVector ? collect(b) : flat(Tuple(b)), flat(p̄s))
            a, b = Zygote.gradient((x, p) -> sum(ȳ .* net(x, p)), x, given)
            @test near(a, x̄)
            @test near(given isa AbstractVector ? collect(b) : flat(Tuple(b)), flat(p̄s))
        end
        @test near(wrapper(x), y)
        @test all(map(near, Zygote.gradient(w -> sum(ȳ .* w(x)), wrapper)[1].params, p̄s))
        @test near(Zygote.gradient(x -> sum(ȳ .* wrapper(x)), x)[1], x̄)
        _, back = pullback(net, x, θ)
        into, total = (similar(x), similar(θ)), copy(θ)
        back(ȳ; into)
        @test near(into[1], x̄) && near(into[2], flat(p̄s))
        back(ȳ; into = (nothing, total), accumulate = true)
        @test near(total, θ .+ flat(p̄s))
        written = copy(ȳ) # what is read and written at once
        if size(x̄) == size(ȳ)
            back(written; into = (written, nothing))
            @test near(written, x̄)
        end
    end
end
