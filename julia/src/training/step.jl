# One step of training as Python calls it: the loss, and the rule of Optimisers.

"""
    TrainedLeaf(leaf, array)

A leaf of the tree that `Optimisers.setup` gives, and the array that it is of.
"""
struct TrainedLeaf
    leaf::Any
    array::AbstractArray
end

# What the extension of Optimisers has methods for.
"The leaves of a tree of `Optimisers.setup` that are not frozen, each once."
function trained_leaves end
"What a rule makes of a state, an array and its gradient: the next state, and what is subtracted."
function apply_rule end
"Whether a rule refuses gradients that are not finite."
function needs_finite end
"The learning rates of a rule that a step takes as numbers: `Optimisers.adjust!` may change them."
function rates end
"A rule with other learning rates, the first ones of a row, from which they are taken."
function with_rates end

"What goes from step to step for a leaf, beside its array: learning rates, then arrays and numbers of its state."
carried(leaf) = Any[rates(leaf.rule)..., state_parts(leaf.state)...]

"""
    state_parts(state) -> Vector

Arrays and numbers of a leaf's state that go from step to step.
"""
state_parts(state) = collect_parts!(Any[], state)
collect_parts!(found, x::Union{AbstractArray{<:Real},Real}) = (x isa Bool || push!(found, x); found)
collect_parts!(found, xs::Union{Tuple,NamedTuple}) = (foreach(x -> collect_parts!(found, x), xs); found)
collect_parts!(found, ::Nothing) = found
collect_parts!(_, x) = throw(
    ArgumentError(
        "the state of a rule holds $(kind_of(x)); train! takes rules whose states are arrays, numbers, and tuples of these",
    ),
)

"A state with other arrays and numbers, `f(old, next)` of each."
with_parts(f, x::Union{AbstractArray{<:Real},Real}, row) = x isa Bool ? x : f(x, popfirst!(row))
with_parts(f, xs::Union{Tuple,NamedTuple}, row) = map(x -> with_parts(f, x, row), xs)
with_parts(_, ::Nothing, _) = nothing

traced_as(::AbstractArray, tensor::Py) = traced_array(tensor)
traced_as(::Real, tensor::Py) = traced_number(tensor)

"""
    as_traced(array, traced)

What stands for an array of the model: the traced array, or one of the same kind around it.
"""
as_traced(::AbstractArray, x::Traced) = x

"""
    loss_of_tensors(loss, model, leaves, given)

The loss as a function of a tuple of tensors, those of the arrays that are trained.

`given` makes of its value what Python gets.
"""
function loss_of_tensors(loss, model, leaves::Vector{TrainedLeaf}, given = value -> checked_loss(value).tensor)
    return function (tensors::Py)
        stands_for = IdDict{Any,Any}()
        for (trained, tensor) in zip(leaves, tensors)
            stands_for[trained.array] = as_traced(trained.array, traced_array(tensor))
        end
        is_leaf(x) = haskey(stands_for, x) || Functors.isleaf(x)
        traced = Functors.fmap(x -> get(stands_for, x, x), model; exclude = is_leaf)
        return given(loss(traced))
    end
end

checked_loss(value::TracedNumber{<:AbstractFloat}) = value
checked_loss(value::Traced{<:AbstractFloat,0}) = value
checked_loss(value::AnyTraced) = throw(
    ArgumentError("the loss gives $(sprint(show, value)); give one floating number, such as sum(abs2, r) / length(r)"),
)
checked_loss(value) = throw(
    ArgumentError(
        "the loss gives $(kind_of(value)), which does not depend on what is trained; compute it from the " *
        "parameters that the loss is given",
    ),
)

"The rule as a function of tensors: parameters, states, and gradients or None."
function rule_of_tensors(leaves::Vector{TrainedLeaf})
    return function (params::Py, states::Py, grads::Py)
        given, next_params, next_states = items(states), Py[], Py[]
        for (trained, param, grad) in zip(leaves, params, grads)
            x, old, rule = traced_array(param), trained.leaf.state, trained.leaf.rule
            own_rates = splice!(given, 1:length(rates(rule)))
            own = splice!(given, 1:length(state_parts(old)))
            append!(next_states, own_rates)
            if PythonCall.pyis(grad, NONE)
                push!(next_params, param)
                append!(next_states, own)
                continue
            end
            kept = with_parts(traced_as, old, own)
            state, x = stepped(with_rates(rule, Any[traced_number(rate) for rate in own_rates]), kept, x, traced_array(grad))
            push!(next_params, x.tensor)
            append!(next_states, next_parts(old, state))
        end
        return pytuple((pytuple(next_params), pytuple(next_states)))
    end
end

"Whether the rule of a step is traced, and not the loss."
const IN_RULE = Ref(false)

"The next state of a rule, and the next array."
function stepped(rule, state, x::Traced{T}, x̄) where {T}
    IN_RULE[] = true
    try
        state, change = apply_rule(rule, state, x, x̄)
        return state, change === nothing ? x : T.(x .- change)
    finally
        IN_RULE[] = false
    end
end

function next_parts(old, state)
    row = state_parts(old)
    new = state_parts(state)
    length(new) == length(row) || throw(
        TraceError("a rule changes the form of its state", "use a rule whose state keeps its form"),
    )
    return map((a, b) -> b isa AnyTraced ? in_type(plain_eltype(a), b) : tensor_for(convert_like(a, b)), row, new)
end
convert_like(a::Real, b::Real) = convert(typeof(a), b)
convert_like(_, b) = b

"The last error of Julia's within a step, which Python has passed on."
mutable struct Failure
    error::Any
end

"A function for Python to call, whose errors are noted."
called_by_python(f, failure::Failure) = PythonCall.pyfunc(function (args...)
    try
        return f(args...)
    catch err
        failure.error = with_place(explained_error(err), stacktrace(catch_backtrace()))
        rethrow()
    end
end)

is_traced(::AnyTraced) = true
is_traced(x) = x isa AbstractArray{<:TracedNumber}

"What Julia says of traced values where a value is needed, with the remedy."
explained_error(err) = err
function explained_error(err::TypeError)
    is_traced(err.got) || return err
    err.expected === Bool && return TraceError(
        "a condition (if, &&, ||, ? :) depends on a traced number", "write ifelse(condition, a, b), which computes both",
    )
    return TraceError("a traced number was needed as $(err.expected)", NO_VALUES)
end
function explained_error(err::MethodError)
    any(is_traced, err.args) || return err
    return TraceError(
        "$(err.f) has no method for ($(join(map(kind_of, err.args), ", ")))",
        KNOWN_FUNCTIONS,
    )
end
function explained_error(err::ErrorException) # of what Base has for no number but its own
    occursin("TracedNumber", err.msg) || return err
    return TraceError(err.msg, KNOWN_FUNCTIONS)
end

"An error with the place in the caller's code, or in a rule's."
with_place(err, _) = err
function with_place(err::TraceError, frames)
    i = findfirst(is_callers, frames)
    return i === nothing ? err : TraceError(err.what, err.remedy, "$(frames[i].file):$(frames[i].line)")
end

const OWN_FILES = dirname(@__DIR__)
function is_callers(frame)
    file = string(frame.file)
    is_bases = !isabspath(file) && !contains(file, '[') # REPL[1] and In[1] are the caller's
    return !(frame.from_c || is_bases || startswith(file, OWN_FILES) || startswith(file, Sys.STDLIB))
end
