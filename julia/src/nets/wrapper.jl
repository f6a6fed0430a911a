# Nets with their parameters as Julia arrays.

"""
    PaddleModuleWrapper(layer; frozen = (), jit = nothing)

Wrap a `paddle.nn.Layer` as a callable Julia object that holds its parameters.

`wrapper(x)` calls the layer on Julia arrays, with the batch last. `wrapper.params` is a
tuple of arrays in the order of `layer.named_parameters()`. They are copies: the layer never
changes. `Zygote.gradient(m -> loss(m, x, y), wrapper)` gives `grad.params[i]`. Functors,
Optimisers and `destructure` see the parameters and nothing else.

# Arguments

- `layer`: any `paddle.nn.Layer`. `wrapper(x, y; z)` passes its arguments to the layer,
  nested or not, as for a [`PaddleNet`](@ref).
- `frozen`: parameters to leave out, by name or pattern such as `"encoder.*"`, one or
  several. They keep their present values, as do parameters that the layer does not train
  and running statistics.
- `jit`: how calls run. `true` captures a program of Paddle's operators at the first call
  with arrays of new sizes, which takes a third to nine tenths of the time; the result of
  `forward` must then depend on no Python value that changes. `nothing` does this after
  three calls with the same sizes, for layers of `paddle.nn` and `paddle.vision` and
  containers of them. `false` never does. The REPL shows which way a wrapper runs, and why.

# Throws

- `ArgumentError`: `layer` is not a `paddle.nn.Layer`.
- Calls throw what a [`PaddleNet`](@ref) throws.

# Examples

```jldoctest
julia> layer = paddle.nn.Sequential(
           paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2));

julia> wrapper = PaddleModuleWrapper(layer);

julia> size(wrapper(rand(Float32, 3, 32)))
(2, 32)

julia> map(size, wrapper.params)
((16, 3), (16,), (2, 16), (2,))

julia> length(PaddleModuleWrapper(layer; frozen = "0.*").params)
2
```

See also [`PaddleNet`](@ref), [`PaddleFCNet`](@ref),
[`freeze`](@ref PaddleChainRules.freeze).
"""
struct PaddleModuleWrapper{P<:Tuple,T,B,N<:PaddleNet}
    net::MutableState{N} # of the type PaddleNet as a property
    params::P

    # T tells which of them are trained, a flag for each, nothing for all; B, whether there are
    # buffers.
    function PaddleModuleWrapper(
        net::N, params::P, T = nothing, present = MutableState(net),
    ) where {P<:Tuple,N<:PaddleNet}
        return new{P,T,!isempty(net.handle.buffers),N}(present, params)
    end
end

Base.getproperty(w::PaddleModuleWrapper, name::Symbol) =
    name === :net ? present_net(present(w)) : getfield(w, name)
present(w::PaddleModuleWrapper) = getfield(w, :net)

trained(::PaddleModuleWrapper{P,T}) where {P,T} = T

"The parameters, of which those that are frozen have no derivative."
params_of(w::PaddleModuleWrapper{P,nothing}) where {P} = w.params
params_of(w::PaddleModuleWrapper{P,T}) where {P,T} =
    map((p, trains) -> trains ? p : ignore_derivatives(p), w.params, T)

check_all_trained(w::PaddleModuleWrapper, what) = trained(w) === nothing || throw(
    ArgumentError(
        "$what trains all of its parameters, and this wrapper has frozen ones; use " *
        "freeze(wrapper, ()), or leave them out by PaddleModuleWrapper(layer; frozen = names)",
    ),
)

# What is frozen, and buffers, are children of their own, so that `Optimisers.trainable` can leave
# them out.
function Functors.functor(::Type{<:PaddleModuleWrapper{P,T,B}}, w) where {P,T,B}
    any(name -> hasproperty(w, name), (:frozen, :buffers)) && return w, identity # children already
    params = w.params === nothing && T !== nothing ? map(Returns(nothing), T) : w.params # a gradient
    children = T === nothing ? (; params) :
               (params = select(params, T), frozen = select(params, map(!, T)))
    buffers = w isa PaddleModuleWrapper ? present(w).buffers : nothing
    return B ? (; children..., buffers) : children, children -> rebuilt(w, children)
end

function rebuilt(w::PaddleModuleWrapper{P,T}, children::NamedTuple) where {P,T}
    (; net, buffers, training) = present(w)
    now = MutableState(net, filled_as(buffers, get(children, :buffers, buffers)), training)
    T === nothing && return PaddleModuleWrapper(net, filled_as(w.params, children.params), T, now)
    parts = map(Iterators.Stateful, (children.params, children.frozen))
    params = map(t -> popfirst!(parts[t ? 1 : 2]), T)
    return PaddleModuleWrapper(net, filled_as(w.params, params), T, now)
end

"""
    filled_as(old, new)

What `fmap` has made of arrays, where `f.(a)` of one without dimensions is a number: that is such an array again.
"""
filled_as(_, new) = new
filled_as(old::Tuple, new::Tuple) =
    new isa Tuple{Vararg{AbstractArray}} ? new :
    map((a, b) -> a isa AbstractArray{<:Any,0} && b isa Number ? fill(b) : b, old, new)
filled_as(old::NamedTuple{K}, new::NamedTuple{K}) where {K} = NamedTuple{K}(filled_as(Tuple(old), Tuple(new)))

"Items of what is trained by flags, with nothing in the places of what is frozen."
spread_out(items, ::Nothing) = items
function spread_out(items, flags::Tuple)
    rest = Iterators.Stateful(items)
    return map(t -> t ? popfirst!(rest) : nothing, flags)
end

# `adapt(to, w)` moves and converts what `fmap` maps.
Adapt.adapt_structure(to, w::PaddleModuleWrapper) = Functors.fmap(x -> Adapt.adapt(to, x), w)

select(params, flags::Tuple) = Tuple(params[i] for i in eachindex(flags) if flags[i])

PaddleModuleWrapper(layer; frozen = (), jit::Union{Bool,Nothing} = nothing) = crossing() do
    object = Py(layer)
    if !PythonCall.pyisinstance(object, paddle.nn.Layer)
        throw(
            ArgumentError(
                "PaddleModuleWrapper needs a paddle.nn.Layer, got $(kind_of(layer)); build " *
                "one, for example paddle.nn.Linear(3, 2)",
            ),
        )
    end
    names = [text(pair[0]) for pair in object.named_parameters()]
    return wrapper(BRIDGE.layer(object, python_names("frozen", frozen, names), Py(jit)))
end

"""
    python_names(what, given, names)

Names and patterns as Python takes them: of a regular expression the `names` that it matches.
"""
function python_names(what, given, names)
    items = given isa Union{AbstractString,Symbol,Regex} || !applicable(iterate, given) ? (given,) : given
    found = String[]
    for item in items
        item isa Union{AbstractString,Symbol,Regex} || throw(
            ArgumentError(
                "$what takes names of parameters, patterns such as \"encoder.*\" and regular " *
                "expressions, one or several, got $(kind_of(item))",
            ),
        )
        matching = item isa Regex ? filter(name -> occursin(item, name), names) : [String(item)]
        isempty(matching) && throw(
            ArgumentError("$what names $item, which no parameter matches; there are $(listed(names))"),
        )
        append!(found, matching)
    end
    return pytuple(found)
end

"""
    PaddleChainRules.freeze(wrapper, names)

Return the same wrapper with some parameters held constant.

They stay in `wrapper.params`, unlike those that `PaddleModuleWrapper(layer; frozen)` leaves
out, so that you can train them later. Their gradients are `NoTangent()` (`nothing` in
Zygote) and are not computed. `Optimisers.trainable` leaves them out of `setup`, `update`
and `destructure`.

# Arguments

- `names`: a name, a pattern such as `"encoder.*"`, a regular expression such as
  `r"norm|bias"`, or several of these. `()` freezes nothing.

# Examples

```jldoctest
julia> using Zygote

julia> layer = paddle.nn.Sequential(
           paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2));

julia> head_only = PaddleChainRules.freeze(PaddleModuleWrapper(layer), "0.*");

julia> grad, = Zygote.gradient(w -> sum(w(ones(Float32, 3, 4))), head_only);

julia> map(isnothing, grad.params)
(true, true, false, false)
```
"""
freeze(w::PaddleModuleWrapper, names) = crossing() do
    given = map(string, w.net.names)
    found = BRIDGE.chosen(pytuple(given), python_names("freeze", names, given))
    flags = Tuple(!PythonCall.pytruth(is_frozen) for is_frozen in found)
    (; net, buffers, training) = present(w)
    T = all(flags) ? nothing : flags
    return PaddleModuleWrapper(net, w.params, T, MutableState(net, buffers, training))
end

function wrapper(made::Py)
    return PaddleModuleWrapper(net_of(made[0], shared_buffers(made[0])), receive_all(made[1]))
end

function receive_all(tensors::Py)
    arrays = Any[]
    GC.@preserve tensors for i in 1:tuple_length(PythonCall.getptr(tensors))
        push!(arrays, receive(tuple_item(PythonCall.getptr(tensors), i - 1)))
    end
    return Tuple(arrays)
end

"""
    fresh_parameters(net, seed)

Parameters as a [`PaddleFCNet`](@ref) of that seed has them, a tuple; nothing for any other net.
"""
fresh_parameters(net::PaddleNet, seed::Integer) = crossing() do
    made = object_of(net.handle).init(Py(seed))
    return PythonCall.pyis(made, NONE) ? nothing : receive_all(made)
end

PaddleNet(w::PaddleModuleWrapper) = w.net
PaddleNet(layer; jit::Union{Bool,Nothing} = nothing) = PaddleModuleWrapper(layer; jit).net

Base.summary(io::IO, w::PaddleModuleWrapper) = show(io, w)
function Base.show(io::IO, w::PaddleModuleWrapper)
    net = shown_net(w)
    print(io, "PaddleModuleWrapper(", net.label, ", ", net.nparams, " parameters")
    flags = trained(w)
    if flags !== nothing
        count = sum(length, select(w.params, map(!, flags)); init = 0)
        print(io, ", ", count, " of them frozen")
    end
    training = present(w).training
    training === nothing || print(io, training ? ", in training mode" : ", in test mode")
    return print(io, ")")
end
Base.show(io::IO, ::MIME"text/plain", w::PaddleModuleWrapper) =
    describe(io, w, shown_net(w), trained(w), map(eltype, w.params), present(w).buffers)

# Also of one whose arrays are not to be called with.
function shown_net(w::PaddleModuleWrapper)
    (; net, buffers) = present(w)
    isempty(buffers) && return in_precision(w.net, w.params)
    return holds(net.handle.buffers, buffers) ? w.net : net
end
