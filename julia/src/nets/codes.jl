# Nets as machine code: which calls go without Python, and how their code comes home.

"""
    ForwardCode

Code of a net's value at inputs of some sizes, and how its outputs are nested: numbers in their
places, or 1 for one alone.
"""
mutable struct ForwardCode # so that a reference is found
    code::Code
    structure::Any
    constants::Tuple # arguments that are no arrays, which it was made for
end

"""
    PullbackCode

Code of the gradients that a key asks for: of parameters (one flag, or one of each), of the inputs,
and which cotangents are more than zeros. `places` are those that there are, parameters first;
`wanted` are flags of all that tell which of them were asked for.
"""
mutable struct PullbackCode # so that a reference is found
    key::Tuple{Union{Bool,Vector{Bool}},Bool,Vector{Bool}}
    code::Code
    places::Vector{Int}
    wanted::Vector{Bool}
    is_whole::Bool # whether all that was asked for is there
end

function PullbackCode(key, code::Code, places::Vector{Int}, params::Int, inputs::Int)
    flags = key[1] isa Bool ? fill(key[1], params) : key[1]
    asked = [flags; fill(key[2], inputs)]
    wanted = [asked[i] && i in places for i in 1:params+inputs]
    return PullbackCode(key, code, places, wanted, wanted == asked)
end

"""
    VJPCode

The same of the value and what the way back needs, and code of ways back, made when first needed.
"""
mutable struct VJPCode
    code::Code # of the outputs, and then of what is kept
    structure::Any
    constants::Tuple
    outputs::Int
    seeds::Vector{Int} # outputs that have cotangents
    made::Py
    @atomic backs::Vector{PullbackCode} # that of all gradients first; exchanged, not changed
end

"""
    LossCode

Code of a loss and its gradients with respect to parameters, from parameters, inputs and data.
"""
mutable struct LossCode # so that a reference is found
    loss::Any
    world::UInt # when it was traced: another definition may be another loss
    flat::Bool
    inputs::Int
    kinds::Vector{Any} # type and size of each array
    code::Union{Code,Nothing} # nothing where it goes through Python
    has::Vector{Bool} # whether the loss depends on each of the parameters
    made::Py
    failure::Any # the last error of the loss, of the type Failure
end

"""
    Missed

Calls of a kind that went by Python: how many, when to ask for code next, and why there is none.
"""
mutable struct Missed
    calls::Int
    ask_at::Int
    why::String
end

"""
    Codes

The code of one net, found by any thread without a lock: vectors are exchanged, not changed.
"""
mutable struct Codes
    @atomic values::Vector{ForwardCode}
    @atomic ways::Vector{VJPCode}
    @atomic losses::Vector{LossCode}
    @atomic missed::Dict{Any,Missed} # by kinds of calls; exchanged, not changed
    process::UInt
end

Codes() = Codes(ForwardCode[], VJPCode[], LossCode[], Dict{Any,Missed}(), PROCESS[])

"The code of a net, of this process: it doesn't outlive the one that it was made in."
function codes_of(net::PaddleNet)
    found = net.handle.codes
    found isa Codes && found.process == PROCESS[] && return found
    made = Codes()
    net.handle.codes = made
    return made
end

const PROCESS = Ref(UInt(0)) # a number of this process, zero before Paddle was started
const PATIENCE = Ref(-1) # calls before code is asked for; negative for never

function start_codes()
    PROCESS[] = hash((getpid(), time_ns())) | 1
    PATIENCE[] = whole_number(BRIDGE.patience())
    find_pending()
    return nothing
end

"""
    value_code(net, params, inputs) -> found::ForwardCode, n, or nothing, 0

The code of calls like this one, and the number of samples that it is called with.
"""
value_code(net::PaddleNet, params, inputs) = found_code((@atomic codes_of(net).values), net, params, inputs)
way_code(net::PaddleNet, params, inputs) = found_code((@atomic codes_of(net).ways), net, params, inputs)

function found_code(all::Vector, net::PaddleNet, params, inputs)
    (isempty(all) || !on_host(params)) && return nothing, 0
    for found in all
        n = samples_in(found.code, length(net.names), inputs)
        n >= 0 && has_constants(inputs, found.constants) && return found, n
    end
    return nothing, 0
end

"""
    fitting_code(all, net, ps, xs) -> found, n, or nothing, 0

Code that these plain arrays fit as they are, in number, types and sizes, so that nothing else need be checked before it is
called. Whatever else there may be is not looked for.
"""
fitting_code(::Vector, ::PaddleNet, _, _) = nothing, 0
function fitting_code(all::Vector, net::PaddleNet, ps::Vector{T}, xs::Tuple{Vararg{Array}}) where {T}
    T === net.eltype && length(ps) == net.nparams || return nothing, 0
    for found in all
        n = samples_in(found.code, length(net.names), xs)
        n >= 0 && return found, n
    end
    return nothing, 0
end
function fitting_code(all::Vector, net::PaddleNet, ps::Tuple{Vararg{Array}}, xs::Tuple{Vararg{Array}})
    length(ps) <= MAX_TUPLE_LENGTH && length(ps) == length(net.names) || return nothing, 0
    for found in all
        n = samples_in(found.code, length(ps), xs)
        n >= 0 && length(ps) <= length(found.code.inputs) && fits(found.code, 1, n, ps...) && return found, n
    end
    return nothing, 0
end
fitting_code(all::Vector, net::PaddleNet, ps::NamedTuple, xs::Tuple{Vararg{Array}}) =
    length(ps) == length(net.names) && all_same(keys(ps), net.names) ? fitting_code(all, net, Tuple(ps), xs) : (nothing, 0)

all_same(names::Tuple, others::Vector{Symbol}) = all(i -> names[i] === others[i], eachindex(names))

"Parameters as the arrays that code reads."
params_as_given(ps::Vector) = (ps,)
params_as_given(ps::Tuple) = ps
params_as_given(ps::NamedTuple) = Tuple(ps)

"Whether code gives one output, an array of this type."
gives_alone(of, A::Type, count::Int) = of.structure === 1 && count == 1 && of.code.outputs[1].layout.type === A

constants_among(inputs::Tuple) = map(x -> x isa AbstractArray ? nothing : x, inputs)

has_constants(::Tuple{Vararg{Array}}, ::Tuple) = true
has_constants(inputs::Tuple, constants::Tuple) = constants_among(inputs) === constants

on_host(xs::Tuple{Vararg{Array}}) = true
on_host(xs::Tuple) = false
on_host(xs::Vector{Any}) = all(x -> x isa Array, xs)

"""
    missed_calls(net, kind, inputs) -> Missed

Those that are alike but for the size along the last dimension, of the value or of the way there and back.
"""
function missed_calls(net::PaddleNet, kind::Symbol, inputs::Tuple)
    key = (kind, map(kind_among_calls, inputs))
    codes = codes_of(net)
    known = @atomic codes.missed
    return get(known, key) do
        made = Missed(0, PATIENCE[] + 4, "")
        before = length(known) < MOST_CODE ? known : Dict{Any,Missed}()
        @atomic codes.missed = merge(before, Dict{Any,Missed}(key => made))
        made
    end
end

kind_among_calls(x::AbstractArray) = (typeof(x), Base.front((0, size(x)...)))
kind_among_calls(x::Union{Nothing,Bool,Int,Symbol}) = x
kind_among_calls(x) = typeof(x)

"""
    note_call(net, kind, params, inputs, flat)

Count a call that went by Python, and now and then ask whether there is code for the next ones.
Within a crossing.
"""
function note_call(net::PaddleNet, kind::Symbol, params::Arrays, inputs::Tuple, flat::Bool)
    PATIENCE[] < 0 && return nothing
    missed = missed_calls(net, kind, inputs)
    missed.calls += 1
    missed.calls < missed.ask_at && return nothing
    found = ask_for_code(net, kind, params, inputs, flat)
    # By an odd number more, so that calls by turns are asked for by turns.
    missed.ask_at = missed.calls + (found ? PATIENCE[] + 4 : missed.calls ÷ 2 | 1)
    return nothing
end

const MOST_CODE = 64

"""
    ask_for_code(net, kind, params, inputs, flat) -> Bool

Whether there is code for calls like this one from now on. Within a crossing.
"""
function ask_for_code(net::PaddleNet, kind::Symbol, params::Arrays, inputs::Tuple, flat::Bool)
    codes, missed = codes_of(net), missed_calls(net, kind, inputs)
    if !(on_host(params) && inputs isa Tuple{Vararg{Union{Array,Nothing,Bool,Int,Symbol}}})
        missed.why = "not all of its arguments are arrays on the host, whole numbers or symbols"
        return false
    end
    constants, arrays = constants_among(inputs), (params..., inputs...)
    found = PythonCall.pynew(call_with(object_of(net.handle).code, (Py(string(kind)), Py(flat)), arrays))
    missed.why = text(found.why)
    isempty(missed.why) || return false
    structure = nest(found.structure, Any[1:MOST_OUTPUTS...])
    if kind === :value
        made = ForwardCode(Code(text(found.text), found.owner), structure, constants)
        @atomic codes.values = [made; first((@atomic codes.values), MOST_CODE - 1)]
    else
        owner = found.owner
        outputs, seeds... = parse.(Int, split(text(owner.facts)))
        made = VJPCode(Code(text(found.text), owner), structure, constants, outputs, seeds, owner, PullbackCode[])
        back_code(net, made, (true, true, fill(true, length(seeds))))
        @atomic codes.ways = [made; first((@atomic codes.ways), MOST_CODE - 1)]
    end
    return true
end

const MOST_OUTPUTS = 1024

"""
    back_code(net, way, key) -> PullbackCode

The code of the gradients that are asked for, made where there is none yet; where none can be made,
or not on this thread, that of all gradients.
"""
function back_code(net::PaddleNet, way::VJPCode, key)
    backs = @atomic way.backs
    for found in backs
        found.key == key && return found
    end
    count = length(net.names)
    made(code, places) = PullbackCode(key, code, places, count, length(way.constants))
    if !(isempty(backs) || holds_lock() || OPEN[] > 0)
        all = first(backs)
        return made(all.code, all.places)
    end
    return crossing() do
        params, inputs, given = key
        flags = params isa Bool ? Py(params) : pytuple(params)
        answer = way.made.back(flags, Py(inputs), pytuple(given))
        before = @atomic way.backs
        found = if PythonCall.pyis(answer, NONE)
            made(first(before).code, first(before).places)
        else
            made(Code(text(answer[1]), answer[2]), parse.(Int, split(text(answer[0]))))
        end
        @atomic way.backs = [before; found]
        return found
    end
end
