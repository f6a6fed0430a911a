# Sequences of unequal length as one argument: Packed in Python.

"""
    PaddleChainRules.Packed(sequences)
    PaddleChainRules.Packed(values, offsets)

Sequences of unequal length as one argument of a net, without padding.

Layers that work on each element by itself, `LSTM`, `GRU`, `SimpleRNN` and
`MultiHeadAttention` take it, and with them encoders; see `Packed` in Python. A result of
this kind comes as a named tuple of `values` and `offsets`, and so does a cotangent for it,
with `nothing` for the offsets. Its gradient is a `Tangent` with `values`.

# Arguments

- `sequences`: a vector of arrays of sizes `(..., length)`.
- `values`: all of them one after another along the last dimension.
- `offsets`: the `n + 1` places, from 0, where each begins and the last ends.

# Examples

```jldoctest
julia> words = PaddleChainRules.Packed([[3, 1], [4, 1, 5]]);

julia> table = PaddleModuleWrapper(paddle.nn.Embedding(9, 4));

julia> size(table(words).values)
(4, 5)
```
"""
struct Packed{V<:AbstractArray,O<:AbstractVector{Int64}}
    values::V
    offsets::O
    function Packed(values::V, offsets::O) where {V<:AbstractArray,O<:AbstractVector{Int64}}
        total, places = size(values, ndims(values)), from_gpu(offsets)
        !isempty(places) && first(places) == 0 && last(places) == total && issorted(places) ||
            throw(
                ArgumentError(
                    "offsets rise from 0 to the number of elements, $total, got " *
                    "$(isempty(places) ? "none" : "from $(first(places)) to $(last(places))"); " *
                    "give where each sequence begins, and where the last ends",
                ),
            )
        return new{V,O}(values, offsets)
    end
end

function Packed(sequences::AbstractVector{<:AbstractArray})
    isempty(sequences) &&
        throw(ArgumentError("Packed takes at least one sequence, got none; leave out empty batches"))
    check_device(Tuple(sequences))
    lengths = [size(x, ndims(x)) for x in sequences]
    values = cat(sequences...; dims = ndims(first(sequences)))
    return Packed(values, beside((values,), cumsum([0; lengths])))
end

Base.length(x::Packed) = length(x.offsets) - 1
function Base.show(io::IO, x::Packed)
    least, most = extrema(diff(from_gpu(x.offsets)); init = (length(x) == 0 ? 0 : typemax(Int), 0))
    return print(io, "Packed($(length(x)) sequences of $least to $most elements, $(eltype(x.values)))")
end

"Such an argument in a layout: its two parts are leaves."
struct PackedLayout
    longest::Int
end

leaves(x::Packed) = (x.values, x.offsets)
layout(x::Packed) = PackedLayout(maximum(diff(from_gpu(x.offsets)); init = 0))
slot(::PackedLayout) = "_"
positions(part::PackedLayout, next) =
    BRIDGE.packed(part.longest, (Py(popfirst!(next)) for _ in 1:2)...)
arguments(x::Packed, kw::NamedTuple) = (x,), kw

nested_as(f, x::Packed, row) =
    (; values = f(x.values, popfirst!(row)), offsets = f(x.offsets, popfirst!(row)))
function nested_tangent(x::Packed, row)
    values, _ = popfirst!(row), popfirst!(row)
    return Tangent{typeof(x)}(; values, offsets = NoTangent())
end

values_of(tangent) = is_zero(tangent) ? nothing : content(unthunk(getproperty(tangent, :values)))
parts_in_a_row(Δ, ::Packed) = (values_of(content(unthunk(Δ))), nothing)
tangents_in_a_row(tangent, x::Packed) =
    (only(tangents_in_a_row(values_of(content(unthunk(tangent))), x.values)), nothing)
input_buffers(::Nothing, ::Packed) = (nothing, nothing)
input_buffers(given, ::Packed) = (given.values, nothing)
direction(x::Packed, v) = (; values = direction(x.values, v.values))
direction(::Packed, ::Nothing) = nothing
