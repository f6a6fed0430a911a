# What users of Lux and Flux expect of a layer, with the packages themselves.

include("../needing.jl")
run_where(("Flux", "Lux"), "lux_flux")
