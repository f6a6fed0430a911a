# ChainRules: reverse rules of nets, on the pullback of the Python side.

using ChainRulesCore:
    ChainRulesCore, AbstractZero, NoTangent, ProjectTo, Tangent, Thunk, ZeroTangent, unthunk

ChainRulesCore.ProjectTo(::Union{PaddleNet,PaddleHandle}) = ProjectTo{NoTangent}()

"""
    Asked(params, inputs)

Which gradients are wanted.
"""
struct Asked
    params::Bool
    inputs::Bool
end

const ALL = Asked(true, true)

"""
    pullback(net, xs, ps) -> y, collected, gradients

One crossing for the value; `gradients(collected(ȳ), asked)` is one more and gives
`(param_grads, input_grads)`: plain arrays, `nothing` where there is none or it is not asked
for, the parameters' as one vector where `ps` is flat. `ȳ` is nested as `y`; `collected`
checks it, so that errors come at once though gradients may come late.
"""
function pullback(net::PaddleNet, xs::Tuple, ps)
    bridge()
    # What Paddle saves for the way back aliases these arrays, so the closure keeps them.
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
    shape = outline(y)
    function collected(ȳ)
        cotangents = collect_cotangents!(Any[], ȳ, shape)
        check_device((inputs..., filter(!isnothing, cotangents)...))
        return cotangents
    end
    held = HeldBack(back, ALL, false)
    function gradients(cotangents, asked::Asked)
        bridge()
        GC.@preserve params inputs cotangents in_turn((params..., inputs...)) do
            lent = PyPtr[c === nothing ? none() : lend(c) for c in cotangents]
            found = try
                back = use!(held, net, params, inputs, flat)
                call(back, [boolean(asked.params); boolean(asked.inputs); lent])
            finally
                foreach(((c, p),) -> c === nothing || drop(p), zip(cotangents, lent))
                release!(held, asked, net)
            end
            try
                return receive_gradients(found, params, inputs, flat)
            finally
                drop(found)
            end
        end
    end
    return y, collected, gradients
end

"""
    HeldBack

What Paddle keeps for the way back, and which gradients have not been asked for yet.

Most pullbacks are used once and then wait for Julia's garbage collector, which does not see
the memory behind them. So in closed form, which gives the same again, Paddle's part is let go
of once all gradients were asked for; a further use makes it anew and keeps it. A recorded
graph is kept: dropout would fall otherwise the second time. As with any pullback, arrays must
not change in between.
"""
mutable struct HeldBack
    back::Py
    left::Asked
    again::Bool
end

function use!(held::HeldBack, net::PaddleNet, params, inputs, flat::Bool)
    if PythonCall.pyisnull(held.back)
        made = enter(net, :pullback, params, inputs, flat)
        held.back = owned_item(made, 1)
        held.again = true
        drop(made)
    end
    return held.back
end

function release!(held::HeldBack, asked::Asked, net::PaddleNet)
    left = held.left
    held.left = left = Asked(left.params && !asked.params, left.inputs && !asked.inputs)
    done = !(left.params || left.inputs)
    net.handle.closed && done && !held.again && PythonCall.pydel!(held.back)
    return nothing
end

function receive_gradients(found::PyPtr, params::Tuple, inputs::Tuple, flat::Bool)
    n = Int(tuple_length(found)) - length(inputs)
    input_grads =
        ntuple(i -> receive_gradient(inputs[i], tuple_item(found, n + i - 1)), length(inputs))
    flat || return ntuple(i -> receive_gradient(params[i], tuple_item(found, i - 1)), n),
        input_grads
    theta = only(params)
    # A device's vector comes whole; the host's is put together from its parts.
    (n == 1 || !(theta isa Vector)) &&
        return (receive_flat(theta, found, n),), input_grads
    grad = similar(theta)
    next = 1
    for i in 1:n
        item = tuple_item(found, i - 1)
        item == none() && return (nothing,), input_grads
        next = receive_into!(grad, next, item)
    end
    return (grad,), input_grads
end

receive_flat(theta, found::PyPtr, n::Int) =
    n == 1 ? receive_gradient(theta, tuple_item(found, 0)) :
    reduce(vcat, [vec(receive(tuple_item(found, i - 1))) for i in 1:n])

receive_gradient(::A, tensor::PyPtr) where {A<:Array} =
    tensor == none() ? nothing : receive_as(A, tensor)
receive_gradient(_, tensor::PyPtr) = tensor == none() ? nothing : receive(tensor)

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
    part = ȳ isa Union{AbstractZero,Nothing} ? Returns(ȳ) : key -> cotangent_part(ȳ, key, shape)
    for key in keys(shape)
        collect_cotangents!(out, part(key), shape[key])
    end
    return out
end

cotangent_part(ȳ::Tangent, key, shape) = getproperty(ȳ, key)
function cotangent_part(ȳ::Union{Tuple,NamedTuple}, key, shape)
    length(ȳ) == length(shape) || throw(
        DimensionMismatch("the cotangent has $(length(ȳ)) parts, the output $(length(shape))"),
    )
    return ȳ[key]
end
cotangent_part(ȳ, key, shape) = throw(
    ArgumentError(
        "the cotangent of a tuple must be a tuple or a Tangent, got a $(typeof(ȳ))",
    ),
)

# Each projector turns a plain gradient array into a tangent of the primal it was made from.
array_tangent(::Any, ::Nothing) = NoTangent()
array_tangent(project, grad::AbstractArray) = project(grad)

params_projector(ps::AbstractVector) =
    let project = ProjectTo(ps)
        grads -> array_tangent(project, only(grads))
    end

function params_projector(ps::P) where {P<:Tuple}
    projects = map(ProjectTo, ps)
    return grads -> Tangent{P}(map(array_tangent, projects, grads)...)
end

# Python's order is that of `names`, which need not be that of the named tuple.
function params_projector(ps::P, names) where {P<:NamedTuple}
    projects = map(ProjectTo, ps)
    return function (grads)
        found = NamedTuple{Tuple(names)}(grads)
        return Tangent{P}(; map(array_tangent, projects, NamedTuple{keys(ps)}(found))...)
    end
end
params_projector(ps, names) = params_projector(ps)

# How a pullback gives its tangents: as thunks, each of which crosses for itself and computes
# nothing else, or all at once in one crossing, for those who force every thunk anyway.
struct Lazy end
struct Eager end

"""
    ask(how, gradients, cotangents) -> params, inputs, deferred

Functions that give the gradients, and the one that makes a tangent of a function.
"""
ask(::Lazy, gradients, cotangents) = (
    once(() -> gradients(cotangents, Asked(true, false))[1]),
    once(() -> gradients(cotangents, Asked(false, true))[2]),
    Thunk,
)

function ask(::Eager, gradients, cotangents)
    param_grads, input_grads = gradients(cotangents, ALL)
    return Returns(param_grads), Returns(input_grads), f -> f()
end

"""
    once(f)

`f`, but a second call gives what the first one gave: several inputs share a crossing.
"""
function once(f)
    found = Ref{Any}(nothing)
    return function ()
        found[] === nothing && (found[] = f())
        return found[]
    end
end

"""
    rule(how, net, xs, ps) -> y, back

`back(ȳ)` gives the tangents of the inputs, a tuple, and that of the parameters.
"""
function rule(how, net::PaddleNet, xs::Tuple, ps)
    y, collected, gradients = pullback(net, xs, ps)
    project_ps = params_projector(ps, net.names)
    project_xs = map(ProjectTo, xs)
    function back(ȳ)
        Δ = unthunk(ȳ)
        Δ isa AbstractZero && return map(Returns(ZeroTangent()), xs), ZeroTangent()
        params, inputs, deferred = ask(how, gradients, collected(Δ))
        x̄s = ntuple(length(xs)) do i
            is_differentiable(eltype(xs[i])) || return NoTangent()
            return deferred(() -> array_tangent(project_xs[i], inputs()[i]))
        end
        return x̄s, deferred(() -> project_ps(params()))
    end
    return y, back
end

function net_rule(how, net::PaddleNet, x::AbstractArray, ps)
    y, back = rule(how, net, (x,), ps)
    function paddle_net_pullback(ȳ)
        (x̄,), p̄s = back(ȳ)
        return NoTangent(), x̄, p̄s
    end
    return y, paddle_net_pullback
end

function net_rule(how, net::PaddleNet, xs::X, ps) where {X<:Tuple}
    y, back = rule(how, net, xs, ps)
    function paddle_net_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        return NoTangent(), Tangent{X}(x̄s...), p̄s
    end
    return y, paddle_net_pullback
end

function wrapper_rule(how, w::W, xs...) where {W<:PaddleModuleWrapper}
    y, back = rule(how, w.net, xs, w.params)
    function paddle_module_wrapper_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        return Tangent{W}(; net = NoTangent(), params = p̄s), x̄s...
    end
    return y, paddle_module_wrapper_pullback
end

const Inputs = Union{AbstractArray,Tuple}

ChainRulesCore.rrule(net::PaddleNet, x::Inputs, ps) = net_rule(Lazy(), net, x, ps)
ChainRulesCore.rrule(w::PaddleModuleWrapper, xs...) = wrapper_rule(Lazy(), w, xs...)
