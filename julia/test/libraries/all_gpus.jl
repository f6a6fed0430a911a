# Each call of the table.

include("../needing.jl")
const EVERY, SOME = true, ()
run_where(("JLArrays",), "gpus")
