# Calls by code of plain arrays that give one array: every type is known, and what is given is checked by one look at types and
# sizes. Whatever else there is, or is wrong, goes the general way, which says so.

"""
    CodeCall

A call by code, and what the gradients of it need.
"""
struct CodeCall{N<:PaddleNet,P<:Tuple{Vararg{Array}},I<:Tuple{Vararg{Array}}}
    net::N
    params::P # those of the net, or the one flat vector
    inputs::I
    flat::Bool
    kept::Residuals
end

"""
    code_call(net, xs, ps) -> y, call::CodeCall, or nothing

The value by code, an array of the type of the first input; nothing where there is no such code.
"""
code_call(_, _, _) = nothing
function code_call(net::PaddleNet, xs::I, ps) where {A<:Array,I<:Tuple{A,Vararg{Array}}}
    way, n = fitting_code((@atomic codes_of(net).ways), net, ps, xs)
    way === nothing && return nothing
    gives_alone(way, A, way.outputs) && way.seeds == ONE_SEED && !way.code.may_leave || return nothing
    params, flat = params_as_given(ps), ps isa Vector
    call = known_call(() -> there_call(net, way, n, flat, length(xs)), way.code, n, flat)
    block = Vector{UInt8}(undef, call.block)
    y = new_array(A, way.code.outputs[1].layout.size, n)
    GC.@preserve block write_outputs!(Address(pointer(block)), (y,), way.code, call, params, xs)
    return y, CodeCall(net, params, xs, flat, Residuals(way, n, block))
end

const ONE_SEED = [1]

"The general form of the same call."
function PullbackState(call::CodeCall)
    (; net, params, inputs, flat, kept) = call
    layout = kept.way.code.outputs[1].layout
    shape = Leaf(eltype(layout.type), ntuple(d -> at(layout.size[d], kept.n), length(layout.size)))
    return PullbackState(net, params, inputs, flat, shape, NONE, ALL, nothing, 0, kept)
end

"""
    fitting_cotangent(call, ȳ)

The cotangent as a plain array of the value's type and size, nothing where it is not one already or filled with a number.
"""
fitting_cotangent(::CodeCall, _) = nothing
fitting_cotangent(call::CodeCall, ȳ::Array) =
    has_layout(call.kept.way.code.outputs[1].layout, call.kept.n, ȳ) ? ȳ : nothing
fitting_cotangent(call::CodeCall, ȳ::AbstractArray) = # no memory of its own, such as a `Fill`
    isbits(ȳ) ? fitting_cotangent(call, collect(ȳ)) : nothing

"""
    whole_back(call, params, inputs) -> PullbackCode or nothing

The code of the gradients of all parameters or none, and of all inputs or none; nothing where one has no gradient.
"""
function whole_back(call::CodeCall, params::Bool, inputs::Bool)
    way = call.kept.way
    for back in (@atomic way.backs)
        back.key[1] === params && back.key[2] === inputs && all(back.key[3]) && return back.is_whole ? back : nothing
    end
    back = back_code(call.net, way, (params, inputs, [true]))
    return back.is_whole ? back : nothing
end

"""
    whole_gradients(call, ȳ) -> p̄s, x̄s, or nothing

New arrays of all gradients.
"""
whole_gradients(::CodeCall, ::Nothing) = nothing
function whole_gradients(call::CodeCall, ȳ::Array)
    back = whole_back(call, true, true)
    back === nothing && return nothing
    p̄s, x̄s = map(similar, call.params), map(similar, call.inputs)
    write_whole!(call, back, ȳ, p̄s, x̄s)
    return p̄s, x̄s
end

write_whole!(call::CodeCall, back::PullbackCode, ȳ::Array, p̄s::Tuple, x̄s::Tuple) =
    back_by_code(call.kept, back, call.net, call.params, call.inputs, call.flat, (ȳ,), p̄s, x̄s)

"""
    write_whole!(call, ȳ, p̄s, x̄s, accumulate) -> Bool

Gradients into arrays of the caller's, of all parameters and of all inputs or of either; false, with nothing written, where that
is not what is asked for, or an array is not one to write this into.
"""
write_whole!(::CodeCall, _, _, _, ::Bool) = false
function write_whole!(call::CodeCall, ȳ::Array, p̄s::Tuple, x̄s::Tuple, accumulate::Bool)
    wanted(p̄s) || wanted(x̄s) || return true
    have_sizes(p̄s, call.params) && have_sizes(x̄s, call.inputs) || return false
    are_apart((p̄s..., x̄s...), (call.params..., call.inputs..., ȳ)) || return false
    back = whole_back(call, wanted(p̄s), wanted(x̄s))
    back === nothing && return false
    if accumulate
        new_p̄s, new_x̄s = map(like, p̄s), map(like, x̄s)
        write_whole!(call, back, ȳ, new_p̄s, new_x̄s)
        foreach(add!, p̄s, new_p̄s)
        foreach(add!, x̄s, new_x̄s)
    else
        write_whole!(call, back, ȳ, p̄s, x̄s)
    end
    return true
end

wanted(::Tuple{Vararg{Nothing}}) = false
wanted(::Tuple{Array,Vararg{Array}}) = true

like(::Nothing) = nothing
like(x::Array) = similar(x)
add!(::Nothing, ::Nothing) = nothing
add!(x::Array, y::Array) = (x .+= y; nothing)

have_sizes(::Tuple{Vararg{Nothing}}, ::Tuple) = true
have_sizes(xs::T, ys::T) where {T<:Tuple{Array,Vararg{Array}}} = all(map((x, y) -> size(x) == size(y), xs, ys))
have_sizes(_, _) = false

"""
    are_apart(buffers, others) -> Bool

Whether no array among the buffers has an address in common with another one of them, or with one of the others.
"""
function are_apart(buffers::Tuple, others::Tuple)
    ours, theirs = map(addresses, buffers), map(addresses, others)
    for i in eachindex(ours)
        any(j -> meet(ours[i], ours[j]), i+1:length(ours)) && return false
        any(of -> meet(ours[i], of), theirs) && return false
    end
    return true
end

addresses(::Nothing) = 0, 0
function addresses(x::Array)
    start = Int(UInt(pointer(x)))
    return start, start + sizeof(x)
end

"""
    buffers_for(given, primal)

Buffers in a row where they have the form of what they are for, or there are none; nothing where they have another one.
"""
buffers_for(_, _) = nothing
buffers_for(::Nothing, ::Array) = (nothing,)
buffers_for(::Nothing, primals::Union{Tuple,NamedTuple}) = map(Returns(nothing), Tuple(primals))
buffers_for(given::A, ::A) where {A<:Array} = (given,)
buffers_for(given::T, ::T) where {T<:Union{Tuple{Vararg{Array}},NamedTuple{<:Any,<:Tuple{Vararg{Array}}}}} = Tuple(given)

"A row of arrays in the form of what they are the gradients of."
in_form(::Array, row::Tuple) = only(row)
in_form(::Tuple, row::Tuple) = row
in_form(::NamedTuple{K}, row::Tuple) where {K} = NamedTuple{K}(row)

Serialization.serialize(::AbstractSerializer, call::CodeCall) = refuse_to_send(call.net)
