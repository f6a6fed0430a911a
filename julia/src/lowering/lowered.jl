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
    free::Vector{Int}   # the dimension of each that is of samples and may differ; 0 for none
    samples::Int        # how many there must be; 0 for any number
    why::String         # of what it lacks
end

"""
    free_dimension(size, samples)

Which dimension is of samples: the last that is as long as the last one of the first input.
"""
free_dimension(size::Dims, samples) = something(findlast(==(samples), size), 0)

"The output of a lowered call at tuples of arrays."
run_lowered(call::LoweredCall, inputs::Tuple, ps::Tuple) =
    call.value(inputs, ps, call.constants[1])

function check_inputs(call::LoweredCall, inputs::Tuple)
    length(inputs) == length(call.sizes) || throw(
        ArgumentError(
            "the net was lowered for a call with $(length(call.sizes)) arrays, got $(length(inputs)); " *
            "give as many, or lower it for these",
        ),
    )
    for (x, made, free) in zip(inputs, call.sizes, call.free)
        ndims(x) == length(made) && all(i -> i == free || size(x, i) == made[i], 1:ndims(x)) && continue
        wanted = "($(join((i == free ? "n" : made[i] for i in eachindex(made)), ", ")))"
        throw(
            DimensionMismatch(
                "an input has size $(size(x)), the net was lowered for $wanted; lower it for " *
                "this size",
            ),
        )
    end
    counts = unique(size(x, free) for (x, free) in zip(inputs, call.free) if free != 0)
    length(counts) <= 1 || throw(
        DimensionMismatch(
            "the inputs have $(join(counts, " and ")) samples, the net was lowered for one number of " *
            "them; give as many in each, or lower it for these sizes",
        ),
    )
    return nothing
end
