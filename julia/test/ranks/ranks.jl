# Many processes, where MPI is.

include("../needing.jl")
run_where(("MPI",), "ranks")
