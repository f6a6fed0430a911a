# Loops of training that were traced before: the same loss of the same arrays has the same code.

"""
    KnownLoop

The code of a step, and all that it was made from: where one of these differs, the loss is traced again.
"""
struct KnownLoop
    world::UInt # any new definition may change the loss
    loss::Any
    model::Any # the form of what is trained
    rules::Vector{Any} # with other learning rates the code is the same
    data::Tuple # copies
    code::Code
end

const KNOWN_LOOPS = KnownLoop[]
const MOST_LOOPS = 8
const LOOPS_LOCK = ReentrantLock()

function known_loop(loss, model, leaves::Vector{TrainedLeaf}, data::Tuple)
    world, form, rules = Base.get_world_counter(), form_of(model, leaves), rules_of(leaves)
    return @lock LOOPS_LOCK begin
        filter!(known -> known.world == world, KNOWN_LOOPS)
        i = findfirst(KNOWN_LOOPS) do known
            known.loss === loss && known.model == form && known.rules == rules && all_equal(known.data, data)
        end
        i === nothing ? nothing : KNOWN_LOOPS[i].code
    end
end

function remember_loop!(loss, model, leaves::Vector{TrainedLeaf}, data::Tuple, code::Code)
    can_be_known(loss, model, leaves, data) || return nothing
    known = KnownLoop(Base.get_world_counter(), loss, form_of(model, leaves), rules_of(leaves), map(copied_data, data), code)
    @lock LOOPS_LOCK begin
        pushfirst!(KNOWN_LOOPS, known)
        length(KNOWN_LOOPS) > MOST_LOOPS && pop!(KNOWN_LOOPS)
    end
    return nothing
end

form_of(model, leaves::Vector{TrainedLeaf}) =
    Any[typeof(model), ((typeof(leaf.array), size(leaf.array), form_of_state(leaf.leaf.state)) for leaf in leaves)...]
rules_of(leaves::Vector{TrainedLeaf}) = Any[without_rates(leaf.leaf.rule) for leaf in leaves]
without_rates(rule) = with_rates(rule, map(zero, rates(rule)))

# Booleans of a state are part of the trace.
form_of_state(x::AbstractArray) = (typeof(x), size(x))
form_of_state(x::Bool) = x
form_of_state(x::Real) = typeof(x)
form_of_state(xs::Union{Tuple,NamedTuple}) = map(form_of_state, xs)
form_of_state(x) = x

all_equal(as::Tuple, bs::Tuple) = length(as) == length(bs) && all(map(is_equal_data, as, bs))
is_equal_data(a::Array, b::Array) = typeof(a) === typeof(b) && isequal(a, b)
is_equal_data(a, b) = a === b

copied_data(x::Array) = copy(x)
copied_data(x) = x

"Whether nothing but what is compared can make the trace of a loop another one."
can_be_known(loss, model, leaves::Vector{TrainedLeaf}, data::Tuple) =
    has_only(model, leaves) && all(x -> x isa Array{<:Number} || is_constant(x, Set{Method}()), data) &&
    all(leaf -> is_plain_rule(leaf.leaf.rule), leaves) && reads_arguments_alone(loss)

"Whether a model is nothing but the arrays that are trained, each once."
function has_only(model, leaves::Vector{TrainedLeaf})
    model isa Union{AbstractArray,Tuple,NamedTuple} || return false
    found = Functors.fleaves(model)
    return length(found) == length(leaves) && all(x -> any(leaf -> leaf.array === x, leaves), found)
end

# Of Optimisers, which compute from their numbers alone.
function is_plain_rule(rule)
    isbits(rule) && nameof(Base.moduleroot(parentmodule(typeof(rule)))) === :Optimisers || return false
    return all(i -> (part = getfield(rule, i); !(part isa Tuple) || all(p -> p isa Number || is_plain_rule(p), part)), 1:nfields(rule))
end

"""
    reads_arguments_alone(f) -> Bool

Whether a function computes from its arguments and constants alone, as far as its code and that of the functions that it calls can
tell: false where it reads a global variable, or one whose content may change.
"""
reads_arguments_alone(f) = reads_arguments_alone(f, Set{Method}())

function reads_arguments_alone(f, seen::Set{Method})
    f isa LossOfNet && return is_constant(f.net, seen) && reads_arguments_alone(f.loss, seen)
    return (f isa Function || isbits(f)) && has_constant_fields(f, seen) && has_closed_methods(typeof(f), seen)
end

# What a closure captures, or a function such as `f ∘ g` or `Base.Fix1(f, x)` is made of.
has_constant_fields(x, seen::Set{Method}) = all(i -> is_constant(getfield(x, i), seen), 1:nfields(x))

function has_closed_methods(F::Type, seen::Set{Method})
    found = Base._methods_by_ftype(Tuple{F,Vararg{Any}}, -1, Base.get_world_counter())
    return found isa Vector && all(match -> is_closed(match.method, seen), found)
end

const MOST_METHODS = 100

function is_closed(method::Method, seen::Set{Method})
    (method in seen || is_known_module(method.module)) && return true
    push!(seen, method)
    length(seen) <= MOST_METHODS && isdefined(method, :source) || return false
    return all(part -> is_closed(part, seen), Base.uncompressed_ast(method).code)
end

function is_closed(part::Expr, seen::Set{Method})
    part.head in (:foreigncall, :cfunction, :method) && return false
    if part.head === :call && length(part.args) == 3 && part.args[2] isa GlobalRef && part.args[3] isa QuoteNode
        owner = constant_of(part.args[2])
        owner isa Module && return is_closed(GlobalRef(owner, part.args[3].value), seen) # Module.name
    end
    return all(arg -> is_closed(arg, seen), part.args)
end
function is_closed(of::GlobalRef, seen::Set{Method})
    of.name in CLOCKS && return false
    isdefined(of.mod, of.name) && isconst(of.mod, of.name) || return false
    return is_constant(getglobal(of.mod, of.name), seen)
end
is_closed(part::Union{Core.ReturnNode,Core.GotoIfNot}, seen::Set{Method}) =
    all(name -> !isdefined(part, name) || is_closed(getfield(part, name), seen), (:val, :cond))
is_closed(part::Core.NewvarNode, ::Set{Method}) = true
is_closed(part::QuoteNode, seen::Set{Method}) = is_constant(part.value, seen)
is_closed(_::Union{Core.SSAValue,Core.SlotNumber,Core.GotoNode,LineNumberNode,Symbol,Nothing}, ::Set{Method}) = true
is_closed(part, seen::Set{Method}) = is_constant(part, seen)

# What Julia has that may give something else each time.
const CLOCKS = (
    :time, :time_ns, :rand, :randn, :ENV, :eval, :invokelatest, :task_local_storage, :current_task, :unsafe_load, :read,
    :open, :readline, :readlines, :eachline,
)

constant_of(of::GlobalRef) = isdefined(of.mod, of.name) && isconst(of.mod, of.name) ? getglobal(of.mod, of.name) : nothing

is_constant(x::PaddleNet, _) = isempty(x.handle.buffers)
is_constant(_::Union{Symbol,String}, _) = true
is_constant(f::Function, seen) =
    has_constant_fields(f, seen) && (is_known_module(parentmodule(f)) || has_closed_methods(typeof(f), seen))
# A function within another one stands there by its type.
is_constant(T::Type, seen) = is_known_module(module_of(T)) || T <: Function && has_closed_methods(T, seen)
# Of what others define any method may read anything.
is_constant(x, seen) = isbits(x) && !(x isa Ptr) && is_known_module(module_of(typeof(x))) && has_constant_fields(x, seen)

module_of(T::Type) = T isa DataType || T isa UnionAll ? parentmodule(T) : Core

# What Julia and this package have computes from what it is given.
const KNOWN_MODULES = (:Base, :Core, :LinearAlgebra, :Statistics, :SparseArrays, :PaddleChainRules, :NNlib, :SpecialFunctions)
is_known_module(m::Module) = nameof(Base.moduleroot(m)) in KNOWN_MODULES
