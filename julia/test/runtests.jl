include("files.jl")

# The slow ones, or some by name, run where asked: Pkg.test(...; test_args = ["slow"]).
@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in ("slow" in ARGS ? SLOW : isempty(ARGS) ? FILES : ARGS)
        run_file(name)
    end
end
