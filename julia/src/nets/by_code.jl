# Calls by machine code: where everything lies, and what the way back needs.

"""
    put_addresses!(bases, k, xs) -> next

The addresses of arrays from the base `k` on, null for what is no array.
"""
put_addresses!(::Vector{Address}, k::Int, ::Tuple{}) = k
function put_addresses!(bases::Vector{Address}, k::Int, xs::Tuple)
    bases[k] = address_or_null(xs[1])
    return put_addresses!(bases, k + 1, Base.tail(xs)) # unrolled over the tuple, whose arrays differ in type
end
function put_addresses!(bases::Vector{Address}, k::Int, xs::Vector)
    for x in xs
        bases[k] = address_or_null(x)::Address
        k += 1
    end
    return k
end

address_or_null(x::Array) = address(x)
address_or_null(_) = C_NULL

"Where the parameters are, which lie one after another in a flat vector, from the base `first` on."
function param_words(net::PaddleNet, first::Int, flat::Bool)
    flat || return [BaseOffset(first + k - 1, 0) for k in eachindex(net.names)]
    next = 0
    return map(net.sizes) do size
        word = BaseOffset(first, next)
        next += prod(size) * sizeof(net.eltype)
        word
    end
end

base_count(net::PaddleNet, flat::Bool) = flat ? 1 : length(net.names)

"Where parameters and inputs are, and the number of bases up to them."
function given_words(net::PaddleNet, flat::Bool, inputs::Int, before::Int = BEFORE_ARRAYS)
    count = before + base_count(net, flat)
    return [param_words(net, before + 1, flat); [BaseOffset(count + i, 0) for i in 1:inputs]], count + inputs
end

"""
    with_outputs(write!, net, of, inputs, n, count) -> y

The first `count` outputs, nested as they are, once `write!(ys)` has written them.
"""
@inline function with_outputs(write!::F, net::PaddleNet, of, inputs::Tuple, n::Int, count::Int) where {F}
    outputs = of.code.outputs
    if is_alone(net, of, inputs)
        y = new_array(typeof(only(inputs)), outputs[1].layout.size, n)
        write!((y,))
        return y
    end
    ys = Any[new_array(outputs[i].layout, n) for i in 1:count]
    write!(ys)
    return nested_outputs(of.structure, ys)
end

"""
    value_by_code(net, found, n, params, inputs, flat)

What [`forward`](@ref) gives, by code.
"""
function value_by_code(net::PaddleNet, found::ForwardCode, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    code = found.code
    return with_outputs(net, found, inputs, n, length(code.outputs)) do ys
        write_value!(ys, net, code, n, params, inputs, flat)
    end
end

"""
    write_value!(ys, net, code, n, params, inputs, flat)

Run the code of a value into these arrays.
"""
function write_value!(ys::Arrays, net::PaddleNet, code::Code, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    call = known_call(() -> value_call(net, code, n, flat, length(inputs)), code, n, flat)
    write_outputs!(C_NULL, ys, code, call, params, inputs)
    return nothing
end

@inline function write_outputs!(block::Address, ys::Arrays, code::Code, call::Call, params::Arrays, inputs::Tuple)
    GC.@preserve ys params inputs run_code(code, call) do bases
        bases[OF_BLOCK] = block
        k = put_addresses!(bases, BEFORE_ARRAYS + 1, params)
        put_addresses!(bases, put_addresses!(bases, k, inputs), ys)
    end
end

function value_call(net::PaddleNet, code::Code, n::Int, flat::Bool, inputs::Int)
    given, count = given_words(net, flat, inputs)
    outputs = [BaseOffset(count + i, 0) for i in eachindex(code.outputs)]
    return Call(code, n, flat, given, outputs, zeros(Int, count + length(outputs)), 0)
end

# A fully connected net gives the kind of array that it takes.
is_alone(net::PaddleNet, found, inputs) =
    net.features > 0 && found.structure === 1 && found.code.outputs[1].layout.type === typeof(only(inputs))

nested_outputs(i::Int, ys) = ys[i]
nested_outputs(parts::Union{Tuple,NamedTuple}, ys) = map(part -> nested_outputs(part, ys), parts)

"""
    Residuals(way, n, block)

What the way back of a call by code needs: what the way there has left, one after another in a block.
"""
struct Residuals
    way::VJPCode
    n::Int
    block::Vector{UInt8}
end

aligned(bytes::Int) = (bytes + WORK_ALIGNED - 1) & -WORK_ALIGNED

"""
    kept_words(way, n) -> words, bytes

Where in the block each thing is that the way there leaves, and how many bytes the block has.
"""
function kept_words(way::VJPCode, n::Int)
    (; code, outputs) = way
    next, words = 0, BaseOffset[]
    for i in outputs+1:length(code.outputs)
        if is_written(code, i)
            push!(words, BaseOffset(OF_BLOCK, next))
            next += aligned(sizeof(code.outputs[i].layout, n))
        else
            push!(words, NOWHERE)
        end
    end
    return words, next
end

"Whether the code writes into the array of an output, and not into that of another that equals it."
function is_written(code::Code, i::Int)
    place = code.outputs[i].place
    return place.kind === RESULT && code.writers[place.at] == i
end

function there_call(net::PaddleNet, way::VJPCode, n::Int, flat::Bool, inputs::Int)
    given, count = given_words(net, flat, inputs)
    kept, bytes = kept_words(way, n)
    outputs = [[BaseOffset(count + i, 0) for i in 1:way.outputs]; kept]
    return Call(way.code, n, flat, given, outputs, zeros(Int, count + way.outputs), bytes)
end

"""
    there_by_code(net, way, n, params, inputs, flat) -> y, kept

The value by code, and what the way back needs. What is kept is not shared with the value, which
its caller may change.
"""
@inline function there_by_code(net::PaddleNet, way::VJPCode, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    call = known_call(() -> there_call(net, way, n, flat, length(inputs)), way.code, n, flat)
    block = Vector{UInt8}(undef, call.block)
    y = with_outputs(net, way, inputs, n, way.outputs) do ys
        GC.@preserve block write_outputs!(Address(pointer(block)), ys, way.code, call, params, inputs)
    end
    return y, Residuals(way, n, block)
end

function back_call(net::PaddleNet, way::VJPCode, back::PullbackCode, n::Int, flat::Bool, inputs::Int)
    there, code = way.code, back.code
    given, count = given_words(net, flat, inputs)
    kept, bytes = kept_words(way, n)
    left = map(there.outputs[way.outputs+1:end]) do output # for the way back
        at = output.place.at
        output.place.kind === INPUT ? given[at] :
        output.place.kind === CONSTANT ? BaseOffset(1, at) : kept[there.writers[at]-way.outputs]
    end
    seeds = [BaseOffset(count + s, 0) for s in eachindex(way.seeds)]
    gradients, last = given_words(net, flat, inputs, count + length(seeds))
    outputs = gradients[back.places]
    missing_bytes = zeros(Int, last)
    needs(word, layout) = (missing_bytes[word.base] = max(missing_bytes[word.base], word.bytes + sizeof(layout, n)))
    foreach(needs, seeds, code.inputs[length(left)+1:end])
    foreach((word, output) -> needs(word, output.layout), outputs, code.outputs)
    return Call(code, n, flat, [left; seeds], outputs, missing_bytes, bytes)
end

"""
    back_by_code(kept, back, net, params, inputs, flat, cotangents, p̄s, x̄s)

Gradients by code, written into arrays, nothing where one is not wanted. Cotangents are arrays, or
nothing.
"""
@inline function back_by_code(
    kept::Residuals, back::PullbackCode, net::PaddleNet, params::Arrays, inputs::Tuple, flat::Bool,
    cotangents::Union{Tuple,Vector}, p̄s::Arrays, x̄s::Tuple,
)
    (; way, n, block) = kept
    check_lengths(kept, net, flat, params, inputs)
    call = known_call(() -> back_call(net, way, back, n, flat, length(inputs)), back.code, n, flat)
    seeds = of_seeds(cotangents, way.seeds)
    GC.@preserve block params inputs seeds p̄s x̄s run_code(back.code, call) do bases
        bases[OF_BLOCK] = Address(pointer(block))
        k = put_addresses!(bases, BEFORE_ARRAYS + 1, params)
        k = put_addresses!(bases, put_addresses!(bases, k, inputs), seeds)
        put_addresses!(bases, put_addresses!(bases, k, p̄s), x̄s)
    end
    return nothing
end

"Refuse vectors that were resized since the call."
@inline check_lengths((; way, n)::Residuals, net::PaddleNet, flat::Bool, params::Arrays, inputs::Tuple) =
    have_lengths(net, flat, params, 1) && have_lengths(way.code, n, inputs, length(net.names) + 1) || refuse_resized()

"""
    have_lengths(net, flat, params, k) -> Bool
    have_lengths(code, n, inputs, k) -> Bool

Whether vectors, which can be resized, are as long as when their sizes were checked; the first is number `k`.
"""
have_lengths(::PaddleNet, ::Bool, ::Tuple{}, ::Int) = true
have_lengths(net::PaddleNet, flat::Bool, params::Tuple, k::Int) =
    has_length(params[1], net, flat, k) && have_lengths(net, flat, Base.tail(params), k + 1)
have_lengths(net::PaddleNet, flat::Bool, params::Vector, k::Int) =
    all(i -> has_length(params[i], net, flat, i)::Bool, k:length(params))
have_lengths(::Code, ::Int, ::Tuple{}, ::Int) = true
have_lengths(code::Code, n::Int, inputs::Tuple, k::Int) =
    has_length(inputs[1], code, n, k) && have_lengths(code, n, Base.tail(inputs), k + 1)

has_length(_, _, _, _) = true
has_length(p::Vector, net::PaddleNet, flat::Bool, k::Int) =
    length(p) == (flat ? net.nparams : only(net.sizes[k]::Tuple{Int}))
has_length(x::Vector, code::Code, n::Int, k::Int) = k > length(code.inputs) || length(x) == at(only(code.inputs[k].size), n)

@noinline refuse_resized() = throw(
    DimensionMismatch(
        "a parameter or an input is a vector that was resized since the call that the pullback is of; leave the arguments " *
        "of a net as they are until its pullback was called",
    ),
)

"Cotangents of those outputs that have any."
of_seeds(cotangents::Tuple{Array}, ::Vector{Int}) = cotangents # of one output that is known to have one
of_seeds(cotangents, seeds::Vector{Int}) = Any[cotangents[seed] for seed in seeds]
