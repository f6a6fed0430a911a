using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, load_params, paddle, save_params
using PythonCall

@testset "parameters in files: $suffix" for suffix in ("npz", "safetensors")
    mktempdir() do dir
        path = joinpath(dir, "net.$suffix")
        w = PaddleFCNet(3, 2, 3, 5; dtype = "float64", seed = 1)
        save_params(path, w)
        other = PaddleFCNet(3, 2, 3, 5; dtype = "float64", seed = 2)
        found = load_params(path, other)
        @test found.params == w.params != other.params
        @test found(rand(3, 4)) isa Matrix{Float64}
        ps = load_params(path, PaddleNet(w))
        @test keys(ps) == Tuple(PaddleNet(w).names) && values(ps) == w.params

        # A vector, a named tuple in another order, and what Python reads of them.
        theta = reduce(vcat, vec.(w.params))
        for given in (theta, NamedTuple{reverse(keys(ps))}(ps))
            save_params(path, PaddleNet(w), given)
            @test load_params(path, w).params == w.params
        end
        net = pyimport("paddle_chainrules").FCNet((3, 5, 5, 2), "sigmoid", "float64")
        in_python = pyimport("paddle_chainrules").load_params(path, net)
        @test pyconvert(Matrix, in_python["0.weight"].numpy()) == permutedims(w.params[1])

        part = PaddleChainRules.freeze(w, "0.*")
        @test PaddleChainRules.trained(load_params(path, part)) == PaddleChainRules.trained(part)

        small = PaddleFCNet(3, 2, 2, 5; dtype = "float64")
        @test_throws "unknown: ['2.bias', '2.weight']" load_params(path, small)
        @test_throws "needs [3, 5] and float32" load_params(path, PaddleFCNet(3, 2, 3, 5))
        write(path, read(path)[1:100])
        @test_throws "corrupt" load_params(path, w)
        @test_throws "FileNotFoundError" load_params(joinpath(dir, "none.$suffix"), w)
        @test_throws "FileNotFoundError" save_params(joinpath(dir, "none", "net.$suffix"), w)
        @test_throws "pickle" save_params(joinpath(dir, "net.pdparams"), w)
        @test_throws DimensionMismatch save_params(path, PaddleNet(w), theta[2:end])
    end
end
