# Averages over the ranks of MPI.
module PaddleChainRulesMPIExt

using Functors: Functors
using MPI: MPI
using PaddleChainRules: PaddleChainRules, RankError, kind_of

const Numbers = Union{AbstractFloat,Complex{<:AbstractFloat}}

# What is known of a rank before its numbers are sent.
struct Header
    likeness::UInt64
    weight::Float64
    failed::Int64
end

function PaddleChainRules.rank_average(tree; weight::Real = 1, comm = MPI.COMM_WORLD)
    return PaddleChainRules.rank_average(() -> tree; weight, comm)
end

function PaddleChainRules.rank_average(f::Function; weight::Real = 1, comm = MPI.COMM_WORLD)
    MPI.Initialized() || throw(
        ArgumentError("rank_average talks to other processes, got none; say MPI.Init() first"),
    )
    tree, text = try
        positive(weight)
        tree = f()
        tree, likeness(tree)
    catch error
        agree("", weight, error, comm)
        rethrow()
    end
    headers = agree(text, weight, nothing, comm)
    return averaged(tree, [header.weight for header in headers], comm)
end

positive(weight) =
    weight > 0 && isfinite(weight) || throw(
        ArgumentError(
            "a rank's weight must be positive, got $weight; give the number of its samples",
        ),
    )

"The leaves of a tree, in order; the same array once for each place."
function leaves(tree)
    found = Any[]
    Functors.fmap(tree; cache = nothing, exclude = isleaf) do leaf
        push!(found, leaf)
        leaf
    end
    return found
end

isleaf(x) = x isa Union{Number,AbstractArray,Nothing} || Functors.isleaf(x)

"What must be alike on all ranks, a line each."
function likeness(tree)
    lines = String[]
    structure = Functors.fmap(tree; cache = nothing, exclude = isleaf) do leaf
        push!(lines, described(leaf))
        nothing
    end
    return join([lines; "nested as $(typeof(structure))"], '\n')
end

described(::Nothing) = "nothing"
described(x::Numbers) = "a $(typeof(x))"
described(x::AbstractArray{<:Numbers}) = "$(join(size(x), '×')) numbers of $(eltype(x))"
described(x) = throw(
    ArgumentError(
        "rank_average takes arrays and numbers of floating point, got $(kind_of(x)); average " *
        "these, and leave the rest outside",
    ),
)

"The headers of all ranks, who have the same text and have not failed; or this one has."
function agree(text, weight, failure, comm)
    own = Header(hash(text), weight, failure !== nothing)
    headers = MPI.Allgather([own], comm)
    rank, failed = MPI.Comm_rank(comm), findfirst(header -> header.failed != 0, headers)
    if failed !== nothing
        why = rank == failed - 1 ? sprint(showerror, failure) : nothing
        why = MPI.bcast(why, comm; root = failed - 1)
        failure === nothing || return headers
        throw(
            RankError(
                "rank_average can't go on: rank $(failed - 1) of $(length(headers)) failed " *
                "($why); mend the cause there, and start all ranks again",
            ),
        )
    end
    other = findfirst(header -> header.likeness != headers[1].likeness, headers)
    other === nothing && return headers
    ours = split(MPI.bcast(rank == 0 ? text : nothing, comm; root = 0), '\n')
    theirs = split(MPI.bcast(rank == other - 1 ? text : nothing, comm; root = other - 1), '\n')
    k = something(findfirst(i -> ours[i] != theirs[i], 1:min(length(ours), length(theirs))), 1)
    throw(
        RankError(
            "ranks disagree at leaf $k: rank 0 has $(ours[k]), rank $(other - 1) has $(theirs[k]); " *
            "give trees of the same names, sizes and element types, in the same order of calls",
        ),
    )
end

"The weighted average, in one round for each element type."
function averaged(tree, weights, comm)
    given = leaves(tree)
    share = weights[MPI.Comm_rank(comm)+1] / sum(weights)
    made = Dict{Any,Any}()
    for T in unique(summed_as(x) for x in given if x !== nothing)
        parts = [x for x in given if x !== nothing && summed_as(x) === T]
        buffer = T[]
        foreach(x -> append!(buffer, x isa Number ? T[x] : vec(x)), parts)
        buffer .*= real(T)(share)
        MPI.Allreduce!(buffer, +, comm)
        made[T] = Iterators.Stateful(buffer)
    end
    return Functors.fmap(tree; cache = nothing, exclude = isleaf) do leaf
        leaf === nothing ? nothing : taken(leaf, made[summed_as(leaf)])
    end
end

# Sixteen bits lose digits in a sum of many.
summed_as(x) = summed_as(x isa Number ? typeof(x) : eltype(x))
summed_as(T::Type) = T <: Complex ? Complex{summed_as(real(T))} : sizeof(T) == 2 ? Float32 : T

taken(x::T, buffer) where {T<:Number} = convert(T, popfirst!(buffer))
function taken(x::AbstractArray, buffer)
    found = similar(x)
    for i in eachindex(found)
        found[i] = popfirst!(buffer)
    end
    return found
end

end
