# ChainRules: reverse rules of nets.

using ChainRulesCore:
    ChainRulesCore, HasReverseMode, InplaceableThunk, NoTangent, ProjectTo, RuleConfig, Thunk, ZeroTangent, rrule_via_ad

ChainRulesCore.ProjectTo(::Union{PaddleNet,PaddleHandle}) = ProjectTo{NoTangent}()

# A tangent of the children that Functors sees, such as that of `destructure`, as one of the fields.
ChainRulesCore.ProjectTo(::W) where {W<:PaddleModuleWrapper} = ProjectTo{W}()
function (::ProjectTo{W})(children::NamedTuple) where {P,T,W<:PaddleModuleWrapper{P,T}}
    some = T !== nothing && haskey(children, :frozen)
    found = some ? spread_out(content(unthunk(children.params)), T) : children.params
    p̄s = some ? map(p̄ -> p̄ === nothing ? NoTangent() : p̄, found) : found
    return wrapper_tangent(W, p̄s isa Tuple ? Tangent{P}(p̄s...) : p̄s)
end

# Each projector turns a plain gradient array into a tangent of the primal it was made from.
array_tangent(::Any, ::Nothing) = NoTangent()
array_tangent(project, grad::AbstractArray) = project(grad)
array_tangent(project::ProjectTo{<:Number}, grad::AbstractArray) = project(only(grad))

params_projector(ps::AbstractVector) =
    let project = ProjectTo(ps)
        grads -> array_tangent(project, only(grads))
    end

function params_projector(ps::P) where {P<:Tuple}
    projects = each(ProjectTo, in_arrays(ps))
    return grads -> Tangent{P}(each(array_tangent, projects, grads)...)
end

# Python's order is that of `names`, which need not be that of the named tuple.
function params_projector(ps::P, names) where {P<:NamedTuple}
    projects = each(ProjectTo, length(ps) > MAX_TUPLE_LENGTH ? picked(ps, 1:length(ps)) : Tuple(ps))
    order = invperm(places_of(names, ps))
    return function (grads)
        tangents = Any[array_tangent(project, grads[i]) for (project, i) in zip(projects, order)]
        backing = NamedTuple{fieldnames(P)}(Tuple(tangents))
        return Tangent{P,typeof(backing)}(backing)
    end
end
params_projector(ps, names) = params_projector(ps)

# How a pullback gives its tangents: as thunks, each of which crosses for itself and computes
# nothing else, or all at once in one crossing, for those who force every thunk anyway.
struct Lazy end
struct Eager end

"""
    ask(how, reverse, cotangents) -> params, input, deferred

Functions that give the gradients of the parameters and that of the input `i`, and the one that
makes a tangent of a function and of one that adds the gradient to an array of the caller's.
"""
ask(::Lazy, reverse, cotangents) = (
    handed_out(() -> (gradients(reverse, cotangents, NeedsGrad(true, false))[1],)),
    handed_out(() -> gradients(reverse, cotangents, NeedsGrad(false, true))[2]),
    thunk,
)

function ask(::Eager, reverse, cotangents)
    param_grads, input_grads = gradients(reverse, cotangents)
    return Returns(param_grads), i -> input_grads[i], (f, _) -> f()
end

thunk(f, ::Nothing) = Thunk(f)
thunk(f, add!) = InplaceableThunk(add!, Thunk(f))

"""
    adder(primal, reverse, cotangents, buffers, tangent)

A function that adds a gradient to an array in place, `buffers(array)` being where all
gradients are to go; nothing where the primal is no plain array. To an array of another element
type, or one that shares memory with a primal, `tangent()` is added out of place.
"""
function adder(primal::Array, reverse, cotangents, buffers, tangent)
    return function (array)
        primals = both(reverse.params, reverse.inputs)
        in_place = array isa Array{eltype(primal)} && size(array) == size(primal) &&
                   !has_duals(reverse, cotangents) && !any(other -> overlap(array, other), primals)
        in_place || return array + tangent()
        write_gradients!(buffers(array)..., reverse, cotangents, true)
        return array
    end
end
adder(_, _, _, _, _) = nothing

"""
    rule(how, net, xs, ps, trained = nothing) -> y, back, shape

`back(ȳ)` gives the tangents of the inputs, a tuple, and that of the parameters; `shape` is the
[`outline`](@ref) of `y`.
"""
function rule(how, net::PaddleNet, xs::Tuple, ps, trained = nothing)
    y, reverse = reversible(net, xs, ps, trained)
    return y, rule_back(how, reverse, xs, ps), reverse.shape
end

"The way back of [`rule`](@ref)."
function rule_back(how, reverse::AnyReverse, xs::Tuple, ps)
    project_ps = params_projector(ps, reverse.net.names)
    project_xs = map(projector, xs)
    flat = ps isa Array ? ps : nothing
    function back(ȳ)
        Δ = unthunk(ȳ)
        Δ isa AbstractZero && return map(Returns(ZeroTangent()), project_xs), ZeroTangent()
        found = cotangents(reverse, Δ)
        params, input, deferred = ask(how, reverse, found)
        no_params, no_inputs = each(Returns(nothing), reverse.params), map(Returns(nothing), xs)
        x̄s = ntuple(length(project_xs)) do i
            has_derivative(xs[i]) || return NoTangent()
            to_input(x̄) = no_params, Base.setindex(no_inputs, x̄, i)
            tangent() = array_tangent(project_xs[i], input(i))
            return deferred(tangent, adder(xs[i], reverse, found, to_input, tangent))
        end
        tangent() = project_ps(params(1))
        add! = adder(flat, reverse, found, p̄ -> ((p̄,), no_inputs), tangent)
        return x̄s, deferred(tangent, add!)
    end
    return back
end

projector(x::AbstractArray) = ProjectTo(x)
projector(::Constant) = nothing

"""
    NetPullback

The pullback of a net's rule, which knows what it is of, so that it can be differentiated too.
Mutable, so that what is made around it holds a reference: a copy of a tuple of hundreds of arrays
takes a third of a second to compile, for each struct that it lies in.
"""
mutable struct NetPullback{F,N<:PaddleNet,X,K<:NamedTuple}
    back::F # ȳ to the tangents of x, kw and ps
    net::N
    x::X
    ps::Any
    kw::K
    shape::Union{Leaf,Passed,Tuple,NamedTuple} # of y
    trained::Union{Nothing,Tuple{Vararg{Bool}}} # which of the parameters, where not all
end

function (pullback::NetPullback)(ȳ)
    x̄, _, p̄s = tangents(pullback, ȳ)
    return NoTangent(), x̄, p̄s
end

"The tangents of the arguments, the keyword arguments and the parameters."
tangents(pullback::NetPullback, ȳ) = pullback.back(ȳ)

"""
    net_rule(how, net, x, ps, kw = (;), trained = nothing) -> y, pullback::NetPullback

One array, or a tuple of them, has no row to be put in; what compiles ahead are these.
"""
function net_rule(how, net::PaddleNet, x::AbstractArray, ps, kw::NamedTuple{()} = (;), trained = nothing)
    at_once = trained === nothing ? eager_rule(how, net, x, ps) : nothing
    at_once === nothing || return at_once
    has_sparse(x) && return rule_by_leaves(how, net, x, ps, kw, trained)
    y, back, shape = rule(how, net, (x,), ps, trained)
    function paddle_net_pullback(ȳ)
        (x̄,), p̄s = back(ȳ)
        return x̄, NoTangent(), p̄s
    end
    return y, NetPullback(paddle_net_pullback, net, x, ps, (;), shape, trained)
end

function net_rule(how, net::PaddleNet, xs::Tuple{Vararg{AbstractArray}}, ps, kw::NamedTuple{()} = (;), trained = nothing)
    at_once = trained === nothing ? eager_rule(how, net, xs, ps) : nothing
    at_once === nothing || return at_once
    has_sparse(xs) && return rule_by_leaves(how, net, xs, ps, kw, trained)
    y, back, shape = rule(how, net, xs, ps, trained)
    function paddle_net_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        return Tangent{typeof(xs)}(x̄s...), NoTangent(), p̄s
    end
    return y, NetPullback(paddle_net_pullback, net, xs, ps, (;), shape, trained)
end

net_rule(how, net::PaddleNet, x, ps, kw::NamedTuple = (;), trained = nothing) =
    rule_by_leaves(how, net, x, ps, kw, trained)

function rule_by_leaves(how, net::PaddleNet, x, ps, kw::NamedTuple, trained)
    flat, row = in_a_row(net, x, kw)
    y, back, shape = rule(how, flat, row, ps, trained)
    function paddle_net_pullback(ȳ)
        x̄s, p̄s = back(ȳ)
        rest = Iterators.Stateful(x̄s)
        return nested_tangent(x, rest), nested_tangent(kw, rest), p̄s
    end
    return y, NetPullback(paddle_net_pullback, net, x, ps, kw, shape, trained)
end

"Tangents in a row, nested as their primal."
nested_tangent(::Union{AbstractArray,Constant}, row) = popfirst!(row)
nested_tangent(xs::Tuple, row) = Tangent{typeof(xs)}(map(x -> nested_tangent(x, row), xs)...)
nested_tangent(xs::NamedTuple, row) = Tangent{typeof(xs)}(; map(x -> nested_tangent(x, row), xs)...)

"""
    WrapperPullback

The same of a wrapper's rule. `A` says whether the arguments came as one tuple, as the tangent then does.
"""
struct WrapperPullback{W<:PaddleModuleWrapper,A,N<:NetPullback}
    of::N
    WrapperPullback{W}(of::N, ::Val{A}) where {W,A,N} = new{W,A,N}(of)
end

function (pullback::WrapperPullback{W,A})(ȳ) where {W,A}
    x̄s, _, p̄s = tangents(pullback.of, ȳ)
    return wrapper_tangent(W, p̄s), by_argument(Val(A), x̄s, pullback.of.x)...
end

by_argument(::Val{true}, x̄s, _) = (x̄s,)
by_argument(::Val{false}, x̄s, xs) = parts(x̄s, xs)

Base.show(io::IO, pullback::NetPullback) = print(io, "the pullback of ", pullback.net)
Base.show(io::IO, pullback::WrapperPullback) = show(io, pullback.of)

wrapper_tangent(::Type{W}, p̄s) where {W} = Tangent{W}(; net = NoTangent(), params = p̄s)

"The tangents of a tuple's items."
parts(x̄s::Tangent, _) = ChainRulesCore.backing(x̄s)
parts(x̄s::Tuple, _) = x̄s
parts(zero::AbstractZero, xs::Tuple) = map(Returns(zero), xs)

function wrapper_rule(how, w::W, xs...) where {W<:PaddleModuleWrapper}
    given = arguments_of(w, xs)
    y, pullback = net_rule(how, w.net, given, w.params, (;), trained(w))
    return y, WrapperPullback{W}(pullback, is_apart(given, xs))
end

function ChainRulesCore.rrule(::typeof(moded), w, training)
    moded_pullback(w̄) = NoTangent(), w̄, NoTangent()
    return moded(w, training), moded_pullback
end

const Inputs = Union{AbstractArray,Tuple,NamedTuple,Packed}

ChainRulesCore.rrule(net::PaddleNet, x::Inputs, ps; kw...) =
    net_rule(Lazy(), net, x, ps, values(kw))
function ChainRulesCore.rrule(w::W, xs...; kw...) where {W<:PaddleModuleWrapper}
    given = arguments_of(w, xs)
    y, pullback = net_rule(Lazy(), w.net, given, w.params, values(kw), trained(w))
    return y, WrapperPullback{W}(pullback, is_apart(given, xs))
end

"""
    keyword_rule(how, f, xs, kw) -> y, back

`back(ȳ)` gives the tangents of `kw` and of `f`, and those of `xs`, a tuple.
"""
function keyword_rule(how, net::PaddleNet, (x, ps)::Tuple{Any,Any}, kw::NamedTuple)
    y, pullback = net_rule(how, net, x, ps, kw)
    function keyword_pullback(ȳ)
        x̄, k̄w, p̄s = tangents(pullback, ȳ)
        return k̄w, NoTangent(), (x̄, p̄s)
    end
    return y, keyword_pullback
end

function keyword_rule(how, w::W, xs::Tuple, kw::NamedTuple) where {W<:PaddleModuleWrapper}
    given = arguments_of(w, xs)
    y, pullback = net_rule(how, w.net, given, w.params, kw, trained(w))
    function keyword_pullback(ȳ)
        x̄s, k̄w, p̄s = tangents(pullback, ȳ)
        return k̄w, wrapper_tangent(W, p̄s), by_argument(is_apart(given, xs), x̄s, xs)
    end
    return y, keyword_pullback
end

# With a state, of which nothing is differentiated.
function state_rule(how, net::PaddleNet, x, ps, st::NamedTuple)
    moded, kw = used(net, st)
    y, pullback = net_rule(how, moded, x, ps, kw)
    function state_pullback(ȳs)
        Δ = unthunk(ȳs)
        ȳ = Δ isa AbstractZero ? Δ : isempty(kw) ? Δ[1] : (Δ[1], buffers_part(Δ[2]))
        return pullback(ȳ)..., NoTangent()
    end
    return with_state(y, st, kw), state_pullback
end

buffers_part(s̄t) = is_zero(s̄t) ? nothing : s̄t.buffers # Python refuses one

ChainRulesCore.rrule(net::PaddleNet, x::Inputs, ps, st::NamedTuple) =
    state_rule(Lazy(), net, x, ps, st)

# A net with other parameters frozen: the tangent is that of the parameters themselves.
function ChainRulesCore.rrule(::typeof(freeze), w::W, names) where {W<:PaddleModuleWrapper}
    function freeze_pullback(Δ)
        w̄ = unthunk(Δ)
        is_zero(w̄) && return NoTangent(), ZeroTangent(), NoTangent()
        return NoTangent(), wrapper_tangent(W, part_of(w̄, :params)), NoTangent()
    end
    return freeze(w, names), freeze_pullback
end

# What a function computes under the lock is differentiated there, and the way back takes the lock too.
function ChainRulesCore.rrule(
    config::RuleConfig{>:HasReverseMode}, within::Union{typeof(threaded),typeof(crossing)}, f,
)
    y, back = within(() -> rrule_via_ad(config, f))
    function within_pullback(ȳ)
        Δ = unthunk(ȳ)
        is_zero(Δ) && return NoTangent(), ZeroTangent()
        return NoTangent(), only(within(() -> back(Δ)))
    end
    return y, within_pullback
end

ChainRulesCore.rrule(::typeof(forward!), ::Any...; kw...) = throw(
    ArgumentError(
        "forward! writes into an array and has no derivative; call the net for a value that is differentiated: " *
        "net(x, ps) or wrapper(x)",
    ),
)

# What asks Paddle something, or how a net runs, does not depend on what is differentiated.
ChainRulesCore.@non_differentiable Base.getproperty(::PaddleModule, ::Symbol)
ChainRulesCore.@non_differentiable compile(::Any...)
ChainRulesCore.@non_differentiable explain(::Any...)

# To make a net, or to read one, does not depend on what is differentiated.
ChainRulesCore.@non_differentiable PaddleFCNet(::Any...)
ChainRulesCore.@non_differentiable PaddleModuleWrapper(::Any)
ChainRulesCore.@non_differentiable PaddleNet(::Any)
ChainRulesCore.@non_differentiable initial_state(::Any)
ChainRulesCore.@non_differentiable load_params(::Any, ::Any)
ChainRulesCore.@non_differentiable save_params(::Any...)

# Which derivative is meant, and at which points, does not depend on values.
ChainRulesCore.@non_differentiable multi_index(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable stencil(::Any)
ChainRulesCore.@non_differentiable first_steps(::Any, ::Any)
ChainRulesCore.@non_differentiable check_names(::Any, ::Any)
ChainRulesCore.@non_differentiable applied(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable pushing_array(::Any, ::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable check_direction(::Any, ::Any)
ChainRulesCore.@non_differentiable derived(::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable used(::Any, ::Any)
ChainRulesCore.@non_differentiable in_precision(::Any, ::Any)
ChainRulesCore.@non_differentiable present_net(::Any)
ChainRulesCore.@non_differentiable set_mode!(::Any, ::Any)
ChainRulesCore.@non_differentiable checked_index(::Any, ::Any)
ChainRulesCore.@non_differentiable checked_indices(::Any, ::Any)
ChainRulesCore.@non_differentiable checked_wanted(::Any, ::Any, ::Any)
