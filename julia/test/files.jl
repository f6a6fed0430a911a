# Which files of tests there are, and one run by its name. Each runs by itself too.

using Test

const FILES = (
    "crossing/paddle", "crossing/threads", "crossing/dlpack", "crossing/retained_bytes", "crossing/guarded",
    "crossing/lifetimes", "nets/net", "nets/files", "nets/streams", "nets/arguments", "nets/lux", "nets/state", "nets/modes",
    "nets/precision", "nets/frozen", "nets/inputs", "nets/sparse", "nets/packed", "nets/lux_flux", "nets/lux_nested", "nets/interface",
    "nets/components", "nets/programs", "nets/real_nets", "nets/training", "rules/pullback", "rules/chain_rules",
    "rules/cotangents", "rules/implicit", "rules/many_arrays", "rules/mixed", "rules/second_derivatives", "derivatives/derivatives",
    "derivatives/forward", "derivatives/neuralpde", "derivatives/neuralpde7", "lowering/lower", "lowering/embedding", "lowering/loops", "lowering/derivatives", "testing",
    "faults", "names", "slips", "quality",
)
const SLOW =
    ("nets/layers", "rules/composition", "rules/duals", "rules/zygote_in_zygote", "lowering/nets",
        "lowering/activations", "ranks/ranks")

"A file in a module of its own, so that it sees no other's names."
function run_file(name)
    own = Module(Symbol(name))
    Core.eval(own, :(using Test; include(path) = Base.include($own, path)))
    return Base.include(own, joinpath(@__DIR__, "$name.jl"))
end
