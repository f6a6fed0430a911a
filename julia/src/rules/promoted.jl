# Rules of arrays in another precision: tangents go back in that of their primals.

function ChainRulesCore.rrule(::typeof(in_precision_of), precision, x)
    in_precision_of_pullback(ȳ) = NoTangent(), NoTangent(), as_primal(precision, x, ȳ)
    return in_precision_of(precision, x), in_precision_of_pullback
end
function ChainRulesCore.rrule(::typeof(input_in), precision, net, x)
    input_in_pullback(ȳ) = NoTangent(), NoTangent(), NoTangent(), as_primal(precision, x, ȳ)
    return input_in(precision, net, x), input_in_pullback
end

"A tangent in the floating type of its primal."
as_primal(precision, x, ȳ) = is_in(precision, x) ? ȳ : narrowed(x, content(unthunk(ȳ)))
narrowed(_, x̄) = x̄
narrowed(x::AbstractArray, x̄::AbstractArray) = in_precision_of(Precision{float_types(x)}(), x̄)
function narrowed(xs::Union{Tuple,NamedTuple}, x̄s)
    is_zero(x̄s) && return x̄s
    parts = map(key -> narrowed(xs[key], part_of(x̄s, key)), keyed(xs))
    return xs isa Tuple ? Tangent{typeof(xs)}(parts...) : Tangent{typeof(xs)}(; parts...)
end

ChainRulesCore.frule((_, _, ẋ)::Tuple, ::typeof(in_precision_of), precision, x::AbstractArray) =
    in_precision_of(precision, x), in_precision_of(precision, unthunk(ẋ))
ChainRulesCore.frule((_, _, _, ẋ)::Tuple, ::typeof(input_in), precision, net, x::AbstractArray) =
    input_in(precision, net, x), input_in(precision, net, unthunk(ẋ))

ChainRulesCore.@non_differentiable common_precision(::Any...)
