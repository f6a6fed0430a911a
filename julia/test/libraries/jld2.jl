# Parameters and states in files of JLD2.

include("../needing.jl")
run_where(("JLD2", "Lux"), "jld2")
