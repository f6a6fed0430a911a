# ChainRules: reverse rules of nets, on the pullback of the Python side.

using ChainRulesCore:
    ChainRulesCore, AbstractZero, NoTangent, ProjectTo, Tangent, ZeroTangent, unthunk

"""
    pullback(net, xs, ps) -> y, gradients

One crossing for the value; `gradients(ȳ)` is one more, giving plain arrays or `nothing`,
first for each parameter array, then for each input. `ȳ` is nested as `y`.
"""
function pullback(net::PaddleNet, xs::Tuple, ps)
    bridge()
    # What Paddle saves for the way back aliases these arrays, so the closure keeps them.
    arrays = (param_arrays(net, ps)..., input_arrays(net, xs)...)
    packed, back = with_shared(arrays) do capsules
        net.handle.pullback(is_flat(ps), capsules...)
    end
    y = unpack!(packed)
    shape = outline(y)
    function gradients(ȳ)
        bridge()
        cotangents = Any[]
        collect_cotangents!(cotangents, ȳ, shape)
        present = [c for c in cotangents if c !== nothing]
        return GC.@preserve arrays with_shared(present) do capsules
            rest = Iterators.Stateful(capsules)
            arguments = (c === nothing ? nothing : popfirst!(rest) for c in cotangents)
            found = back(arguments...)
            grads = Any[receive_gradient!(g) for g in found]
            PythonCall.pydel!(found)
            grads
        end
    end
    return y, gradients
end

receive_gradient!(g::Py) =
    PythonCall.pyis(g, PythonCall.pybuiltins.None) ? nothing : unshare!(g)

struct Leaf
    eltype::DataType
    size::Dims
end

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
    if ȳ isa Union{AbstractZero,Nothing} || !(leaf.eltype <: Union{AbstractFloat,Complex})
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
    return grads -> Tangent{P}(map(array_tangent, projects, Tuple(grads))...)
end

# Python's order is that of `names`, which need not be that of the named tuple.
function params_projector(ps::P, names) where {P<:NamedTuple}
    projects = map(ProjectTo, ps)
    return function (grads)
        found = NamedTuple{Tuple(names)}(Tuple(grads))
        return Tangent{P}(; map(array_tangent, projects, NamedTuple{keys(ps)}(found))...)
    end
end
params_projector(ps, names) = params_projector(ps)

inputs_projector(xs::Tuple) =
    let projects = map(ProjectTo, xs)
        grads -> map(array_tangent, projects, Tuple(grads))
    end

"""
    rule(net, xs, ps) -> y, back

`back(ȳ)` gives the tangents of the inputs, a tuple, and that of the parameters.
"""
function rule(net::PaddleNet, xs::Tuple, ps)
    y, gradients = pullback(net, xs, ps)
    project_ps = params_projector(ps, net.names)
    project_xs = inputs_projector(xs)
    n = is_flat(ps) ? 1 : length(net.names)
    function back(ȳ)
        Δ = unthunk(ȳ)
        Δ isa AbstractZero && return map(Returns(ZeroTangent()), xs), ZeroTangent()
        grads = gradients(Δ)
        return project_xs(grads[(n+1):end]), project_ps(grads[1:n])
    end
    return y, back
end

function ChainRulesCore.rrule(net::PaddleNet, x::AbstractArray, ps)
    y, back = rule(net, (x,), ps)
    function paddle_net_pullback(ȳ)
        (x̄,), p̄s = back(ȳ)
        return NoTangent(), x̄, p̄s
    end
    return y, paddle_net_pullback
end

function ChainRulesCore.rrule(net::PaddleNet, xs::X, ps) where {X<:Tuple}
    y, back = rule(net, xs, ps)
    function paddle_net_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        return NoTangent(), Tangent{X}(x̄s...), p̄s
    end
    return y, paddle_net_pullback
end

function ChainRulesCore.rrule(w::W, xs...) where {W<:PaddleModuleWrapper}
    y, back = rule(w.net, xs, w.params)
    function paddle_module_wrapper_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        return Tangent{W}(; net = NoTangent(), params = p̄s), x̄s...
    end
    return y, paddle_module_wrapper_pullback
end
