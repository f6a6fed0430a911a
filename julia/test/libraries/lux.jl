# Programs of Lux's users, with a net of Paddle among their layers.

include("../needing.jl")
run_where(("Lux",), "lux")
