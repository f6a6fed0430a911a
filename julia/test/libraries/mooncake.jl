# Nets under Mooncake.

include("../needing.jl")
run_where(("DifferentiationInterface", "Mooncake"), "mooncake")
