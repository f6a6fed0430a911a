using Test

@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in ("paddle", "exchange", "net", "pullback", "rules", "derivatives", "lower", "carried", "components", "lux", "neuralpde", "training", "quality")
        include("$name.jl")
    end
end
