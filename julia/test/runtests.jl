using Test

const FILES = (
    "paddle", "threads", "exchange", "held", "net", "files", "arguments", "state", "frozen", "pullback", "rules", "cotangents", "inputs", "lifetimes", "faults", "guarded", "composition", "twice",
    "mixed", "testing", "derivatives", "lower", "carried", "components", "lux", "neuralpde", "realnets", "layers",
    "training", "quality",
)

@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in FILES
        include("$name.jl")
    end
end
