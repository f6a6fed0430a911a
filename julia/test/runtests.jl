using Test

@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in ("paddle", "exchange", "net", "rules", "derivatives", "lower", "training", "quality")
        include("$name.jl")
    end
end
