"Checks of arguments, and arrays that C can read and write."
module _Arguments

using ChainRulesCore: AbstractZero, NoTangent, Tangent, unthunk

"Return the number of samples, of which each has `factor` entries of a dimension."
samples(x::AbstractArray, dimension, factor = 1) = size(x, dimension) ÷ factor
samples(x, dimension, factor = 1) = 0 # `input` says what is wrong

"Return an input as C reads it: the array itself, or a copy where it has gaps."
function input(x::AbstractArray, ::Type{T}, sizes, label) where {T}
    check(x, T, sizes, label, by_elements)
    return is_dense(x) ? x : copyto!(Array{T}(undef, sizes), x)
end
input(x::T, ::Type{T}, ::Tuple{}, label) where {T<:Number} = Ref(x)
input(x::Number, ::Type{T}, ::Tuple{}, label) where {T} = wrong_kind(x, T, label, by_number)
input(x, ::Type{T}, sizes, label) where {T} = wrong_kind(x, Array{T}, label, an_array)

"Return an output as C writes it."
function output(y::AbstractArray, ::Type{T}, sizes, label) where {T}
    check(y, T, sizes, label, an_array)
    is_dense(y) || has_gaps(y, label)
    return y
end
output(y, ::Type{T}, sizes, label) where {T} = wrong_kind(y, Array{T}, label, an_array)

result(::Type{T}, sizes) where {T} = Array{T}(undef, sizes)

is_dense(::Array) = true
is_dense(x::StridedArray) = strides(x) == Base.front((1, cumprod(size(x))...))
is_dense(::AbstractArray) = false

@inline function check(x, ::Type{T}, sizes, label, remedy) where {T}
    eltype(x) === T || wrong_elements(x, T, label, remedy)
    size(x) == sizes || wrong_size(size(x), sizes, label)
    return nothing
end

# A label such as "heat: x (2, n)" has the argument's size as the library states it.
function parts(label)
    start = first(findfirst(" (", label))
    return label[1:start-1], label[start+1:end]
end

by_elements(T, name) = "convert it by $T.($name)"
by_number(T, name) = "convert it by $T($name)"
an_array(T, _) = "give an Array of $(eltype(T))"

@noinline wrong_elements(x, wanted, label, remedy) =
    wrong("has elements of $(eltype(x))", "elements of $wanted", wanted, label, remedy)
@noinline wrong_kind(x, wanted, label, remedy) =
    wrong("is of type $(typeof(x))", "$wanted", wanted, label, remedy)

function wrong(found, needed, wanted, label, remedy)
    argument = first(parts(label))
    what_to_do = remedy(wanted, last(split(argument)))
    throw(ArgumentError("$argument $found, and needs $needed; $what_to_do"))
end

@noinline function wrong_size(found, wanted, label)
    argument, general = parts(label)
    same = general == string(wanted) ? "" :
        ", here $wanted: all arrays have the same number of samples n"
    throw(DimensionMismatch("$argument has size $found, and needs $general$same"))
end

@noinline has_gaps(y, label) = throw(
    ArgumentError(
        "$(first(parts(label))) is of type $(nameof(typeof(y))), with gaps or in another " *
        "order, and results are written without; give an Array, and copy it",
    ),
)

@noinline fail(library, text) = throw(ErrorException("$library: $(unsafe_string(text))"))

"Raise an error unless a library describes itself by a text with this hash (FNV-1a)."
function check_description(library, text, hash)
    step(hash, byte) = (hash ⊻ byte) * 0x01000193
    foldl(step, codeunits(unsafe_string(text)); init = 0x811c9dc5) == hash && return nothing
    throw(
        ErrorException(
            "$library is not the library that this Julia file was written for; " *
            "take both files from the same call of save_library",
        ),
    )
end

"Return tangents as dense arrays like some values, or `nothing` if all are zero."
function tangents(given::Tuple, values::Tuple)
    found = map(unthunk, given)
    all(Δ -> Δ isa AbstractZero, found) && return nothing
    return map(dense_tangent, found, values)
end

dense_tangent(::AbstractZero, value) = zeros(eltype(value), size(value))
function dense_tangent(Δ, value)
    size(Δ) == size(value) || throw(
        DimensionMismatch("a tangent has size $(size(Δ)), and its value $(size(value))"),
    )
    Δ isa Array{eltype(value)} && return Δ
    return result(eltype(value), size(value)) .= real.(Δ)
end

"Raise an error unless a tangent of parameters is zero."
function no_tangent(Δ, label)
    found = unthunk(Δ)
    found isa AbstractZero || all(iszero, found) || throw(
        ArgumentError(
            "$label have a tangent, and the library's jvp is with respect to inputs " *
            "alone; give NoTangent(), or take the gradient with respect to parameters",
        ),
    )
    return nothing
end

tuple_tangent(values::Tuple, tangents::Tuple) = Tangent{typeof(values)}(tangents...)

"Return the pullback of a function whose derivative the library has not."
function no_pullback(name, count)
    function pullback(Δ)
        unthunk(Δ) isa AbstractZero && return ntuple(_ -> NoTangent(), count)
        throw(
            ArgumentError(
                "the library has no gradient of $name; save a net with " *
                "derivatives=[\"vjp\"] for that of its value, or put the call into " *
                "ChainRulesCore.ignore_derivatives if it is a constant",
            ),
        )
    end
    return pullback
end

end
