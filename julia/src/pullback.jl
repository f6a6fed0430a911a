# Gradients on plain arrays: the pullback of the Python side, from Julia.

using ChainRulesCore: AbstractZero, Tangent, unthunk

"""
    Asked(params, inputs)

Which gradients are wanted.
"""
struct Asked
    params::Bool
    inputs::Bool
end

const ALL = Asked(true, true)

struct Leaf
    eltype::DataType
    size::Dims
end

is_differentiable(T::Type) = T <: Union{AbstractFloat,Complex}

"""
    outline(y)

Sizes and element types of an output, nested as it is, without its arrays.
"""
outline(y::AbstractArray) = Leaf(eltype(y), size(y))
outline(y::Union{Tuple,NamedTuple}) = map(outline, y)

"""
    collect_cotangents!(out, ȳ, shape)

Append one dense array, or `nothing` for zero, per leaf of `shape`, in order.
"""
function collect_cotangents!(out, ȳ, leaf::Leaf)
    ȳ = unthunk(ȳ)
    if ȳ isa Union{AbstractZero,Nothing} || !is_differentiable(leaf.eltype)
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
    push!(out, eltype(array) == leaf.eltype ? array : convert(Array{leaf.eltype}, array))
    return out
end

function collect_cotangents!(out, ȳ, shape::Union{Tuple,NamedTuple})
    ȳ = unthunk(ȳ)
    part = ȳ isa Union{AbstractZero,Nothing} ? Returns(ȳ) : key -> tangent_part(ȳ, key, shape, "cotangent")
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
    shape::Union{Leaf,Tuple,NamedTuple}
    back::Py
    left::Asked
end

"""
    pullback(net, xs, ps) -> y, reverse::Reverse

The value, in one crossing; [`gradients`](@ref) is one more.
"""
function pullback(net::PaddleNet, xs::Tuple, ps)
    bridge()
    params, inputs = arrays(net, xs, ps)
    flat = is_flat(ps)
    y, back = GC.@preserve params inputs in_turn((params..., inputs...)) do
        made = enter(net, :pullback, params, inputs, flat)
        try
            back = owned_item(made, 1)
            unpack(net, tuple_item(made, 0), inputs), back
        finally
            drop(made)
        end
    end
    return y, Reverse(net, params, inputs, flat, outline(y), back, ALL)
end

"""
    cotangents(reverse, ȳ) -> Vector

Dense arrays, or `nothing` for zero, of a cotangent that is nested as the output, checked.
"""
function cotangents(reverse::Reverse, ȳ)
    found = collect_cotangents!(Any[], ȳ, reverse.shape)
    check_device((reverse.inputs..., filter(!isnothing, found)...))
    return found
end

"""
    gradients(reverse, cotangents, asked = ALL) -> param_grads, input_grads

Plain arrays, `nothing` where there is none or it is not asked for, the parameters' as one
vector where they are flat. One crossing.
"""
function gradients(reverse::Reverse, cotangents::Vector, asked::Asked = ALL)
    bridge()
    params, inputs = reverse.params, reverse.inputs
    GC.@preserve params inputs cotangents in_turn((params..., inputs...)) do
        last = is_last!(reverse, asked)
        lent = PyPtr[c === nothing ? none() : lend(c) for c in cotangents]
        flags = map(boolean, (asked.params, asked.inputs, last))
        found = try
            call(back!(reverse), PyPtr[flags...; lent])
        finally
            foreach(((c, p),) -> c === nothing || drop(p), zip(cotangents, lent))
            # In closed form what Paddle keeps is the object itself.
            last && reverse.net.handle.closed && PythonCall.pydel!(reverse.back)
        end
        try
            return receive_gradients(reverse, found)
        finally
            drop(found)
        end
    end
end

"""
    is_last!(reverse, asked)

Whether no gradient is left to be asked for the first time after this.
"""
function is_last!(reverse::Reverse, asked::Asked)
    left = reverse.left
    now = Asked(left.params && !asked.params, left.inputs && !asked.inputs)
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
    return (concatenate(theta, found, n),), input_grads
end

receive_gradient(::A, tensor::PyPtr) where {A<:Array} =
    tensor == none() ? nothing : receive_as(A, tensor)
receive_gradient(_, tensor::PyPtr) = tensor == none() ? nothing : receive(tensor)

"""
    concatenate(theta, found, n)

The first `n` tensors of the tuple `found` in a row, as a vector like `theta`.
"""
function concatenate(theta::Vector, found::PyPtr, n::Int)
    out = similar(theta)
    next = 1
    for i in 1:n
        next = receive_into!(out, next, tuple_item(found, i - 1))
    end
    return out
end
concatenate(_, found::PyPtr, n::Int) =
    reduce(vcat, [vec(receive(tuple_item(found, i - 1))) for i in 1:n])
