# Many processes; the methods are in the extension for MPI.

"""
    rank_average(tree; weight = 1, comm = MPI.COMM_WORLD)
    rank_average(f; weight = 1, comm = MPI.COMM_WORLD)

The average over all ranks of the numbers and arrays of a tree, or of what `f()` gives on each
rank; the same bits on all of them. Needs `using MPI`, after `MPI.Init()`.

A tree is what Zygote and Optimisers know: tuples, named tuples, structs that Functors knows,
arrays and numbers of floating point, `nothing`. All of one element type go as one vector, in
one round. `weight` is what a rank counts for: with the number of its samples, the average of
means over uneven shards is the mean over all samples.

```julia
value, gradients = rank_average(; weight = size(x, 2)) do
    Zygote.withgradient(θ -> loss(θ, x), θ)
end
```

No gradient flows through it: differentiate inside.

Each round starts with 24 bytes of each rank, so that none waits for ever, or adds what does
not belong together: it throws a [`RankError`](@ref PaddleChainRules.RankError) on all ranks
where `f` failed on one, or where their trees differ in names, sizes or element types.
"""
rank_average(given...; kw...) = throw(
    ArgumentError(
        Base.get_extension(@__MODULE__, :PaddleChainRulesMPIExt) === nothing ?
        "rank_average needs MPI; say `using MPI` and `MPI.Init()` first" :
        "the call is rank_average(tree; weight, comm), got rank_average(" *
        join(map(kind_of, given), ", ") * "); give one tree, or a function without arguments",
    ),
)

"Ranks that disagree, or one of which has failed. The run can't go on."
struct RankError <: Exception
    message::String
end

Base.showerror(io::IO, error::RankError) = print(io, "RankError: ", error.message)
