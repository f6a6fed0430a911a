# Calls by machine code: where everything lies, and what the way back needs.

"""
    put_inputs!(found, net, params, inputs, flat)

The addresses of the parameters, which lie one after another in a flat vector, and of the inputs.
"""
function put_inputs!(found::Vector{Address}, net::PaddleNet, params::Arrays, inputs::Tuple, flat::Bool)
    flat ? put_parts!(found, net, only(params)) : put_addresses!(found, 1, params)
    put_addresses!(found, length(net.names) + 1, inputs)
    return found
end

# Unrolled over the tuple, whose arrays differ in type.
put_addresses!(_, _, ::Tuple{}) = nothing
function put_addresses!(found, k, xs::Tuple)
    xs[1] isa Array && (found[k] = address(xs[1]))
    return put_addresses!(found, k + 1, Base.tail(xs))
end
function put_addresses!(found, k, xs::Vector{Any})
    for (i, x) in enumerate(xs)
        x isa Array && (found[k+i-1] = address(x))
    end
end

"Those of the parameters within a flat vector."
function put_parts!(found, net::PaddleNet, theta::Array{T}) where {T}
    next = address(theta)
    for k in eachindex(net.names)
        found[k] = next
        next += prod(net.sizes[k]) * sizeof(T)
    end
end

"""
    with_outputs(write!, net, of, inputs, n, count) -> y

The first `count` outputs, nested as they are, once `write!(ys)` has written them.
"""
function with_outputs(write!::F, net::PaddleNet, of, inputs::Tuple, n::Int, count::Int) where {F}
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
function value_by_code(net::PaddleNet, found::OfValue, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    code = found.code
    return with_outputs(net, found, inputs, n, length(code.outputs)) do ys
        write_value!(Returns(nothing), ys, net, code, n, params, inputs, flat)
    end
end

"""
    write_value!(more!, ys, net, code, n, params, inputs, flat)

Run the code into these arrays, and where `more!` puts addresses of other outputs.
"""
function write_value!(
    more!::F, ys::Arrays, net::PaddleNet, code::Code, n::Int, params::Arrays, inputs::Tuple, flat::Bool,
) where {F}
    with_addresses(code) do at
        GC.@preserve ys params inputs begin
            put_inputs!(at.inputs, net, params, inputs, flat)
            put_addresses!(at.outputs, 1, ys)
            more!(at.outputs)
            run_code(code, n, at)
        end
    end
    return nothing
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
    put_kept!(f, way, n, start) -> bytes

`f(k, address, place)` for each thing that the way back needs: its address in a block that starts
there, or null, and where the way there has it; and how many bytes the block has.
"""
function put_kept!(f::F, way::OfWay, n::Int, start::Address) where {F}
    (; code, outputs) = way
    next = start
    for k in 1:length(code.outputs)-outputs
        (; place, layout) = code.outputs[outputs+k]
        if is_written(code, outputs + k)
            f(k, next, place)
            next += aligned(sizeof(layout, n))
        else
            f(k, C_NULL, place)
        end
    end
    return Int(next - start)
end

"Whether the code writes into the array of an output, and not into that of another that equals it."
function is_written(code::Code, i::Int)
    place = code.outputs[i].place
    return place.kind === RESULT && code.writers[place.at] == i
end

"""
    there_by_code(net, way, n, params, inputs, flat) -> y, kept

The value by code, and what the way back needs. What is kept is not shared with the value, which
its caller may change.
"""
function there_by_code(net::PaddleNet, way::OfWay, n::Int, params::Arrays, inputs::Tuple, flat::Bool)
    block = Vector{UInt8}(undef, put_kept!(Returns(nothing), way, n, C_NULL))
    y = with_outputs(net, way, inputs, n, way.outputs) do ys
        GC.@preserve block write_value!(ys, net, way.code, n, params, inputs, flat) do outputs
            put_kept!((k, address, _) -> (outputs[way.outputs+k] = address), way, n, Address(pointer(block)))
        end
    end
    return y, Kept(way, n, block)
end

"""
    back_by_code(kept, back, net, params, inputs, flat, cotangents, p̄s, x̄s)

Gradients by code, written into arrays, nothing where one is not wanted. Cotangents are arrays, or
nothing.
"""
function back_by_code(
    kept::Kept, back::BackCode, net::PaddleNet, params::Arrays, inputs::Tuple, flat::Bool,
    cotangents::Vector, p̄s::Arrays, x̄s::Tuple,
)
    (; way, n, block) = kept
    code, there = back.code, way.code
    others = nothing # zeros for cotangents, and arrays for gradients that are not wanted
    function other(layout)
        made = zeros(UInt8, sizeof(layout, n))
        others = (made, others)
        return Address(pointer(made))
    end
    with_addresses(there) do given
        with_addresses(code) do at
            GC.@preserve block params inputs cotangents p̄s x̄s begin
                put_inputs!(given.inputs, net, params, inputs, flat)
                put_kept!(way, n, Address(pointer(block))) do k, address, place
                    at.inputs[k] =
                        place.kind === INPUT ? given.inputs[place.at] :
                        place.kind === CONSTANT ? Address(place.at) : address
                    place.kind === RESULT && address != C_NULL && (given.outputs[place.at] = address)
                end
                count = length(there.outputs) - way.outputs
                for k in 1:count # written by way of another
                    at.inputs[k] == C_NULL && (at.inputs[k] = given.outputs[there.outputs[way.outputs+k].place.at])
                end
                for (k, seed) in enumerate(way.seeds)
                    ȳ = cotangents[seed]
                    at.inputs[count+k] = ȳ === nothing ? other(code.inputs[count+k]) : address(ȳ)::Address
                end
                put_inputs!(fill!(given.inputs, C_NULL), net, p̄s, x̄s, flat && only(p̄s) !== nothing)
                for (i, place) in enumerate(back.places)
                    at.outputs[i] = given.inputs[place]
                    at.outputs[i] == C_NULL && is_written(code, i) && (at.outputs[i] = other(code.outputs[i].layout))
                end
                GC.@preserve others run_code(code, n, at)
            end
        end
    end
    return nothing
end
