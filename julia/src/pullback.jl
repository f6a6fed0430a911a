# Gradients on plain arrays: the pullback of the Python side, from Julia.

using ChainRulesCore: AbstractZero, Tangent, unthunk

"""
    Asked(params, inputs, some = nothing)

Which gradients are wanted; of the parameters `some`, by a flag for each, where not all.
"""
struct Asked
    params::Bool
    inputs::Bool
    some::Union{Nothing,Vector{Bool}}
end

Asked(params, inputs) = Asked(params, inputs, nothing)

const ALL = Asked(true, true)

struct Leaf
    eltype::DataType
    size::Dims
end

is_differentiable(T::Type) = T <: Union{AbstractFloat,Complex}

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
    collect_cotangents!(out, ȳ, shape)

Append one dense array, or `nothing` for zero, per leaf of `shape`, in order.
"""
function collect_cotangents!(out, ȳ, leaf::Leaf)
    ȳ = unthunk(ȳ)
    if is_zero(ȳ) || !has_derivative(leaf)
        push!(out, nothing)
        return out
    end
    ȳ isa Number && leaf.size == () && (ȳ = fill(ȳ))
    ȳ isa AbstractArray || throw(
        ArgumentError("the cotangent of an array must be an array, got a $(typeof(ȳ))"),
    )
    size(ȳ) == leaf.size || throw(
        DimensionMismatch("the cotangent has size $(size(ȳ)), the output $(leaf.size)"),
    )
    array = dense(ȳ)
    push!(out, eltype(array) == leaf.eltype ? array : converted(leaf.eltype, array))
    return out
end

function converted(T::Type, ȳ::AbstractArray)
    try
        return convert(Array{T}, ȳ)
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

collect_cotangents!(out, _, ::Passed) = push!(out, nothing)

function collect_cotangents!(out, ȳ, shape::Union{Tuple,NamedTuple})
    ȳ = unthunk(ȳ)
    part = is_zero(ȳ) ? Returns(ȳ) : key -> tangent_part(ȳ, key, shape, "cotangent")
    for key in keys(shape)
        collect_cotangents!(out, part(key), shape[key])
    end
    return out
end

tangent_part(ȳ::Tangent, key, of, kind) = getproperty(ȳ, key)
function tangent_part(ȳ::Union{Tuple,NamedTuple}, key, of, kind)
    length(ȳ) == length(of) || throw(
        DimensionMismatch("the $kind has $(length(ȳ)) parts, its primal $(length(of))"),
    )
    return ȳ[key]
end
tangent_part(ȳ, key, of, kind) = throw(
    ArgumentError("the $kind of a tuple must be a tuple or a Tangent, got a $(typeof(ȳ))"),
)

"""
    Reverse

The way back of one call of a net: what Paddle keeps for it, `back`, and the arrays that this
aliases.

Most are used once and then wait for Julia's garbage collector, which does not see the memory
behind them. So Paddle's part is let go of once all gradients were asked for (what is `left` is
none); a further use makes it anew, with the random numbers of the first time, and keeps it. As
with any pullback, arrays must not change in between.
"""
mutable struct Reverse{P<:Tuple,I<:Tuple}
    net::PaddleNet
    params::P
    inputs::I
    flat::Bool
    shape::Union{Leaf,Passed,Tuple,NamedTuple}
    back::Py
    left::Asked
    trained::Union{Nothing,Tuple{Vararg{Bool}}} # which of the parameters, where not all
    held::Int # bytes, part of `HELD`
end

function hold!(reverse::Reverse, bytes::Int)
    Threads.atomic_add!(HELD, bytes - reverse.held)
    reverse.held = bytes
    return reverse
end

"""
    reversible(net, xs, ps, trained = nothing) -> y, reverse::Reverse

The value, in one crossing; [`gradients`](@ref) is one more.
"""
function reversible(net::PaddleNet, xs::Tuple, ps, trained = nothing)
    params, inputs = arrays(net, xs, ps)
    flat = is_flat(ps)
    y, back, held = crossing() do
        relieve()
        GC.@preserve params inputs in_turn((params..., inputs...)) do
            made = enter(net, :pullback, params, inputs, flat)
            try
                held = last_held()
                back = owned_item(made, 1)
                unpack(net, tuple_item(made, 0), inputs), back, held
            finally
                drop(made)
            end
        end
    end
    reverse = Reverse(net, params, inputs, flat, outline(y), back, ALL, trained, 0)
    finalizer(let_go!, hold!(reverse, held))
    return y, reverse
end

let_go!(reverse::Reverse) = hold!(reverse, 0)

"""
    cotangents(reverse, ȳ) -> Vector

Dense arrays, or `nothing` for zero, of a cotangent that is nested as the output, checked.
"""
function cotangents(reverse::Reverse, ȳ)
    has_derivative(reverse.shape) || throw(
        ArgumentError(
            "the net gives nothing that has a derivative, only integers, Booleans and what is " *
            "no array; so there is no gradient of it",
        ),
    )
    found = collect_cotangents!(Any[], ȳ, reverse.shape)
    check_device((reverse.inputs..., filter(!isnothing, found)...))
    return found
end

"""
    gradients(reverse, cotangents, asked = ALL) -> param_grads, input_grads

Plain arrays, `nothing` where there is none or it is not asked for, the parameters' as one
vector where they are flat. One crossing.
"""
gradients(reverse::Reverse, cotangents::Vector, asked::Asked = ALL) =
    with_gradients(found -> receive_gradients(reverse, found), reverse, cotangents, asked)

"""
    with_gradients(f, reverse, cotangents, asked)

`f(found)` with Python's tuple of gradients, parameters first. One crossing.
"""
function with_gradients(f::F, reverse::Reverse, cotangents::Vector, asked::Asked) where {F}
    params, inputs = reverse.params, reverse.inputs
    return crossing() do
        GC.@preserve params inputs cotangents in_turn((params..., inputs...)) do
            found = grads(reverse, cotangents, asked)
            try
                return f(found)
            finally
                drop(found)
            end
        end
    end
end

function grads(reverse::Reverse, cotangents::Vector, asked::Asked)
    last = is_last!(reverse, asked)
    flags = asked.some !== nothing ? asked.some : asked.params ? reverse.trained : nothing
    some = flags === nothing ? NONE : pytuple(flags)
    params_flag = flags === nothing ? boolean(asked.params) : PythonCall.getptr(some)
    args = PyPtr[params_flag, boolean(asked.inputs), boolean(last)]
    try
        for c in cotangents
            push!(args, c === nothing ? none() : lend(c))
        end
        found = GC.@preserve some call(back!(reverse), args)
        last || reverse.held > 0 || hold!(reverse, last_held()) # made anew
        return found
    finally
        for (c, lent) in zip(cotangents, @view args[4:end])
            c === nothing || drop(lent)
        end
        if last
            # In closed form what Paddle keeps is the object itself.
            reverse.net.handle.closed && PythonCall.pydel!(reverse.back)
            let_go!(reverse)
        end
    end
end

"""
    is_last!(reverse, asked)

Whether no gradient is left to be asked for the first time after this.
"""
function is_last!(reverse::Reverse, asked::Asked)
    left = reverse.left
    all_params = asked.params && asked.some === nothing
    now = Asked(left.params && !all_params, left.inputs && !asked.inputs)
    reverse.left = now
    return left != now && !(now.params || now.inputs)
end

function back!(reverse::Reverse)
    if PythonCall.pyisnull(reverse.back)
        made = enter(reverse.net, :pullback, reverse.params, reverse.inputs, reverse.flat)
        reverse.back = owned_item(made, 1)
        drop(made)
    end
    return reverse.back
end

function receive_gradients(reverse::Reverse, found::PyPtr)
    params, inputs = reverse.params, reverse.inputs
    get(x, i) = receive_gradient(x, tuple_item(found, i - 1))
    n = Int(tuple_length(found)) - length(inputs)
    input_grads = ntuple(i -> get(inputs[i], n + i), length(inputs))
    reverse.flat || return ntuple(i -> get(params[i], i), n), input_grads
    theta = only(params)
    n == 1 && return (get(theta, 1),), input_grads
    tuple_item(found, 0) == none() && return (nothing,), input_grads
    return (store!(similar(theta), found, 1:n, false),), input_grads
end

receive_gradient(::A, tensor::PyPtr) where {A<:Array} =
    tensor == none() ? nothing : receive_as(A, tensor)
receive_gradient(_, tensor::PyPtr) = tensor == none() ? nothing : receive(tensor)

"""
    PaddleChainRules.pullback(net, x, ps; kwargs...) -> y, back
    PaddleChainRules.pullback(wrapper, x; kwargs...)

The value, and `back(ȳ; into, accumulate = false) -> p̄s, x̄`, which gives gradients nested as
`ps` and `x`, without automatic differentiation around them. It may be called again and again;
`nothing` stands where there is no gradient. Keyword arguments are those of the net, held
constant.

`into` is the same pair of arrays of your own, `nothing` where a gradient is not wanted: it is
written there, or added with `accumulate = true`, without a new array of that size, and it is
not computed where it is not wanted. Arrays of GPUs and other kinds go by a copy.

Throws a `DimensionMismatch` for a buffer of another size, and an `ArgumentError` for one of
another element type or nesting, or that overlaps another, a parameter or an input; nothing is
written then.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0)
net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
total = zero(theta) # of several batches
for _ in 1:4
    y, back = PaddleChainRules.pullback(net, rand(Float32, 3, 8), theta)
    back(2 .* y; into = (total, nothing), accumulate = true)
end
```
"""
pullback(net::PaddleNet, x, ps; kwargs...) = pullback_of(net, x, ps, values(kwargs), nothing)
pullback(w::PaddleModuleWrapper, x; kwargs...) =
    pullback_of(w.net, x, w.params, values(kwargs), trained(w))

function pullback_of(net::PaddleNet, x, ps, kw::NamedTuple, flags)
    flat, row = in_a_row(net, x, kw)
    y, reverse = reversible(flat, row, ps, flags)
    nest_inputs(x̄s) = x isa AbstractArray ? first(x̄s) :
                      nested_as((_, x̄) -> x̄, x, Iterators.Stateful(x̄s))
    function back(ȳ; into = nothing, accumulate::Bool = false)
        found = cotangents(reverse, ȳ)
        if into === nothing
            accumulate && throw(ArgumentError("accumulate adds to the arrays of into; give them too"))
            p̄s, x̄s = gradients(reverse, found)
            return nest_params(p̄s, ps, net.names), nest_inputs(x̄s)
        end
        into isa Tuple && length(into) == 2 || throw(
            ArgumentError("into must be a pair, for the parameters and for the input, got $(typeof(into))"),
        )
        p̄s = param_buffers(into[1], ps, net.names)
        x̄s = input_buffers(into[2], x)
        x̄s = (x̄s..., map(Returns(nothing), row[length(x̄s)+1:end])...)
        write_gradients!(p̄s, x̄s, reverse, found, accumulate)
        return into
    end
    return y, back
end

nest_params(p̄s, ::AbstractVector, _) = only(p̄s)
nest_params(p̄s, ::Tuple, _) = p̄s
nest_params(p̄s, ps::NamedTuple, names) = NamedTuple{keys(ps)}(NamedTuple{Tuple(names)}(p̄s))

"""
    param_buffers(given, ps, names)

A tuple of arrays or `nothing`, in Python's order, from buffers that are nested as `ps`.
"""
param_buffers(given, ::AbstractVector, _) = (given,)
param_buffers(::Nothing, ::AbstractVector, _) = (nothing,)
param_buffers(::Nothing, ps::Tuple, _) = map(Returns(nothing), ps)
param_buffers(::Nothing, ps::NamedTuple, _) = map(Returns(nothing), Tuple(ps))
function param_buffers(given, ps::Tuple, _)
    given isa Tuple && length(given) == length(ps) || throw(
        ArgumentError("into for the parameters must be nothing or a tuple of $(length(ps)), got a $(typeof(given))"),
    )
    return given
end
function param_buffers(given, ps::NamedTuple, names)
    given isa NamedTuple && issetequal(keys(given), keys(ps)) || throw(
        ArgumentError("into for the parameters must be nothing or a named tuple with the names $(keys(ps))"),
    )
    return Tuple(given[name] for name in names)
end

"Buffers in a row, one or `nothing` for each leaf of `x`."
function input_buffers(given, x)
    given === nothing && return map(Returns(nothing), leaves(x))
    x isa Union{Tuple,NamedTuple} || return (given,)
    kind = x isa Tuple ? Tuple : NamedTuple
    given isa kind && issetequal(keys(given), keys(x)) || throw(
        ArgumentError(
            "into for the inputs must be nothing or nested as they are, " *
            (x isa Tuple ? "a tuple of $(length(x))" : "a named tuple of $(keys(x))") *
            ", got a $(typeof(given))",
        ),
    )
    return Tuple(Iterators.flatten(input_buffers(given[key], x[key]) for key in keys(x)))
end

function check_buffers(buffers::Tuple, primals::Tuple)
    for (buffer, primal) in zip(buffers, primals)
        buffer === nothing && continue
        buffer isa AbstractArray ||
            throw(ArgumentError("into must hold arrays or nothing, got a $(typeof(buffer))"))
        is_differentiable(eltype(primal)) || throw(
            ArgumentError("an input of $(eltype(primal)) has no gradient; give nothing for it in into"),
        )
        size(buffer) == size(primal) || throw(
            DimensionMismatch("an array of into has size $(size(buffer)), its gradient $(size(primal))"),
        )
        eltype(buffer) == eltype(primal) || throw(
            ArgumentError("an array of into holds $(eltype(buffer)), its gradient $(eltype(primal))"),
        )
    end
    given = filter(!isnothing, collect(Any, buffers))
    for (i, buffer) in enumerate(given), other in Iterators.flatten((given[i+1:end], primals))
        Base.mightalias(buffer, other) && throw(
            ArgumentError(
                "an array of into overlaps another, a parameter or an input in memory, so that " *
                "writing the one changes the other; give each gradient an array of its own",
            ),
        )
    end
    return nothing
end

"""
    write_gradients!(p̄s, x̄s, reverse, cotangents, accumulate)

Assign or add gradients to arrays, `nothing` where one is not wanted; all checked before.
"""
function write_gradients!(p̄s::Tuple, x̄s::Tuple, reverse::Reverse, cotangents, accumulate)
    check_buffers((p̄s..., x̄s...), (reverse.params..., reverse.inputs...))
    some = [p̄ !== nothing for p̄ in p̄s]
    asked = Asked(any(some), any(!isnothing, x̄s), any(some) && !all(some) ? some : nothing)
    asked.params || asked.inputs || return nothing
    with_gradients(reverse, cotangents, asked) do found
        n = Int(tuple_length(found)) - length(x̄s)
        for (i, x̄) in enumerate(x̄s)
            store!(x̄, found, (n+i):(n+i), accumulate)
        end
        if reverse.flat
            store!(only(p̄s), found, 1:n, accumulate)
        else
            foreach((i, p̄) -> store!(p̄, found, i:i, accumulate), 1:n, p̄s)
        end
    end
    return nothing
end

"""
    store!(buffer, found, items, accumulate) -> buffer

Assign or add tensors of the tuple `found` in a row, none being zero, to an array.
"""
store!(::Nothing, _, _, _) = nothing
function store!(buffer::Array, found::PyPtr, items, accumulate::Bool)
    if any(i -> tuple_item(found, i - 1) == none(), items)
        return accumulate ? buffer : fill!(buffer, 0)
    end
    next = 1
    for i in items
        next = receive_into!(buffer, next, tuple_item(found, i - 1), accumulate)
    end
    return buffer
end

# Arrays of GPUs and other kinds, by a copy.
function store!(buffer::AbstractArray, found::PyPtr, items, accumulate::Bool)
    if any(i -> tuple_item(found, i - 1) == none(), items)
        return accumulate ? buffer : fill!(buffer, 0)
    end
    grad = reshape(reduce(vcat, [vec(receive(tuple_item(found, i - 1))) for i in items]), size(buffer))
    return accumulate ? (buffer .+= grad) : (buffer .= grad)
end
