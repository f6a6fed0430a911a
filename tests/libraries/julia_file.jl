# Julia files of libraries, without Python: values, rules, refusals, threads, a package.
#
#     julia -t 4 julia_file.jl FOLDER
#
# FOLDER has the libraries and numbers that test_julia_file.py saved.

using Random, SparseArrays, TOML, Test, Zygote
import FillArrays
using ChainRulesCore: ChainRulesCore, NoTangent, Tangent, ZeroTangent, @thunk, frule, ignore_derivatives, rrule, unthunk

const FOLDER = ARGS[1]
for name in ("heat", "sealed", "net", "six", "pair", "words", "own")
    include(joinpath(FOLDER, "$name.jl"))
end
using .HeatLibrary, .SealedLibrary, .PairLibrary, .WordsLibrary, .OwnLibrary

"An array that Python wrote."
function numbers(name)
    file = only(f for f in readdir(FOLDER) if startswith(f, "$name.") && endswith(f, ".bin"))
    _, dtype, size = split(file, '.')
    kinds = Dict("Float64" => Float64, "Int64" => Int64, "Bool" => Bool)
    sizes = parse.(Int, split(size, 'x'; keepempty = false))
    return read!(joinpath(FOLDER, file), Array{kinds[dtype]}(undef, sizes...))
end

"The gradient of a function of an array, entry by entry, by central differences."
function by_differences(f, x; step = 1e-6)
    return map(CartesianIndices(x)) do i
        ahead, behind = copy(x), copy(x)
        ahead[i] += step
        behind[i] -= step
        (f(ahead) - f(behind)) / 2step
    end
end

"Whether a call throws an error of this type with these words in its text."
function refuses(f, kind, words...)
    try
        f()
    catch error
        error isa kind || rethrow()
        text = sprint(showerror, error)
        return all(word -> occursin(word, text), words) || (println(text); false)
    end
    return false
end

close(a, b) = size(a) == size(b) && all(isapprox.(a, b; rtol = 2e-7, atol = 2e-8))
same(a, b) = size(a) == size(b) && all(isapprox.(a, b; rtol = 1e-12, atol = 1e-13))

const rng = Xoshiro(7)
const theta, x, u, v = numbers.(("theta", "x", "u", "v"))
const pair_theta, table, ids = numbers.(("pair_theta", "table", "ids"))
const k = numbers("k")[]

@testset "values" begin
    @test same(heat(theta, x), numbers("y"))
    @test same(sealed(x), numbers("y"))
    @test same(SixLibrary.six(theta, [x x[:, 1:1]]), [numbers("y") numbers("y")[:, 1:1]])
    @test all(map(same, pair(pair_theta, u, v), (numbers("y0"), numbers("y1"))))
    @test same(heat_jacobian(theta, x), numbers("jacobian"))
    doubled, rows = words(table, ids, 1.5, rand(1, 4))
    @test doubled == numbers("doubled") && same(rows, numbers("rows"))
    sine, sign, total = own_wave(k, u)
    @test same(sine, numbers("sine")) && sign == numbers("sign") && same(total, numbers("total"))
    @test own_wave(fill(k), u) == own_wave(k, u)
    @test own_energy(k, u) isa Float64 && same(own_energy(k, u), numbers("energy")[])
    energy = fill(0.0)
    @test own_energy!(energy, k, u) === energy && energy[] == own_energy(k, u)
    for n in (1, 2, 33) # the number of samples is that of the arrays
        many = repeat(x, 1, 7)[:, 1:n]
        @test same(heat(theta, many), repeat(numbers("y"), 1, 7)[:, 1:n])
    end
end

@testset "nets called as by Lux" begin
    @test HeatLibrary.net(x, theta) == heat(theta, x)
    @test SealedLibrary.net === sealed
    @test NetLibrary.layer(x, theta) == NetLibrary.net(theta, x) == heat(theta, x)
    @test PairLibrary.net(u, v, pair_theta) == PairLibrary.net((u, v), pair_theta) ==
          pair(pair_theta, u, v)
    ȳ = randn(rng, 2, 5)
    f̄, x̄, θ̄ = rrule(HeatLibrary.net, x, theta)[2](ȳ)
    @test (θ̄, x̄) == rrule(heat, theta, x)[2](ȳ)[2:3]
    f̄, ū, v̄, θ̄ = rrule(PairLibrary.net, u, v, pair_theta)[2]((randn(rng, 4, 4), ones(4)))
    @test size.((ū, v̄, θ̄)) == size.((u, v, pair_theta))
    ẋ = randn(rng, 3, 5)
    @test frule((NoTangent(), ẋ, ZeroTangent()), HeatLibrary.net, x, theta) ==
          frule((NoTangent(), ZeroTangent(), ẋ), heat, theta, x)
end

@testset "gradients by Zygote" begin
    c = randn(rng, 2, 5)
    θ̄, x̄ = Zygote.gradient((p, x) -> sum(c .* heat(p, x)), theta, x)
    @test close(θ̄, by_differences(p -> sum(c .* heat(p, x)), theta))
    @test close(x̄, by_differences(x -> sum(c .* heat(theta, x)), x))
    @test Zygote.gradient((p, x) -> sum(c .* HeatLibrary.net(x, p)), theta, x) == (θ̄, x̄)
    @test Zygote.gradient(x -> sum(c .* sealed(x)), x)[1] ≈ x̄
    c0, c1 = randn(rng, 4, 4), randn(rng, 4)
    loss(p, u, v) = (out = pair(p, u, v); sum(c0 .* out[1]) + sum(c1 .* out[2]))
    grads = Zygote.gradient(loss, pair_theta, u, v)
    @test close(grads[1], by_differences(p -> loss(p, u, v), pair_theta))
    @test close(grads[2], by_differences(u -> loss(pair_theta, u, v), u))
    @test close(grads[3], by_differences(v -> loss(pair_theta, u, v), v))
    second(v) = sum(c1 .* pair(pair_theta, u, v)[2]) # the first output has no cotangent
    @test close(Zygote.gradient(second, v)[1], by_differences(second, v))
    c2, unused = randn(rng, 3, 4), rand(rng, 1, 4)
    entry(p, s, w) = sum(c2 .* words(p, ids, s, w)[2])
    grads = Zygote.gradient(entry, table, 1.5, unused)
    @test close(grads[1], by_differences(p -> entry(p, 1.5, unused), table))
    @test close(fill(grads[2]), by_differences(s -> entry(table, s[], unused), fill(1.5)))
    @test grads[3] == zero(unused)
    @test Zygote.gradient(ids -> sum(c2 .* words(table, ids, 1.5, unused)[2]), ids)[1] === nothing
    # In a loss with other code, and data without gradient.
    weights = randn(rng, 3, 3)
    loss(w) = sum(abs2, tanh.(heat(theta, w * x))) + ignore_derivatives(() -> sum(heat_jacobian(theta, x)))
    @test close(Zygote.gradient(loss, weights)[1], by_differences(loss, weights))
end

@testset "cotangents and arguments of other kinds" begin
    y, back = rrule(heat, theta, x)
    @test y == heat(theta, x)
    ȳ = randn(rng, 2, 5)
    dense = back(ȳ)
    @test dense[1] === NoTangent()
    @test back(@thunk(ȳ)) == back(copy(ȳ')') == back(view([ȳ ȳ], :, 6:10)) == dense
    @test back(ȳ .+ 1im) == dense
    @test back(FillArrays.Fill(0.5, 2, 5)) == back(fill(0.5, 2, 5))
    entry = sparse([2], [4], [3.0], 2, 5)
    @test back(entry) == back(Matrix(entry))
    @test back(Float32.(ȳ)) == back(Float64.(Float32.(ȳ)))
    @test back(ZeroTangent()) == back(NoTangent()) == (NoTangent(), ZeroTangent(), ZeroTangent())
    @test refuses(() -> back(ȳ'), DimensionMismatch, "(5, 2)", "(2, 5)")
    _, back2 = rrule(pair, pair_theta, u, v)
    ȳ1 = randn(rng, 4)
    T = Tangent{Tuple{Matrix{Float64},Vector{Float64}}}
    @test back2(T(ZeroTangent(), ȳ1)) == back2(T(zeros(4, 4), @thunk(ȳ1)))
    @test back2(T(ZeroTangent(), NoTangent())) == back2(ZeroTangent())
    @test back2(ZeroTangent())[2:end] === (ZeroTangent(), ZeroTangent(), ZeroTangent())
    # Inputs with gaps, in another order, or of other types: values, and gradients by them.
    wide = randn(rng, 3, 10)
    for given in (view(wide, :, 3:7), view(wide, :, 1:2:9), permutedims(x)', view(x, [3, 1, 2], :))
        @test heat(theta, given) == heat(theta, Array(given))
        x̄ = rrule(heat, theta, given)[2](ȳ)[3]
        @test unthunk(x̄) == rrule(heat, theta, Array(given))[2](ȳ)[3]
    end
    @test heat(theta, reshape(view(vec(wide), 4:18), 3, 5)) == heat(theta, wide[:, 2:6])
    @test heat(1.0:length(theta), x) == heat(collect(1.0:length(theta)), x)
    @test heat(theta, sparse(x)) == heat(theta, x)
    loss(w) = sum(ȳ .* heat(theta, view(w, :, 2:2:10)))
    @test close(Zygote.gradient(loss, wide)[1], by_differences(loss, wide))
    @test close(
        Zygote.gradient(w -> sum(ȳ .* heat(theta, w')), permutedims(x))[1],
        permutedims(dense[3]),
    )
    _, back3 = rrule(words, table, ids, fill(1.5), rand(rng, 1, 4)) # a 0-d array stays one
    f̄, p̄, īds, s̄, ū = back3(Tangent{Tuple{Vector{Int},Matrix{Float64}}}(NoTangent(), ones(3, 4)))
    @test īds === NoTangent() && s̄ isa Array{Float64,0}
end

@testset "component arrays" begin
    if Base.find_package("ComponentArrays") === nothing
        @info "skipped: ComponentArrays is not here"
    else
        @eval import ComponentArrays
        @eval function component_gradient(theta, x)
            ps = ComponentArrays.ComponentArray(; layer_1 = theta[1:20], rest = theta[21:end])
            @test heat(ps, x) == heat(theta, x)
            return ps, Zygote.gradient(p -> sum(abs2, heat(p, x)), ps)[1]
        end
        ps, p̄ = Base.invokelatest(component_gradient, theta, x)
        @test Base.invokelatest(collect, p̄) == Zygote.gradient(p -> sum(abs2, heat(p, x)), theta)[1]
        @test typeof(p̄) == typeof(ps)
    end
end

@testset "frule" begin
    ẋ = numbers("x_dot")
    y, ẏ = frule((NoTangent(), ZeroTangent(), ẋ), heat, theta, x)
    @test same(y, numbers("y")) && same(ẏ, numbers("y_dot"))
    @test frule((NoTangent(), zero(theta), ẋ), heat, theta, x) == (y, ẏ)
    @test frule((NoTangent(), ẋ), sealed, x)[2] ≈ ẏ
    along(f, a, ȧ; step = 1e-6) = (f(a + step * ȧ) - f(a - step * ȧ)) / 2step
    @test close(ẏ, along(x -> heat(theta, x), x, ẋ))
    u̇, v̇ = randn(rng, 3, 4), randn(rng, 4, 2)'
    ys, dots = frule((NoTangent(), NoTangent(), u̇, v̇), pair, pair_theta, u, v)
    @test ys == pair(pair_theta, u, v)
    both(s) = pair(pair_theta, u + s * u̇, v + s * v̇)
    for i in 1:2
        @test close(dots[i], along(s -> both(s)[i], 0.0, 1.0))
    end
    _, of_v = frule((NoTangent(), NoTangent(), ZeroTangent(), v̇), pair, pair_theta, u, v)
    @test close(of_v[1], along(s -> pair(pair_theta, u, v + s * v̇)[1], 0.0, 1.0))
    given = (NoTangent(), NoTangent(), NoTangent(), 2.0, ZeroTangent())
    _, (none, rows) = frule(given, words, table, ids, 1.5, rand(rng, 1, 4))
    @test none === NoTangent() && close(rows, numbers("rows") * 2 / 1.5)
    @test frule((NoTangent(), ZeroTangent(), NoTangent()), heat, theta, x) == (y, ZeroTangent())
    @test refuses(
        () -> frule((NoTangent(), theta, ẋ), heat, theta, x),
        ArgumentError, "heat: params have a tangent", "NoTangent()",
    )
end

@testset "refusals" begin
    wrong(f, words...) = refuses(f, DimensionMismatch, words...)
    @test wrong(() -> heat(theta, permutedims(x)), "heat: x has size (5, 3)", "needs (3, n)")
    @test wrong(() -> heat(theta, vec(x)), "x has size (15,)", "(3, n)")
    @test wrong(() -> heat(theta[2:end], x), "heat: params has size (49,), and needs (50,)")
    @test wrong(() -> pair(pair_theta, u, v[:, 1:3]), "pair: v has size (2, 3)", "(2, n), here (2, 4)")
    @test wrong(() -> heat!(zeros(2, 4), theta, x), "heat: y has size (2, 4)", "here (2, 5)")
    @test wrong(() -> SixLibrary.six(theta, x), "six: x has size (3, 5), and needs (3, 6)")
    @test wrong(() -> heat_vjp(theta, x, zeros(2, 4)), "heat_vjp: y_bar has size (2, 4)")
    argument(f, words...) = refuses(f, ArgumentError, words...)
    @test argument(
        () -> heat(theta, Float32.(x)),
        "heat: x has elements of Float32, and needs elements of Float64", "Float64.(x)",
    )
    @test argument(() -> heat(Float32.(theta), x), "heat: params has elements", "Float64.(params)")
    @test argument(() -> words(table, Int32.(ids), 1.5, zeros(1, 4)), "words: ids", "Int64.(ids)")
    @test argument(() -> own_wave(2, u), "own_wave: k is of type Int64, and needs Float64", "Float64(k)")
    @test wrong(() -> own_wave(u, u), "own_wave: k has size (3, 4), and needs ()")
    @test argument(() -> heat(theta, 1.0), "heat: x is of type Float64", "give an Array")
    @test argument(() -> heat("theta", x), "heat: params is of type String")
    @test argument(() -> heat!(zeros(Float32, 2, 5), theta, x), "heat: y has elements of Float32", "Array of Float64")
    @test argument(() -> heat!(view(zeros(4, 5), 1:2, :), theta, x), "heat: y is of type SubArray, with gaps")
    @test argument(() -> heat!(zeros(5, 2)', theta, x), "heat: y is of type Adjoint")
    y = zeros(2, 10)
    heat!(view(y, :, 2:6), theta, x) # without gaps
    @test y[:, 2:6] == heat(theta, x) && iszero(y[:, [1; 7:10]])
    library(f, words...) = refuses(f, ErrorException, words...)
    @test library(() -> heat(theta, zeros(3, 0)), "heat: the number of samples is below 1")
    @test library(() -> heat_vjp!(theta, zero(x), theta, x, zeros(2, 5)), "heat: an output overlaps an input")
    @test library(() -> words(table, ids .+ 4, 1.5, zeros(1, 4)), "words: an index is out of range")
    _, back = rrule(heat_jacobian, theta, x)
    @test argument(() -> back(zeros(3, 2, 5)), "no gradient of heat_jacobian", "derivatives")
    @test back(ZeroTangent()) == (NoTangent(), NoTangent(), NoTangent())
    folder = mktempdir() # files of two libraries
    cp(joinpath(FOLDER, "heat.jl"), joinpath(folder, "heat.jl"))
    cp(joinpath(FOLDER, "other", "heat.so"), joinpath(folder, "heat.so"))
    @test refuses(
        () -> Base.include(Module(:Mixed), joinpath(folder, "heat.jl")),
        LoadError, "same call of save_library",
    )
end

# The count is a parameter, since splatting any number of arguments allocates.
function bytes(f!::F, arrays::Vararg{Any,N}) where {F,N}
    f!(arrays...)
    return @allocated f!(arrays...)
end

@testset "no ambiguities" begin
    for made in (HeatLibrary, PairLibrary, OwnLibrary)
        @test isempty(Test.detect_ambiguities(made; recursive = true))
    end
end

@testset "no allocation" begin
    @test bytes(heat!, zeros(2, 5), theta, x) == 0
    @test bytes(heat_vjp!, zero(theta), zero(x), theta, x, ones(2, 5)) == 0
    @test bytes(pair!, zeros(4, 4), zeros(4), pair_theta, u, v) == 0
    @test bytes(own_energy!, fill(0.0), fill(k), u) == 0
    many = randn(rng, 3, 1000) # whose memory is the library's own
    @test bytes(heat_vjp!, zero(theta), zero(many), theta, many, ones(2, 1000)) == 0
    @test (@inferred heat(theta, x)) isa Matrix{Float64}
    @test (@inferred pair(pair_theta, u, v)) isa Tuple{Matrix{Float64},Vector{Float64}}
    @test (@inferred own_energy(k, u)) isa Float64
end

@testset "threads" begin
    @test Threads.nthreads() == 4
    given = [randn(rng, 3, n) for n in 1:400]
    serial = map(x -> (heat(theta, x), Zygote.gradient(p -> sum(abs2, heat(p, x)), theta)), given)
    found = similar(serial)
    Threads.@threads for i in eachindex(given)
        x = given[i]
        found[i] = (heat(theta, x), Zygote.gradient(p -> sum(abs2, heat(p, x)), theta))
    end
    @test found == serial # bit for bit
end

"A project that has a package in a folder besides the packages at hand."
function project_with(name, uuid, folder)
    active = Base.active_project()
    manifest = TOML.parsefile(Base.project_file_manifest_path(active))
    for entries in values(manifest["deps"]), entry in entries
        haskey(entry, "path") && (entry["path"] = abspath(dirname(active), entry["path"]))
    end
    entry = Dict("path" => folder, "uuid" => uuid, "deps" => ["ChainRulesCore"])
    manifest["deps"][name] = [entry]
    project = mktempdir()
    open(io -> TOML.print(io, manifest), joinpath(project, "Manifest.toml"), "w")
    write(joinpath(project, "Project.toml"), "[deps]\n$name = \"$uuid\"\n")
    return project
end

@testset "in a package" begin
    folder, uuid = mktempdir(), "7d4d5a0e-3c7a-4a37-9d2c-4f1f3a6a3c11"
    source = mkpath(joinpath(folder, "src"))
    for file in ("heat.jl", "heat.so")
        cp(joinpath(FOLDER, file), joinpath(source, file))
    end
    write(
        joinpath(folder, "Project.toml"),
        """
        name = "Downstream"
        uuid = "$uuid"

        [deps]
        ChainRulesCore = "$(Base.PkgId(ChainRulesCore).uuid)"
        """,
    )
    write(
        joinpath(source, "Downstream.jl"),
        """
        module Downstream
        include("heat.jl")
        using .HeatLibrary
        temperature(theta, x) = heat(theta, x)
        end
        """,
    )
    pushfirst!(LOAD_PATH, project_with("Downstream", uuid, folder))
    pushfirst!(DEPOT_PATH, mktempdir())
    id = Base.identify_package("Downstream")
    Base.compilecache(id)
    @test Base.isprecompiled(id)
    @eval import Downstream
    @test Base.invokelatest(Downstream.temperature, theta, x) == heat(theta, x)
    loss(p) = sum(abs2, Base.invokelatest(Downstream.temperature, p, x))
    θ̄ = @eval Zygote.gradient(p -> sum(abs2, Downstream.temperature(p, x)), theta)[1]
    @test θ̄ == Zygote.gradient(p -> sum(abs2, heat(p, x)), theta)[1]
    touch(joinpath(source, "heat.so")) # as when it is saved again
    @test !Base.isprecompiled(id)
end

println("all passed")
