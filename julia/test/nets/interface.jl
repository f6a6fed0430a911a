# Nets by way of DifferentiationInterface.

include("../needing.jl")
run_where(("DifferentiationInterface",), "interface")
