# Derivatives of derivatives as Lux has them.

include("../needing.jl")
run_where(("Lux",), "lux_nested")
