# Calls of nets as functions of Julia alone.

"""
    LoweredCall

A call of a net as functions of `(inputs, ps, constants)`, tuples of arrays: `value` gives the
output; `there` the output, its arrays in a row, and what `back` takes besides their cotangents.
`back` gives the gradients of inputs and parameters in a row. Both are `nothing` where an
operator has no gradient written down: then the value is differentiated as any Julia code.
"""
struct LoweredCall{V,T,B,K<:NTuple{3,Tuple}}
    value::V
    there::T
    back::B
    constants::K
    texts::NTuple{3,String}
    sizes::Vector{Dims} # of the inputs that it was made for
    samples::Int        # how many there must be; 0 for any number
    why::String         # of what it lacks
end

"The output of a lowered call at tuples of arrays."
run_lowered(call::LoweredCall, inputs::Tuple, ps::Tuple) =
    call.value(inputs, ps, call.constants[1])

function check_inputs(call::LoweredCall, inputs::Tuple)
    length(inputs) == length(call.sizes) || throw(
        ArgumentError(
            "the net was lowered for $(length(call.sizes)) arrays, got $(length(inputs)); " *
            "lower it for these",
        ),
    )
    for (x, made) in zip(inputs, call.sizes)
        fits = ndims(x) == length(made) && (isempty(made) || size(x)[1:end-1] == made[1:end-1])
        free = call.samples == 0
        fits && (free || size(x) == made) && continue
        wanted = free && !isempty(made) ? "($(join((made[1:end-1]..., "n"), ", ")))" : "$made"
        throw(
            DimensionMismatch(
                "an input has size $(size(x)), the net was lowered for $wanted; lower it for " *
                "this size",
            ),
        )
    end
    return nothing
end
