# Programs of Flux's users, with a wrapped net in their chain.

include("../needing.jl")
run_where(("Flux",), "flux")
