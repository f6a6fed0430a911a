# Arrays of GPUs, on those with which GPUArrays.jl tests itself: what a CuArray goes through, on the host.

include("../needing.jl")
const EVERY = false # which takes minutes: all_gpus.jl
const SOME = ("value", "into, added", "rrule", "jvp", "buffers changed", "whole numbers", "sequences")
run_where(("JLArrays",), "gpus")
