# Nets under ReverseDiff and Tracker, which follow numbers rather than rules.

include("../needing.jl")
run_where(("DifferentiationInterface", "FiniteDiff", "ReverseDiff", "Tracker"), "tapes")
