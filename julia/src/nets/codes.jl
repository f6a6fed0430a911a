# Nets as machine code: which calls go without Python, and how their code comes home.

"""
    OfValue

Code of a net's value at inputs of some sizes, and how its outputs are nested: numbers in their
places, or 1 for one alone.
"""
struct OfValue
    code::Code
    structure::Any
end

"""
    OfWay

The same of the value and what the way back needs, and code of ways back, made when first needed.
"""
mutable struct OfWay
    const code::Code # of the outputs, and then of what is kept
    const structure::Any
    const outputs::Int
    const seeds::Vector{Int} # outputs that have cotangents
    const made::Py
    @atomic backs::Vector{Any} # of `BackCode`, that of all gradients first; never changed but exchanged
end

"""
    BackCode

Code of the gradients that a key asks for: of parameters (one flag, or one of each), of the inputs,
and which cotangents are more than zeros. `places` are those that there are, parameters first.
"""
struct BackCode
    key::Tuple{Union{Bool,Vector{Bool}},Bool,Vector{Bool}}
    code::Code
    places::Vector{Int}
end

"""
    Codes

The code of one net, found by any thread without a lock: vectors are exchanged, not changed.
"""
mutable struct Codes
    @atomic values::Vector{OfValue}
    @atomic ways::Vector{OfWay}
    @atomic why::String # there is none for the last call that asked
    const process::UInt
    missed::Dict{Symbol,Tuple{Int,Int}} # calls by Python, and when to ask next; within crossings
end

Codes() = Codes(OfValue[], OfWay[], "", PROCESS[], Dict{Symbol,Tuple{Int,Int}}())

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
    PATIENCE[] = PythonCall.pyconvert(Int, BRIDGE.patience())
    return nothing
end

"""
    value_code(net, params, inputs) -> found::OfValue, n, or nothing, 0

The code of calls like this one, and the number of samples that it is called with.
"""
value_code(net::PaddleNet, params, inputs) = found_code((@atomic codes_of(net).values), net, params, inputs)
way_code(net::PaddleNet, params, inputs) = found_code((@atomic codes_of(net).ways), net, params, inputs)

function found_code(all::Vector{C}, net::PaddleNet, params, inputs) where {C}
    isempty(all) && return nothing, 0
    on_host(params) || return nothing, 0
    for found in all
        n = samples_in(found.code, length(net.names), inputs)
        n < 0 || return found, n
    end
    return nothing, 0
end

on_host(xs::Tuple{Vararg{Array}}) = true
on_host(xs::Tuple) = false
on_host(xs::Vector{Any}) = all(x -> x isa Array, xs)

"""
    input_addresses(net, params, inputs, flat) -> Vector{Address}

Of the parameters, which lie one after another in a flat vector, and of the inputs.
"""
function input_addresses(net::PaddleNet, params::Arrays, inputs::Tuple, flat::Bool)
    found = Vector{Address}(undef, length(net.names) + length(inputs))
    k = param_addresses!(found, net, params, flat)
    foreach(x -> found[k+=1] = address(x), inputs)
    return found
end

function param_addresses!(found, net::PaddleNet, params::Arrays, flat::Bool)
    if flat
        next = address(only(params))
        for k in eachindex(net.names)
            found[k] = next
            next += prod(net.sizes[k]) * sizeof(net.eltypes[k])
        end
    else
        k = 0
        foreach(p -> found[k+=1] = address(p), params)
    end
    return length(net.names)
end

"""
    note_call(net, kind, params, inputs, flat)

Count a call that went by Python, and now and then ask whether there is code for the next ones.
Within a crossing.
"""
function note_call(net::PaddleNet, kind::Symbol, params::Arrays, inputs::Tuple, flat::Bool)
    patience = PATIENCE[]
    patience < 0 && return nothing
    codes = codes_of(net)
    calls, ask_at = get(codes.missed, kind, (0, patience + 4))
    calls += 1
    codes.missed[kind] = (calls, ask_at)
    calls < ask_at && return nothing
    codes.missed[kind] = (calls, ask_for_code(net, kind, params, inputs, flat) ? calls + patience + 4 : 2calls)
    return nothing
end

const MOST_CODE = 64

"""
    ask_for_code(net, kind, params, inputs, flat) -> Bool

Whether there is code for calls like this one from now on. Within a crossing.
"""
function ask_for_code(net::PaddleNet, kind::Symbol, params::Arrays, inputs::Tuple, flat::Bool)
    codes = codes_of(net)
    if !(on_host(params) && inputs isa Tuple{Vararg{Array}})
        @atomic codes.why = "its arrays are not all on the host"
        return false
    end
    arrays = (params..., inputs...)
    found = PythonCall.pynew(call_with(object_of(net.handle).code, (Py(string(kind)), Py(flat)), arrays))
    @atomic codes.why = text(found.why)
    isempty(text(found.why)) || return false
    structure = nest(found.structure, Any[1:MOST_OUTPUTS...])
    if kind === :value
        made = OfValue(Code(text(found.text), found.owner), structure)
        @atomic codes.values = [made; first((@atomic codes.values), MOST_CODE - 1)]
    else
        owner = found.owner
        outputs, seeds... = parse.(Int, split(text(owner.facts)))
        made = OfWay(Code(text(found.text), owner), structure, outputs, seeds, owner, [])
        back_code(made, (true, true, fill(true, length(seeds))))
        @atomic codes.ways = [made; first((@atomic codes.ways), MOST_CODE - 1)]
    end
    return true
end

const MOST_OUTPUTS = 1024

"""
    back_code(way, key) -> BackCode

The code of the gradients that are asked for, made where there is none yet; where none can be made,
or not on this thread, that of all gradients.
"""
function back_code(way::OfWay, key)
    backs = @atomic way.backs
    for found in backs
        found.key == key && return found::BackCode
    end
    isempty(backs) || holds_lock() || OPEN[] > 0 || return first(backs)::BackCode
    return crossing() do
        params, inputs, given = key
        flags = params isa Bool ? Py(params) : pytuple(params)
        backs = @atomic way.backs
        made = way.made.back(flags, Py(inputs), pytuple(given))
        found = if PythonCall.pyis(made, NONE)
            all = first(backs)
            BackCode(key, all.code, all.places)
        else
            BackCode(key, Code(text(made[1]), made[2]), parse.(Int, split(text(made[0]))))
        end
        @atomic way.backs = [backs; found]
        return found
    end
end

"""
    value_by_code(net, found, n, params, inputs, flat)

What [`forward`](@ref) gives, by code.
"""
function value_by_code(net::PaddleNet, found::OfValue, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    given = input_addresses(net, params, inputs, flat)
    if is_alone(net, found, inputs)
        y = new_array(typeof(only(inputs)), found.code.outputs[1].layout.size, n)
        GC.@preserve params inputs y run_code(found.code, n, given, Address[address(y)])
        return y
    end
    ys = Any[new_array(output.layout, n) for output in found.code.outputs]
    GC.@preserve params inputs ys run_code(found.code, n, given, Address[address(y) for y in ys])
    return nested_outputs(found.structure, ys)
end

# A fully connected net gives the kind of array that it takes.
is_alone(net::PaddleNet, found, inputs) =
    net.features > 0 && found.structure === 1 && found.code.outputs[1].layout.type === typeof(only(inputs))

nested_outputs(i::Int, ys) = ys[i]
nested_outputs(parts::Union{Tuple,NamedTuple}, ys) = map(part -> nested_outputs(part, ys), parts)

"""
    Kept(way, n, block)

What the way back of a call by code needs: what the way there has left, one after another in a block.
"""
struct Kept
    way::OfWay
    n::Int
    block::Vector{UInt8}
end

aligned(bytes::Int) = (bytes + WORK_ALIGNED - 1) & -WORK_ALIGNED

"""
    kept_addresses!(f, code, first, n, block, given)

`f(i, address)` for each output of the way there after the `first`: within the block where the
code writes it, else where it is.
"""
function kept_addresses(f::F, code::Code, first::Int, n::Int, start::Address, given::Vector{Address}) where {F}
    next = start
    for i in first+1:length(code.outputs)
        (; place, layout) = code.outputs[i]
        if place.kind === RESULT && code.writers[place.at] == i
            f(i, next)
            next += aligned(sizeof(layout, n))
        else
            f(i, place.kind === INPUT ? given[place.at] : place.kind === CONSTANT ? Address(place.at) : Address(0))
        end
    end
    return Int(next - start)
end

"""
    there_by_code(net, way, n, params, inputs, flat) -> y, kept

The value by code, and what the way back needs. What is kept is not shared with the value, which
its caller may change.
"""
function there_by_code(net::PaddleNet, way::OfWay, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    code = way.code
    given = input_addresses(net, params, inputs, flat)
    bytes = kept_addresses(Returns(nothing), code, way.outputs, n, Address(0), given)
    block = Vector{UInt8}(undef, bytes)
    outputs = fill(Address(0), length(code.outputs))
    GC.@preserve params inputs block begin
        kept_addresses(code, way.outputs, n, Address(pointer(block)), given) do i, place
            written = code.outputs[i].place.kind === RESULT
            written && place != C_NULL && (outputs[i] = place)
        end
        if is_alone(net, way, inputs)
            y = new_array(typeof(only(inputs)), code.outputs[1].layout.size, n)
            outputs[1] = address(y)
            GC.@preserve y run_code(code, n, given, outputs)
            return y, Kept(way, n, block)
        end
        ys = Any[new_array(code.outputs[i].layout, n) for i in 1:way.outputs]
        for i in 1:way.outputs
            outputs[i] = address(ys[i])
        end
        GC.@preserve ys run_code(code, n, given, outputs)
        return nested_outputs(way.structure, ys), Kept(way, n, block)
    end
end

"""
    back_by_code(kept, key, given, cotangents, target)

Gradients by code, written to where `target(place)` says, null where one is not wanted. `given` are
the addresses of what the way there was given, cotangents arrays or nothing.
"""
function back_by_code(target::F, kept::Kept, back::BackCode, given::Vector{Address}, cotangents::Vector) where {F}
    (; way, n, block) = kept
    code = back.code
    inputs, others = Address[], Any[]
    GC.@preserve block cotangents others begin
        shared = fill(Address(0), length(way.code.outputs))
        kept_addresses(way.code, way.outputs, n, Address(pointer(block)), given) do i, place
            if place == C_NULL # written where another output is
                place = shared[way.code.writers[way.code.outputs[i].place.at]]
            end
            shared[i] = place
            push!(inputs, place)
        end
        for seed in way.seeds
            ȳ = cotangents[seed]
            if ȳ === nothing
                zeros = fill(0x00, sizeof(code.inputs[length(inputs)+1], n))
                push!(others, zeros)
                push!(inputs, Address(pointer(zeros)))
            else
                push!(inputs, address(ȳ))
            end
        end
        outputs = map(enumerate(back.places)) do (i, place)
            found = target(place)
            (; place, layout) = code.outputs[i]
            if found == C_NULL && place.kind === RESULT && code.writers[place.at] == i
                scratch = Vector{UInt8}(undef, sizeof(layout, n))
                push!(others, scratch)
                found = Address(pointer(scratch))
            end
            found
        end
        run_code(code, n, inputs, outputs)
    end
    return nothing
end
