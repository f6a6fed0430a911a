# Many processes; the methods are in the extension for MPI.

"""
    rank_average(tree; weight = 1, comm = MPI.COMM_WORLD)
    rank_average(f; weight = 1, comm = MPI.COMM_WORLD)

Average the numbers and arrays of a tree over all ranks, with the same bits on all of them.

Needs `using MPI`, after `MPI.Init()`. No gradient flows through it: differentiate inside.
Each round starts with 24 bytes of each rank, so that no rank waits for ever, or adds what
does not belong together.

# Arguments

- `tree`: what Zygote and Optimisers know: tuples, named tuples, structs that Functors
  knows, arrays and numbers of floating point, `nothing`. All of one element type go as one
  vector, in one round.
- `f`: a function without arguments that returns the tree of its rank.
- `weight`: what a rank counts for. With the number of its samples, the average of means
  over uneven shards is the mean over all samples.
- `comm`: the communicator.

# Throws

- [`RankError`](@ref PaddleChainRules.RankError), on all ranks: `f` failed on one, or their
  trees differ in names, sizes or element types.

# Examples

```julia
value, gradients = rank_average(; weight = size(x, 2)) do
    Zygote.withgradient(θ -> loss(θ, x), θ)
end
```
"""
rank_average(given...; kw...) = throw(
    ArgumentError(
        Base.get_extension(@__MODULE__, :PaddleChainRulesMPIExt) === nothing ?
        "rank_average needs MPI; say `using MPI` and `MPI.Init()` first" :
        "the call is rank_average(tree; weight, comm), got rank_average(" *
        join(map(kind_of, given), ", ") * "); give one tree, or a function without arguments",
    ),
)

"""
    RankError(message)

An error that all ranks throw if they disagree, or if one of them has failed.

The run cannot go on: stop it, and see the message for the rank and its reason.

# Examples

```jldoctest
julia> PaddleChainRules.RankError <: Exception
true
```
"""
struct RankError <: Exception
    message::String
end

Base.showerror(io::IO, error::RankError) = print(io, "RankError: ", error.message)
