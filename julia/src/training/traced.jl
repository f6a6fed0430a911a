# Arrays and numbers of a loss that is traced: each stands for a tensor of Paddle.

"""
    Traced{T,N} <: AbstractArray{T,N}

An array of a loss while [`train!`](@ref PaddleChainRules.train!) traces it: a Paddle tensor of the
reversed dimensions. What is computed with it calls Paddle's operators. There are no elements to
look at and no memory to write into: what would need them throws a [`TraceError`](@ref).
"""
struct Traced{T<:Real,N} <: AbstractArray{T,N}
    tensor::Py
    size::NTuple{N,Int}
end

"""
    TracedNumber{T} <: Real

A number of such a loss, such as the sum of an array, and each element of arrays within a function
that is broadcast.
"""
struct TracedNumber{T<:Real} <: Real
    tensor::Py
    TracedNumber{T}(tensor::Py) where {T<:Real} = (FLOATED[] = 0; new{T}(tensor))
end

"How often `float` was called since a number was made: some functions of Base call themselves with it."
const FLOATED = Ref(0)
const MOST_FLOATED = 100

const AnyTraced = Union{Traced,TracedNumber}

"""
    TraceError(what, remedy, place = "")

An error that [`train!`](@ref PaddleChainRules.train!) throws if a loss cannot be traced.

# Arguments

- `what`: what the loss did that cannot be traced, such as `if` on a value.
- `remedy`: what to write instead.
- `place`: the file and line.

# Examples

```jldoctest
julia> using Optimisers

julia> theta = [1.0, 2.0];

julia> state = Optimisers.setup(Optimisers.Adam(), theta);

julia> choose(theta) = sum(theta) > 0 ? sum(theta) : sum(abs2, theta);

julia> try
           PaddleChainRules.train!(choose, theta, state; steps = 3)
       catch err
           err isa PaddleChainRules.TraceError
       end
true
```
"""
struct TraceError <: Exception
    what::String
    remedy::String
    place::String
end
TraceError(what, remedy) = TraceError(what, remedy, "")
Base.showerror(io::IO, error::TraceError) = print(
    io, "TraceError: ", error.what, isempty(error.place) ? "" : " at $(error.place)",
    ", but train! traces the loss once, with arrays and numbers that have no values yet; ", error.remedy,
)

"The element type and the size of a tensor."
function facts(tensor::Py)
    dtype, sizes... = split(text(BRIDGE.facts(tensor)))
    return TYPES_BY_NAME[dtype], Tuple(parse.(Int, reverse(sizes)))
end

const TYPES_BY_NAME = Dict(lowercase(string(T)) => T for (T, _) in ELTYPES if T <: Real)

function traced_array(tensor::Py)
    T, size = facts(tensor)
    return Traced{T,length(size)}(tensor, size)
end
traced_number(tensor::Py) = TracedNumber{first(facts(tensor))}(tensor)

Base.size(x::Traced) = x.size
Base.eltype(::TracedNumber{T}) where {T} = T
Base.copy(x::Traced) = x
Base.show(io::IO, x::Traced) =
    print(io, "Traced{", eltype(x), "}(", join(size(x), '×'), ")")
Base.show(io::IO, ::MIME"text/plain", x::Traced) = show(io, x)
Base.show(io::IO, ::TracedNumber{T}) where {T} = print(io, "TracedNumber{", T, "}()")

# Constants.

"Tensors of the arrays that a loss uses as they are, by what is in them: the same each time."
const CONSTANTS = Ref(Dict{Any,Py}())

"An array that is trained, on whose device the others of a loss must be."
const TRAINED = Ref{AbstractArray}(Float64[])

"""
    tensor_for(x) -> Py

The tensor that stands for an array or a number: one of its own for what is not traced.
"""
tensor_for(x::AnyTraced) = x.tensor
tensor_for(x::Number) = tensor_for(fill(x))
function tensor_for(x::AbstractArray)
    isconcretetype(eltype(x)) || return tensor_for(map(identity, x))
    eltype(x) <: Real && dlpack_type(eltype(x)) # refuses here what can't cross
    # Numbers, ranges and the like are on no device.
    values = ndims(x) == 0 || isbits(x) ? beside((TRAINED[],), dense(x)) : dense(x)
    check_device((TRAINED[], values))
    return get!(CONSTANTS[], (eltype(values), device(values), collect(values))) do
        own_tensor(values)
    end
end

"A tensor with what is in a dense array, in memory of its own."
own_tensor(values::AbstractArray) = GC.@preserve values in_turn(values) do
    lent = PythonCall.pynew(lend(values))
    found = BRIDGE.own(lent)
    PythonCall.pydel!(lent)
    return found
end

function tensor_for(x::AbstractArray{<:TracedNumber})
    isempty(x) && return tensor_for(Float64[])
    T = mapreduce(eltype, promote_type, x)
    stacked = PADDLE.stack(PythonCall.pylist([in_type(T, v) for v in vec(x)]))
    return PADDLE.reshape(stacked, python_size(size(x)))
end

python_size(dims::Tuple) = PythonCall.pylist(collect(reverse(dims)))

"The tensor of an array or a number in another element type; a number that is not traced stays one."
in_type(::Type{T}, x::TracedNumber{T}) where {T} = x.tensor
in_type(::Type{T}, x::Traced{T}) where {T} = x.tensor
in_type(::Type{T}, x::AnyTraced) where {T} = x.tensor.astype(dtype_name(T))
in_type(::Type{T}, x::Number) where {T} = Py(convert(T, x))
in_type(::Type{T}, x::AbstractArray{T}) where {T} = tensor_for(x)
in_type(::Type{T}, x::AbstractArray) where {T} = tensor_for(convert(AbstractArray{T}, x))
in_type(::Type{T}, x::AbstractArray{<:TracedNumber}) where {T} = tensor_for(x).astype(dtype_name(T))

"The element type of an array, of a number, or of numbers that are traced."
plain_eltype(x::AnyTraced) = eltype(x)
plain_eltype(x::Number) = typeof(x)
plain_eltype(x::AbstractArray) = eltype(x)
plain_eltype(x::AbstractArray{<:TracedNumber}) = mapreduce(eltype, promote_type, x; init = Bool)

# What there is no value for.

const NO_VALUES = "write it with operations on whole arrays: broadcasts, sums, products, slices"

Base.iterate(::Traced, _...) = throw(TraceError("a traced array was iterated over, element by element", NO_VALUES))
Base.similar(x::Traced, ::Type, ::Dims) = throw(
    TraceError("memory like that of a traced array was asked for, to be written into (similar)", NO_VALUES),
)
Base.setindex!(::Traced, _...) = throw(
    TraceError("a traced array was written into", "make a new one, such as x .+ y, vcat or ifelse.(mask, x, y)"),
)
