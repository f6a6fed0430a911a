using Test

@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in ("paddle", "exchange", "net", "pullback", "rules", "derivatives", "lower", "carried", "components", "lux", "neuralpde", "realnets", "training", "quality")
        include("$name.jl")
    end
end
