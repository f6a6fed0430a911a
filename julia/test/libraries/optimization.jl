# Nets in problems of Optimization.

include("../needing.jl")
run_where(("Optimization", "OptimizationOptimJL", "OptimizationOptimisers"), "optimization")
