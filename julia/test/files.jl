# Which files of tests there are, and one run by its name. Each runs by itself too.

using Test

const FILES = (
    "crossing/paddle", "crossing/threads", "crossing/dlpack", "crossing/retained_bytes", "crossing/guarded",
    "crossing/lifetimes", "nets/net", "nets/files", "nets/streams", "nets/arguments", "nets/lux", "nets/state", "nets/modes",
    "nets/precision", "nets/refusals", "nets/one_sample", "nets/same_answer", "nets/frozen", "nets/inputs", "nets/sparse", "nets/packed",
    "nets/lux_flux", "nets/lux_nested", "nets/interface",
    "nets/components", "nets/programs", "nets/code", "nets/by_code", "nets/real_nets", "nets/training", "rules/pullback", "rules/eager", "rules/nested_pullback", "rules/chain_rules",
    "rules/cotangents", "rules/losses", "rules/implicit", "rules/many_arrays", "rules/mixed", "rules/second_derivatives", "derivatives/derivatives",
    "derivatives/forward", "derivatives/neuralpde", "derivatives/neuralpde7", "lowering/lower", "lowering/embedding", "lowering/loops", "lowering/derivatives", "training/traced", "training/rules", "training/train", "training/gradients", "training/minimize", "testing",
    "libraries/lux", "libraries/flux", "libraries/jld2", "libraries/optimization", "libraries/tapes", "libraries/mooncake",
    "libraries/enzyme", "libraries/ode", "libraries/gpus", "libraries/all_gpus", "faults", "names", "docstrings", "slips", "quality", "registry",
)
const SLOW =
    ("nets/layers", "nets/code_kinds", "rules/composition", "rules/duals", "rules/zygote_in_zygote", "lowering/nets",
        "lowering/activations", "lowering/built_in", "lowering/high_orders", "ranks/ranks")
# How Python's tests run FILES: LONG with the slow ones alone; COMPILED, which count what is allocated, ask what types
# are inferred, start other Julias, or compute for long, as they are; all others with code that is not precompiled
# interpreted (julia --compile=min, before 1.12), which takes a third of the time, and compiled with the slow ones.
const LONG = (
    "crossing/threads", "rules/chain_rules", "derivatives/derivatives", "derivatives/neuralpde7",
    "lowering/derivatives", "faults", "nets/inputs", "lowering/lower", "lowering/loops", "nets/real_nets",
    "libraries/all_gpus",
)
const COMPILED = (
    "crossing/paddle", "crossing/retained_bytes", "crossing/guarded", "crossing/lifetimes",
    "nets/by_code", "nets/code", "rules/pullback", "rules/eager", "training/gradients", "libraries/jld2",
    "libraries/mooncake", "quality",
)

"A file of any path in a module of its own, so that it sees no other's names."
function run_alone(path)
    own = Module(Symbol(path))
    Core.eval(own, :(using Test; include(path) = Base.include($own, path)))
    return Base.include(own, path)
end
run_file(name) = run_alone(joinpath(@__DIR__, "$name.jl"))
