using Test

# Each file runs by itself too. The slow ones run where asked: Pkg.test(...; test_args = ["slow"]).
const FILES = (
    "crossing/paddle", "crossing/threads", "crossing/dlpack", "crossing/retained_bytes", "crossing/guarded",
    "crossing/lifetimes", "nets/net", "nets/files", "nets/streams", "nets/arguments", "nets/state", "nets/frozen", "nets/inputs",
    "nets/lux", "nets/components", "nets/programs", "nets/real_nets", "nets/training", "rules/pullback", "rules/chain_rules",
    "rules/cotangents", "rules/implicit", "rules/many_arrays", "rules/mixed", "rules/second_derivatives", "derivatives/derivatives",
    "derivatives/neuralpde", "lowering/lower", "lowering/second_order", "testing", "faults", "quality",
)
const SLOW = ("nets/layers", "rules/composition", "rules/zygote_in_zygote")

"A file in a module of its own, so that it sees no other's names."
function run(name)
    own = Module(Symbol(name))
    Core.eval(own, :(using Test; include(path) = Base.include($own, path)))
    return Base.include(own, joinpath(@__DIR__, "$name.jl"))
end

@testset verbose = true "PaddleChainRules" begin
    @testset "$name" for name in ("slow" in ARGS ? SLOW : FILES)
        run(name)
    end
end
