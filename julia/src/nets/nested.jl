# Arguments of any nesting, in a row for the crossing, and results that are no arrays.

"""
What may stand among the arguments of a net besides arrays: it is passed on, and has no
gradient. Symbols arrive as strings; any other Python object is passed as a `Py`.
"""
const Constant = Union{Nothing,Integer,AbstractString,Symbol,Py}

"Arguments that are in a row already."
const Plain = Union{AbstractArray,Tuple{Vararg{AbstractArray}}}

"""
    arguments(x, kw) -> args::Tuple, kwargs::NamedTuple

What Python is called with: an array is the one argument, a tuple holds several, a named tuple
several by keyword, to which `kw` adds.
"""
arguments(x::AbstractArray, kw::NamedTuple) = (x,), kw
arguments(x::Tuple, kw::NamedTuple) = x, kw
function arguments(x::NamedTuple, kw::NamedTuple)
    twice = intersect(keys(x), keys(kw))
    isempty(twice) || throw(ArgumentError("$(listed(twice)) given twice, in x and as keyword arguments; leave one out"))
    return (), merge(x, kw)
end
arguments(x, ::NamedTuple) = throw(
    ArgumentError(
        "a net takes an array, a tuple of arguments or a named tuple of keyword arguments, got " *
        "$(kind_of(x)); wrap a number as [x]",
    ),
)

"""
    leaves(x) -> Tuple

Arrays and constants of nested tuples and named tuples, in a row.
"""
leaves(x::Union{AbstractArray,Constant}) = (x,)
leaves(::Tuple{}) = ()
leaves(xs::Tuple) = (leaves(first(xs))..., leaves(Base.tail(xs))...)
leaves(xs::NamedTuple) = leaves(Tuple(xs))
leaves(x::Number) = throw(
    ArgumentError(
        "the number $(repr(x)) is no array: fill($(repr(x))) is one, of no dimensions, and has a " *
        "gradient; Py($(repr(x))) is a constant",
    ),
)
leaves(x) = throw(
    ArgumentError(
        "arguments are arrays, whole numbers, strings, nothing, Python objects, and tuples and " *
        "named tuples of these; got $(kind_of(x))",
    ),
)

"Nested as `x`, with `nothing` for every leaf: equal for calls that only differ in values."
layout(::Union{AbstractArray,Constant}) = nothing
layout(xs::Union{Tuple,NamedTuple}) = map(layout, xs)

"A call as a reader writes it, with _ for every leaf."
function call_text(args::Tuple, kwargs::NamedTuple)
    named = join(("$name = $(slot(part))" for (name, part) in pairs(kwargs)), ", ")
    return "(" * join(map(slot, args), ", ") * (isempty(named) ? "" : "; " * named) * ")"
end

slot(::Nothing) = "_"
slot(parts::Tuple) = call_text(parts, (;))
slot(parts::NamedTuple) = call_text((), parts)

"The same in Python, with the position of every leaf."
positions(::Nothing, next) = Py(popfirst!(next))
positions(parts::Tuple, next) = pytuple([positions(part, next) for part in parts])
positions(parts::NamedTuple, next) = PythonCall.pydict(
    [string(name) => positions(part, next) for (name, part) in pairs(parts)],
)

"""
    called(net, args, kwargs)

A net with the same parameters that takes the leaves of such arguments in a row, in one
crossing like any other.
"""
function called(net::PaddleNet, args::Tuple, kwargs::NamedTuple)
    parts = (layout(args), layout(kwargs))
    net.features > 0 && !(args isa Tuple{Vararg{AbstractArray}}) && throw(
        ArgumentError(
            "a fully connected net takes one array, got $(listed(map(kind_of, args))); give " *
            "$(input_of(net)), of size ($(net.features), n)",
        ),
    )
    has_sparse(args) && check_features(net, args)
    return derived(net, parts) do handle
        next = Iterators.Stateful(Iterators.countfrom(0))
        return handle.called(positions(parts[1], next), positions(parts[2], next))
    end
end

"""
    in_a_row(net, x, kw) -> net, leaves

What to call for such arguments: a net that takes their leaves in a row, and the leaves, those of
`x` first.
"""
in_a_row(net::PaddleNet, x::Plain, kw::NamedTuple{()}) =
    has_sparse(x) ? by_leaves(net, x, kw) : (net, beside_buffers(net, inputs(x), kw))
in_a_row(net::PaddleNet, x, kw::NamedTuple) = by_leaves(net, x, kw)

function by_leaves(net::PaddleNet, x, kw::NamedTuple)
    args, kwargs = arguments(x, kw)
    row = beside_buffers(net, (leaves(args)..., leaves(kwargs)...), kw)
    return called(net, args, kwargs), row
end

"""
    beside_buffers(net, row, kw)

The same row, which must be on the device of the buffers that the call reads.
"""
beside_buffers(::PaddleNet, row::Tuple{Vararg{Array}}, ::NamedTuple) = row
function beside_buffers(net::PaddleNet, row::Tuple, kw::NamedTuple)
    haskey(kw, :buffers) && return row
    theirs = unique(map(device, values(net.handle.buffers)))
    ours = unique(device(x) for x in row if x isa AbstractArray)
    isempty(theirs) || isempty(ours) || theirs == ours || throw(
        ArgumentError(
            "the net's buffers are on $(join(theirs, " and ")), what it is called with on $(join(ours, " and ")); move " *
            "them with adapt(to, wrapper), or give them by a state: net(x, ps, st)",
        ),
    )
    return row
end

"""
    PlainParams{T}

Parameters as plain arrays of the element type `T`.
"""
const PlainParams{T} = Union{
    Vector{T},Tuple{Array{T},Vararg{Array{T}}},NamedTuple{<:Any,<:Tuple{Array{T},Vararg{Array{T}}}},
}
const PlainFloat = Union{values(FLOATS)...}

function evaluate(net::PaddleNet, x, ps, kw::NamedTuple)
    flat, row = in_a_row(net, x, kw)
    return forward(flat, row, ps)
end
evaluate(
    net::PaddleNet{true}, x::Union{X,Tuple{X}}, ps::PlainParams{T}, ::NamedTuple{()},
) where {T<:PlainFloat,X<:Array{T}} = forward(net, inputs(x), ps)::X

"""
    nested_as(f, x, row)

Nested as `x`, `f(leaf, item)` for each leaf with the next item of the row.
"""
nested_as(f, x::Union{AbstractArray,Constant}, row) = f(x, popfirst!(row))
nested_as(f, xs::Union{Tuple,NamedTuple}, row) = map(x -> nested_as(f, x, row), xs)

# Constants are what they are until they cross: Python's objects are made in a crossing alone.
dense(x::Constant) = x

function lend(x::Py)
    keep(PythonCall.getptr(x))
    return PythonCall.getptr(x)
end
lend(::Nothing) = lend(NONE)
lend(x::Bool) = lend(x ? TRUE : FALSE)
lend(x::Symbol) = lend(string(x))
function lend(x::Union{Integer,AbstractString})
    made = Py(x)
    object = lend(made)
    PythonCall.pydel!(made)
    return object
end

in_turn(f::F, arrays::Tuple{Constant,Vararg}) where {F} = in_turn(f, Base.tail(arrays))

const CONVERTED = (:bool => Bool, :int => Int, :float => Float64, :str => String)

"""
    receive_any(object::PyPtr)

A tensor as an array; `nothing`, numbers and strings of Python as Julia's; anything else as
a `Py`.
"""
function receive_any(object::PyPtr)
    is_instance(object, TENSOR) && return receive(object)
    keep(object)
    found = PythonCall.pynew(object)
    type = PythonCall.pytype(found)
    for (name, T) in CONVERTED
        PythonCall.pyis(type, getproperty(PythonCall.pybuiltins, name)) &&
            return PythonCall.pyconvert(T, found)
    end
    return PythonCall.pyis(found, NONE) ? nothing : found
end

"""
    nest(structure, leaves)

An output as Julia has it: tuples for tuples and lists, named tuples for dicts and named tuples,
`leaves` where the structure has None.
"""
function nest(structure::Py, leaves)
    builtins = PythonCall.pybuiltins
    if PythonCall.pyis(structure, builtins.None)
        return popfirst!(leaves)
    elseif PythonCall.pyisinstance(structure, builtins.dict)
        # In the order in which optree takes them.
        is_ordered = PythonCall.pyisinstance(structure, pyimport("collections").OrderedDict)
        found = is_ordered ? builtins.list(structure) : builtins.sorted(structure)
        names = Tuple(Symbol(string(name)) for name in found)
        return NamedTuple{names}(Tuple(nest(structure[name], leaves) for name in found))
    elseif PythonCall.pyisinstance(structure, BRIDGE.Packed)
        return (; values = nest(structure.values, leaves), offsets = nest(structure.offsets, leaves))
    elseif PythonCall.pyhasattr(structure, "_fields")
        names = Tuple(Symbol(string(name)) for name in structure._fields)
        return NamedTuple{names}(Tuple(nest(part, leaves) for part in structure))
    end
    return Tuple(nest(part, leaves) for part in structure)
end
