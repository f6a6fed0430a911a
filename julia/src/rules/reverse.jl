# Gradients on plain arrays: the pullback of the Python side, from Julia.

using ChainRulesCore: AbstractZero, Tangent, unthunk

"""
    NeedsGrad(params, inputs, some = nothing)

Which gradients are wanted; of the parameters `some`, by a flag for each, where not all.
"""
struct NeedsGrad
    params::Bool
    inputs::Bool
    some::Union{Nothing,Vector{Bool}}
end

NeedsGrad(params, inputs) = NeedsGrad(params, inputs, nothing)

const ALL = NeedsGrad(true, true)

struct Leaf
    eltype::DataType
    size::Dims
end

is_differentiable(T::Type) = plain_of(T) <: Union{AbstractFloat,Complex}

# Of types that are known at run time alone, behind a barrier: what is compiled for any type would
# be compiled anew where an extension adds a method.
plain_of(T::Type) =
    T <: Union{AbstractFloat,Complex} ? T : Base.inferencebarrier(plain_type)(T)::Type

is_zero(tangent) = tangent isa Union{AbstractZero,Nothing}

"""
    outline(y)

Sizes and element types of an output, nested as it is, without its arrays.
"""
outline(y::AbstractArray) = Leaf(eltype(y), size(y))
outline(y::Union{Tuple,NamedTuple}) = map(outline, y)
outline(_) = Passed()

"Stands for an output that is no array, and has no derivative."
struct Passed end

has_derivative(leaf::Leaf) = is_differentiable(leaf.eltype)
has_derivative(x::AbstractArray) = is_differentiable(eltype(x))
has_derivative(::Union{Passed,Constant}) = false
has_derivative(parts::Union{Tuple,NamedTuple}) = any(has_derivative, parts)

"""
    collect_cotangents!(out, ȳ, shape, others = ())

Append one dense array, or `nothing` for zero, per leaf of `shape`, in order. Numbers, `Fill`s and other
cotangents without memory go where `others` are.
"""
function collect_cotangents!(out, ȳ, leaf::Leaf, others = ())
    ȳ = unthunk(ȳ)
    if is_zero(ȳ) || !has_derivative(leaf)
        push!(out, nothing)
        return out
    end
    has_memory = !isbits(ȳ)
    ȳ isa Number && leaf.size == () && (ȳ = fill(ȳ))
    ȳ isa AbstractArray || throw(
        ArgumentError("the cotangent of an array must be an array, got $(kind_of(ȳ))"),
    )
    size(ȳ) == leaf.size || throw(
        DimensionMismatch("the cotangent has size $(size(ȳ)), the output $(leaf.size)"),
    )
    array = has_memory ? dense_tangent(ȳ) : beside(others, dense_tangent(ȳ))
    T = replace_plain(eltype(array), plain_of(leaf.eltype))
    push!(out, eltype(array) == T ? array : converted(T, array))
    return out
end

function converted(T::Type, ȳ::AbstractArray)
    try
        # Where a GPU would find a number that is none of T, its kernel would end.
        ȳ isa AbstractGPUArray && !(eltype(ȳ) <: Real) && T <: Real && throw(InexactError(:convert, T, ȳ))
        return convert(AbstractArray{T}, ȳ)
    catch err
        err isa Union{MethodError,InexactError} || rethrow()
        throw(
            ArgumentError(
                "the cotangent holds $(eltype(ȳ)), the output $T; convert it, for example with " *
                "$T.(real.(ȳ))",
            ),
        )
    end
end

collect_cotangents!(out, ȳ, ::Passed, others = ()) = push!(out, nothing)

function collect_cotangents!(out, ȳ, shape::Union{Tuple,NamedTuple}, others = ())
    ȳ = unthunk(ȳ)
    part = is_zero(ȳ) ? Returns(ȳ) : key -> tangent_part(ȳ, key, shape, "cotangent")
    for key in keys(shape)
        collect_cotangents!(out, part(key), shape[key], others)
    end
    return out
end

tangent_part(ȳ::Tangent, key, of, kind) = getproperty(ȳ, key)
function tangent_part(ȳ::Union{Tuple,NamedTuple}, key, of, kind)
    keys(ȳ) == keys(of) || issetequal(keys(ȳ), keys(of)) || throw(
        DimensionMismatch(
            "the $kind is $(kind_of(ȳ)), its primal $(kind_of(of)); nest it in the same way",
        ),
    )
    return ȳ[key]
end
tangent_part(ȳ, key, of, kind) = throw(
    ArgumentError("the $kind of a tuple must be a tuple or a Tangent, got $(kind_of(ȳ))"),
)

"""
    PullbackState

The way back of one call of a net: what Paddle keeps for it, `back`, and the arrays that this
aliases.

Most are used once and then wait for Julia's garbage collector, which does not see the memory
behind them. So Paddle's part is let go of once all gradients were asked for (what is `left` is
none); a further use makes it anew, with the random numbers of the first time, and keeps it. As
with any pullback, arrays must not change in between.
"""
mutable struct PullbackState{N<:PaddleNet,P<:Arrays,I<:Tuple}
    net::N
    params::P
    inputs::I
    flat::Bool
    shape::Union{Leaf,Passed,Tuple,NamedTuple}
    back::Py
    left::NeedsGrad
    trained::Union{Nothing,Tuple{Vararg{Bool}}} # which of the parameters, where not all
    retained_bytes::Int # bytes, part of `RETAINED_BYTES`
    kept::Union{Residuals,Nothing} # what it needs where it goes by code, and `back` is none
    places::Vector{Tuple{Ptr{Cvoid},Int}} # of vectors that `back` has a share in
end

function PullbackState(net, params, inputs, flat, shape, back, left, trained, retained_bytes, kept)
    places = kept === nothing ? places_of_vectors(params, inputs) : NO_PLACES
    return PullbackState(net, params, inputs, flat, shape, back, left, trained, retained_bytes, kept, places)
end

"Addresses and lengths of vectors, which can be resized, and then lie elsewhere."
places_of_vectors(params, inputs) =
    Tuple{Ptr{Cvoid},Int}[(address(x), length(x)) for x in both(params, inputs) if x isa Vector]
const NO_PLACES = Tuple{Ptr{Cvoid},Int}[]

"""
    ReverseOfDuals

The same where inputs or parameters are dual numbers: gradients are then a function of them, from
the random numbers that the call began with.
"""
struct ReverseOfDuals{N<:PaddleNet,P<:Tuple,I<:Tuple}
    net::N
    params::P # in the order of the net, or the one flat vector
    inputs::I
    flat::Bool
    shape::Union{Leaf,Passed,Tuple,NamedTuple}
    trained::Union{Nothing,Tuple{Vararg{Bool}}}
    source::Py
end

const AnyReverse = Union{PullbackState,ReverseOfDuals}

function set_retained!(reverse::PullbackState, bytes::Int)
    Threads.atomic_add!(RETAINED_BYTES, bytes - reverse.retained_bytes)
    reverse.retained_bytes = bytes
    return reverse
end

"""
    reversible(net, xs, ps, trained = nothing) -> y, reverse::PullbackState

The value, in one crossing; [`gradients`](@ref) is one more.
"""
function reversible(given::PaddleNet, xs::Tuple, ps, trained = nothing)
    dual_type((xs, ps)) === nothing ||
        return Base.inferencebarrier(reversible_of_duals)(given, xs, ps, trained)
    net, params, inputs = arrays(given, xs, ps)
    flat = is_flat(ps)
    way, n = way_code(net, params, inputs)
    if way !== nothing
        made = or_nothing(there_by_code, way.code, net, way, n, params, inputs, flat)
        if made !== nothing # else Paddle says what is wrong
            y, kept = made
            return y, PullbackState(net, params, inputs, flat, outline(y), NONE, ALL, trained, 0, kept)
        end
    end
    y, back, retained = crossing() do
        relieve()
        GC.@preserve params inputs in_turn(both(params, inputs)) do
            made = enter(net, :pullback, params, inputs, flat)
            try
                retained = last_retained_bytes()
                back = owned_item(made, 1)
                note_call(net, :way, params, inputs, flat)
                unpack(net, tuple_item(made, 0), inputs), back, retained
            finally
                drop(made)
            end
        end
    end
    reverse = PullbackState(net, params, inputs, flat, outline(y), back, ALL, trained, 0, nothing)
    finalizer(release!, set_retained!(reverse, retained))
    return y, reverse
end

release!(reverse::PullbackState) = set_retained!(reverse, 0)

"""
    cotangents(reverse, ȳ) -> Vector

Dense arrays, or `nothing` for zero, of a cotangent that is nested as the output, checked.
"""
function cotangents(reverse::AnyReverse, ȳ)
    has_derivative(reverse.shape) || throw(
        ArgumentError(
            "the net gives nothing that has a derivative, only integers, Booleans and what is " *
            "no array; so there is no gradient of it",
        ),
    )
    primals = both(reverse.params, reverse.inputs)
    found = collect_cotangents!(Any[], ȳ, reverse.shape, primals)
    check_device((reverse.inputs..., filter(!isnothing, found)...))
    return found
end

"""
    gradients(reverse, cotangents, asked = ALL) -> param_grads, input_grads

Plain arrays, `nothing` where there is none or it is not asked for, the parameters' as one
vector where they are flat. One crossing.
"""
function gradients(reverse::PullbackState, cotangents::Vector, asked::NeedsGrad = ALL)
    D = dual_type(cotangents)
    D === nothing ||
        return Base.inferencebarrier(gradients_of_duals)(D, reverse, cotangents, asked)
    kept = reverse.kept
    kept === nothing || return gradients_by_code(kept, reverse, cotangents, asked)
    return with_gradients(found -> receive_gradients(reverse, found), reverse, cotangents, asked)
end

"""
    with_gradients(f, reverse, cotangents, asked)

`f(found)` with Python's tuple of gradients, parameters first. One crossing.
"""
function with_gradients(f::F, reverse::PullbackState, cotangents::Vector, asked::NeedsGrad) where {F}
    params, inputs = reverse.params, reverse.inputs
    check_places(reverse)
    return crossing() do
        GC.@preserve params inputs cotangents in_turn(both(params, inputs)) do
            found = grads(reverse, cotangents, asked)
            try
                return f(found)
            finally
                drop(found)
            end
        end
    end
end

"Refuse vectors that were resized since the call."
check_places(::ReverseOfDuals) = nothing
function check_places((; net, params, inputs, flat, kept, places)::PullbackState)
    kept === nothing || return check_lengths(kept, net, flat, params, inputs)
    return places_of_vectors(params, inputs) == places || refuse_resized()
end

"Which of the parameters are asked for, by a flag for each; nothing for all or none."
asked_params(reverse::PullbackState, asked::NeedsGrad) =
    asked.some !== nothing ? asked.some : asked.params ? reverse.trained : nothing

function grads(reverse::PullbackState, cotangents::Vector, asked::NeedsGrad)
    last = is_last!(reverse, asked)
    flags = asked_params(reverse, asked)
    some = flags === nothing ? NONE : pytuple(flags)
    params_flag = flags === nothing ? boolean(asked.params) : PythonCall.getptr(some)
    args = PyPtr[params_flag, boolean(asked.inputs), boolean(last)]
    try
        for c in cotangents
            push!(args, c === nothing ? none() : lend(c))
        end
        found = GC.@preserve some call(reverse.back, args)
        last || reverse.retained_bytes > 0 || set_retained!(reverse, last_retained_bytes()) # made anew
        return found
    finally
        for (c, lent) in zip(cotangents, @view args[4:end])
            c === nothing || drop(lent)
        end
        last && release!(reverse)
    end
end

"""
    is_last!(reverse, asked)

Whether no gradient is left to be asked for the first time after this.
"""
function is_last!(reverse::PullbackState, asked::NeedsGrad)
    left = reverse.left
    all_params = asked.params && asked.some === nothing
    now = NeedsGrad(left.params && !all_params, left.inputs && !asked.inputs)
    reverse.left = now
    return left != now && !(now.params || now.inputs)
end

function receive_gradients(reverse::PullbackState, found::PyPtr)
    params, inputs = reverse.params, reverse.inputs
    get(x, i) = receive_gradient(x, tuple_item(found, i - 1))
    n = Int(tuple_length(found)) - length(inputs)
    input_grads = ntuple(i -> get(inputs[i], n + i), length(inputs))
    reverse.flat || return each(get, params, params isa Tuple ? ntuple(identity, n) : 1:n), input_grads
    theta = only(params)
    n == 1 && return (get(theta, 1),), input_grads
    tuple_item(found, 0) == none() && return (nothing,), input_grads
    return (Base.inferencebarrier(store!)(similar(theta), found, 1:n, false),), input_grads
end

receive_gradient(::A, tensor::PyPtr) where {A<:Array} =
    tensor == none() ? nothing : receive_as(A, tensor)
receive_gradient(_, tensor::PyPtr) = tensor == none() ? nothing : receive(tensor)

"""
    gradients_by_code(kept, reverse, cotangents, asked)

The same by code.
"""
function gradients_by_code(kept::Residuals, reverse::PullbackState, cotangents::Vector, asked::NeedsGrad)
    (; params, inputs, flat) = reverse
    back = asked_code(kept, reverse, cotangents, asked)
    wanted, count = back.wanted, length(reverse.net.names)
    made(x, i) = wanted[i] ? similar(x) : nothing
    p̄s = flat ? (any(@view wanted[1:count]) ? similar(only(params)) : nothing,) :
         params isa Tuple ? map(made, params, ntuple(identity, length(params))) : Any[made(p, i) for (i, p) in enumerate(params)]
    x̄s = map(made, inputs, ntuple(i -> count + i, length(inputs)))
    write_by_code(kept, back, reverse, cotangents, p̄s, x̄s)
    return p̄s, x̄s
end

"The code of what is asked for."
function asked_code(kept::Residuals, reverse::PullbackState, cotangents::Vector, asked::NeedsGrad)
    way, flags = kept.way, asked_params(reverse, asked)
    is_given(seed) = cotangents[seed] !== nothing
    flags === nothing && asked.params && asked.inputs && all(is_given, way.seeds) && return first(@atomic way.backs)
    some = flags === nothing ? asked.params : collect(Bool, flags)
    return back_code(reverse.net, way, (some, asked.inputs, map(is_given, way.seeds)))
end

"""
    write_by_code(kept, back, reverse, cotangents, p̄s, x̄s)

Write gradients into arrays, nothing where one is not wanted. Where all parameters are one array,
those without a gradient are zeros.
"""
function write_by_code(kept::Residuals, back::PullbackCode, reverse::PullbackState, cotangents::Vector, p̄s::Arrays, x̄s::Tuple)
    (; net, params, inputs, flat) = reverse
    if flat && only(p̄s) !== nothing && !all(@view back.wanted[1:length(net.names)])
        fill!(only(p̄s), 0)
    end
    return back_by_code(kept, back, net, params, inputs, flat, cotangents, p̄s, x̄s)
end

# What a call keeps lies in this process.
Serialization.serialize(::AbstractSerializer, reverse::PullbackState) = refuse_to_send(reverse.net)
refuse_to_send(net::PaddleNet) = throw(
    ArgumentError(
        "the pullback of $net can't go to another process or a file; send the net and the arrays, and " *
        "make the pullback there",
    ),
)
