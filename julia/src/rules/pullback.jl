# Gradients without automatic differentiation around them, into buffers of the caller's where wished.

"""
    PaddleChainRules.pullback(net, x, ps; kwargs...) -> y, back
    PaddleChainRules.pullback(wrapper, x; kwargs...) -> y, back

Return the value and its pullback, without automatic differentiation around them.

`back(ȳ; into, accumulate = false)` gives `x̄, p̄s` for a net and `p̄s, x̄` for a wrapper,
in the order of the arguments and nested as they are. You can call it again and again. A function
that calls both can be differentiated by Zygote, without `into`; so can [`vjp`](@ref PaddleChainRules.vjp).

# Arguments

- `kwargs`: keyword arguments of the net, held constant.
- `ȳ` of `back`: the cotangent, nested as `y`.
- `into` of `back`: the same pair of arrays of your own, `nothing` for a gradient that you
  do not want and that is then not computed. Gradients are written there without a new array
  of that size. Arrays of GPUs and other kinds go by a copy; they are on the device of the
  arrays that the gradients are of.
- `accumulate` of `back`: add to `into` instead.

# Returns

The value and `back`. Its results are `nothing` where there is no gradient.

# Throws

- `DimensionMismatch`: a buffer of another size.
- `ArgumentError`: a buffer of another element type or nesting, or that overlaps another, a
  parameter or an input. Nothing is written then. Views were copied, and are not compared.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params));

julia> y, back = PaddleChainRules.pullback(net, rand(Float32, 3, 8), theta);

julia> x̄, p̄s = back(ones(Float32, 2, 8));

julia> total = zero(theta); # of several batches

julia> for _ in 1:4
           back(ones(Float32, 2, 8); into = (nothing, total), accumulate = true)
       end

julia> total ≈ 4 .* p̄s
true
```
"""
pullback(net::PaddleNet, x, ps; kwargs...) = pullback_of(net, x, ps, values(kwargs))
pullback(w::PaddleModuleWrapper, x; kwargs...) =
    pullback_of(w.net, x, w.params, values(kwargs), trained(w), reverse)

# `ordered` turns the gradients of input and parameters to the order of the caller's arguments.
@inline function pullback_of(net::PaddleNet, x, ps, kw::NamedTuple, flags = nothing, ordered = identity)
    if isempty(kw) && flags === nothing
        at_once = code_call(net, x isa Array ? (x,) : x, ps)
        at_once === nothing || return at_once[1], Pullback(CompiledPullback(at_once[2], x, ps, ordered), net)
    end
    return Base.inferencebarrier(general_pullback)(net, x, ps, kw, flags, ordered)::Tuple{Any,Pullback}
end

function general_pullback(net::PaddleNet, x, ps, kw::NamedTuple, flags, ordered)
    flat, row = in_a_row(net, x, kw)
    y, reverse = reversible(flat, row, ps, flags)
    return y, Pullback(ArrayPullback(reverse, x, row, ps, ordered), net)
end

"""
    ArrayPullback

The way back of a call on arrays of any kind.
"""
struct ArrayPullback{R<:AnyReverse,X,I<:Tuple,P,O}
    reverse::R
    x::X
    row::I
    ps::P
    ordered::O
end

function (of::ArrayPullback)(ȳ; into = nothing, accumulate::Bool = false)
    (; reverse, x, row, ps, ordered) = of
    names = reverse.net.names
    found = cotangents(reverse, ȳ)
    if into === nothing
        accumulate && throw(ArgumentError("accumulate adds to the arrays of into; give them too"))
        p̄s, x̄s = gradients(reverse, found)
        x̄ = nested_as((_, x̄) -> x̄, x, Iterators.Stateful(x̄s))
        return ordered((x̄, nest_params(p̄s, ps, names)))
    end
    into isa Tuple && length(into) == 2 || throw(
        ArgumentError(
            "into must be a pair, for $(join(ordered(("the input", "the parameters")), " and for ")), " *
            "got $(kind_of(into))",
        ),
    )
    for_inputs, for_params = ordered(into)
    p̄s = param_buffers(for_params, ps, names)
    x̄s = input_buffers(for_inputs, x)
    x̄s = (x̄s..., map(Returns(nothing), row[length(x̄s)+1:end])...)
    write_gradients!(p̄s, x̄s, reverse, found, accumulate)
    return into
end

"""
    CompiledPullback

The same of a call by code on plain arrays.
"""
struct CompiledPullback{C<:CodeCall,X,P,O}
    call::C
    x::X
    ps::P
    ordered::O
end

@inline function (of::CompiledPullback)(ȳ; into = nothing, accumulate::Bool = false)
    given = fitting_cotangent(of.call, ȳ)
    if into isa Tuple{Any,Any}
        for_inputs, for_params = of.ordered(into)
        p̄s, x̄s = buffers_for(for_params, of.ps), buffers_for(for_inputs, of.x)
        write_whole!(of.call, given, p̄s, x̄s, accumulate) || general_back(of)(ȳ; into, accumulate)
        return into
    elseif into === nothing && !accumulate
        found = whole_gradients(of.call, given)
        found === nothing || return of.ordered((in_form(of.x, found[2]), in_form(of.ps, found[1])))
    end
    return general_back(of)(ȳ; into, accumulate)
end

general_back((; call, x, ps, ordered)::CompiledPullback) =
    Base.inferencebarrier(ArrayPullback)(PullbackState(call), x, call.inputs, ps, ordered)

"The way back of a call, which shows itself in a line."
struct Pullback{F,N<:PaddleNet}
    back::F
    net::N
end

@inline (of::Pullback)(ȳ; into = nothing, accumulate::Bool = false) = of.back(ȳ; into, accumulate)
Base.show(io::IO, of::Pullback) = print(io, "the pullback of ", of.net, ", back(ȳ; into, accumulate)")
Base.summary(io::IO, of::Pullback) = show(io, of)

nest_params(p̄s, ::AbstractVector, _) = only(p̄s)
nest_params(p̄s, ps::Tuple, _) = as_numbers(Tuple(p̄s), ps)
function nest_params(p̄s, ps::NamedTuple, names)
    found = NamedTuple{keys(ps)}(NamedTuple{Tuple(names)}(Tuple(p̄s)))
    return NamedTuple{keys(ps)}(as_numbers(Tuple(found), Tuple(ps)))
end

"Gradients of parameters, numbers where these are."
as_numbers(p̄s::Tuple, ps::Tuple) =
    ps isa Tuple{Vararg{AbstractArray}} ? p̄s :
    map((p̄, p) -> p isa Number && p̄ !== nothing ? only(p̄) : p̄, p̄s, ps)

"""
    param_buffers(given, ps, names)

A tuple of arrays or `nothing`, in Python's order, from buffers that are nested as `ps`.
"""
param_buffers(given, ::AbstractVector, _) = (given,)
param_buffers(::Nothing, ::AbstractVector, _) = (nothing,)
param_buffers(::Nothing, ps::Tuple, _) = map(Returns(nothing), ps)
param_buffers(::Nothing, ps::NamedTuple, _) = map(Returns(nothing), Tuple(ps))
function param_buffers(given, ps::Tuple, _)
    given isa Tuple && length(given) == length(ps) || throw(
        ArgumentError("into for the parameters must be nothing or a tuple of $(length(ps)), got $(kind_of(given))"),
    )
    return given
end
function param_buffers(given, ps::NamedTuple, names)
    given isa NamedTuple && issetequal(keys(given), keys(ps)) || throw(
        ArgumentError(
            "into for the parameters must be nothing or $(kind_of(ps)), got $(kind_of(given))",
        ),
    )
    return Tuple(given[name] for name in names)
end

"Buffers in a row, one or `nothing` for each leaf of `x`."
function input_buffers(given, x)
    given === nothing && return map(Returns(nothing), leaves(x))
    x isa Union{Tuple,NamedTuple} || return (given,)
    kind = x isa Tuple ? Tuple : NamedTuple
    given isa kind && issetequal(keys(given), keys(x)) || throw(
        ArgumentError(
            "into for the inputs must be nothing or nested as they are, " *
            "$(kind_of(x)), got $(kind_of(given))",
        ),
    )
    return Tuple(Iterators.flatten(input_buffers(given[key], x[key]) for key in keys(x)))
end

"""
    check_buffers(buffers, primals, given = ())

Refuse arrays that gradients with respect to `primals` can't be written into, or that share memory with these, with
what the caller has `given` for them, such as views, or with each other.
"""
function check_buffers(buffers::Arrays, primals::Arrays, given = ())
    for (buffer, primal) in zip(buffers, primals)
        buffer === nothing && continue
        buffer isa AbstractArray ||
            throw(ArgumentError("into must hold arrays or nothing, got $(kind_of(buffer))"))
        is_differentiable(eltype(primal)) || throw(
            ArgumentError("an input of $(eltype(primal)) has no gradient; give nothing for it in into"),
        )
        size(buffer) == size(primal) || throw(
            DimensionMismatch("an array of into has size $(size(buffer)), its gradient $(size(primal))"),
        )
        eltype(buffer) == eltype(primal) || throw(
            ArgumentError("an array of into holds $(eltype(buffer)), its gradient $(eltype(primal))"),
        )
        check_writable(buffer)
        check_device((primal, buffer))
    end
    wanted = filter(!isnothing, collect(Any, buffers))
    for (i, buffer) in enumerate(wanted), other in Iterators.flatten((wanted[i+1:end], primals, given))
        overlap(buffer, other) && throw(
            ArgumentError(
                "an array of into overlaps another, a parameter or an input in memory, so that " *
                "writing the one changes the other; give each gradient an array of its own",
            ),
        )
    end
    return nothing
end

"""
    check_writable(buffer)

Refuse an array that does not keep every number that it is given, such as a range, before a
gradient is computed for it: what is tried is a copy.
"""
check_writable(::StridedArray) = nothing
function check_writable(buffer::AbstractArray)
    gpu_array(buffer) === nothing || return nothing
    numbers = reshape(convert(Vector{eltype(buffer)}, 1:length(buffer)), size(buffer))
    kept = try
        dense(copyto!(deepcopy(buffer), numbers)) == numbers
    catch
        false
    end
    kept || throw(
        ArgumentError(
            "an array of into is $(kind_of(buffer)), in which not every element can be set; " *
            "give a plain one, such as zeros($(eltype(buffer)), $(join(size(buffer), ", ")))",
        ),
    )
    return nothing
end

"""
    write_gradients!(p̄s, x̄s, reverse, cotangents, accumulate)

Assign or add gradients to arrays, `nothing` where one is not wanted; all checked before.
"""
function write_gradients!(p̄s::Arrays, x̄s::Tuple, reverse::AnyReverse, cotangents, accumulate)
    has_duals(reverse, cotangents) && throw(
        ArgumentError(
            "gradients of dual numbers are new arrays, and not written into those of the " *
            "caller; leave into and accumulate out",
        ),
    )
    check_places(reverse)
    check_buffers(both(p̄s, x̄s), both(reverse.params, reverse.inputs))
    some = [p̄ !== nothing for p̄ in p̄s]
    asked = NeedsGrad(any(some), any(!isnothing, x̄s), any(some) && !all(some) ? some : nothing)
    asked.params || asked.inputs || return nothing
    reverse isa PullbackState && reverse.kept !== nothing &&
        return write_gradients_by_code!(p̄s, x̄s, reverse, cotangents, accumulate, asked)
    with_gradients(reverse, cotangents, asked) do found
        n = Int(tuple_length(found)) - length(x̄s)
        for (i, x̄) in enumerate(x̄s)
            store!(x̄, found, (n+i):(n+i), accumulate)
        end
        if reverse.flat
            store!(only(p̄s), found, 1:n, accumulate)
        else
            foreach((i, p̄) -> store!(p̄, found, i:i, accumulate), 1:n, p̄s)
        end
    end
    return nothing
end

# Straight into plain arrays, and by way of new ones where it is added, or what is read would change.
function write_gradients_by_code!(p̄s, x̄s, reverse::PullbackState, cotangents, accumulate, asked::NeedsGrad)
    back = asked_code(reverse.kept, reverse, cotangents, asked)
    there, count = back.wanted, length(reverse.net.names)
    read = filter(!isnothing, cotangents)
    direct(buffer) = !accumulate && buffer isa Array && !any(ȳ -> overlap(buffer, ȳ), read)
    made(buffer, primal, has) = buffer === nothing || !has ? nothing : direct(buffer) ? buffer : similar(primal)
    has = reverse.flat ? (any(@view there[1:count]),) : there[1:count]
    new_p̄s = Any[made(p̄, p, h) for (p̄, p, h) in zip(p̄s, reverse.params, has)]
    new_x̄s = map(made, x̄s, reverse.inputs, Tuple(there[count+1:end]))
    write_by_code(reverse.kept, back, reverse, cotangents, new_p̄s, new_x̄s)
    for (buffer, found) in Iterators.flatten((zip(p̄s, new_p̄s), zip(x̄s, new_x̄s)))
        buffer === nothing || buffer === found || store!(buffer, found, accumulate)
    end
    return nothing
end

"""
    store!(buffer, found, items, accumulate) -> buffer

Assign or add tensors of the tuple `found` in a row, none being zero, to an array.
"""
store!(::Nothing, _, _, _) = nothing
function store!(buffer::Array, found::PyPtr, items, accumulate::Bool)
    any(i -> tuple_item(found, i - 1) == none(), items) && return store!(buffer, nothing, accumulate)
    next = 1
    for i in items
        next = receive_into!(buffer, next, tuple_item(found, i - 1), accumulate)
    end
    return buffer
end

# Arrays of GPUs and other kinds, by a copy.
function store!(buffer::AbstractArray, found::PyPtr, items, accumulate::Bool)
    is_zero = any(i -> tuple_item(found, i - 1) == none(), items)
    grads() = [vec(receive(tuple_item(found, i - 1))) for i in items]
    return store!(buffer, is_zero ? nothing : reshape(reduce(vcat, grads()), size(buffer)), accumulate)
end

"The same of a gradient that is an array, or nothing for zero."
store!(buffer::AbstractArray, ::Nothing, accumulate::Bool) = accumulate ? buffer : fill!(buffer, 0)
store!(buffer::AbstractArray, grad::AbstractArray, accumulate::Bool) =
    copyto!(buffer, accumulate ? dense(buffer) .+ grad : grad)
