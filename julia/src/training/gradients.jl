# A loss and its gradients as one call of code.

"""
    PaddleChainRules.value_and_gradient!(grads, net, x, ps, loss, data...) -> value
    PaddleChainRules.value_and_gradient!(grads, wrapper, x, loss, data...) -> value

Compute `loss(net(x, ps), data...)` and write its gradient with respect to `ps` into `grads`.

A training loop needs this for each batch. It is one call of code that allocates nothing. What is
needed between value and gradient stays in the net's memory.

# Arguments

- `grads`: arrays in the form of `ps` (of `wrapper.params`), `nothing` where a gradient is not
  wanted.
- `loss`: traced once for each kind of arrays, with the operations that
  [`train!`](@ref PaddleChainRules.train!) knows, such as [`mse`](@ref PaddleChainRules.mse) and
  [`logitcrossentropy`](@ref PaddleChainRules.logitcrossentropy) or those of Flux. It must depend
  on its arguments alone: whatever else it reads stays as it was when the loss was traced. A new
  definition of any function has it traced again.

# Throws

- [`TraceError`](@ref PaddleChainRules.TraceError): the loss can't be traced.
- `ArgumentError`: the loss captures arrays, which belong into `data`, or an array of `grads` has
  another form or element type, or overlaps another array.
- `DimensionMismatch`: an array has another size. Nothing is written then.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params));

julia> grads, x, y = similar(theta), rand(Float32, 3, 8), rand(Float32, 2, 8);

julia> using PaddleChainRules: mse, value_and_gradient!

julia> value_and_gradient!(grads, net, x, theta, mse, y) ≈ mse(net(x, theta), y)
true
```
"""
@inline function value_and_gradient!(grads, net::PaddleNet, x, ps, loss::F, data...) where {F}
    found = value_at_once!(grads, net, x isa Array ? (x,) : x, ps, loss, data)
    found === nothing || return found
    return Base.inferencebarrier(value_and_gradient_of)(grads, net, x, ps, loss, data)
end

@inline function value_and_gradient!(grads, w::PaddleModuleWrapper, x, loss::F, data...) where {F}
    check_all_trained(w, "value_and_gradient!")
    return value_and_gradient!(grads, w.net, only_argument(w, x), w.params, loss, data...)
end

only_argument(_, x) = x
only_argument(w, x::Tuple) = arguments_of(w, (x,))

"""
    PaddleChainRules.mse(ŷ, y)

Return the mean of the squared differences.

It is a loss for [`value_and_gradient!`](@ref PaddleChainRules.value_and_gradient!).

# Examples

```jldoctest
julia> PaddleChainRules.mse([1.0 2.0], [0.0 4.0])
2.5
```
"""
mse(ŷ, y) = sum(abs2, ŷ .- y) / length(y)

"""
    PaddleChainRules.logitcrossentropy(ŷ, y)

Return the cross entropy of `softmax(ŷ)` and the probabilities `y`, the mean over the samples.

Both have the size `(classes, n)`. It is a loss for
[`value_and_gradient!`](@ref PaddleChainRules.value_and_gradient!).

# Examples

```jldoctest
julia> PaddleChainRules.logitcrossentropy([0.0 0.0; 0.0 0.0], [1.0 0.0; 0.0 1.0])
0.6931471805599453
```
"""
function logitcrossentropy(ŷ, y)
    z = ŷ .- maximum(ŷ; dims = 1)
    return -sum(y .* (z .- log.(sum(exp.(z); dims = 1)))) / size(ŷ, 2)
end

# By code, of plain arrays whose types are known, as in code_call.jl.
value_at_once!(_, _, _, _, _, _) = nothing
function value_at_once!(
    grads, net::PaddleNet, xs::Tuple{Array,Vararg{Array}}, ps::Union{Vector,Tuple,NamedTuple}, loss::F, data::Tuple{Vararg{Array}},
) where {F}
    p̄s = buffers_for(grads, ps)
    p̄s isa Tuple{Array,Vararg{Array}} && length(p̄s) <= MAX_TUPLE_LENGTH || return nothing
    ps isa NamedTuple && !(length(ps) == length(net.names) && all_same(keys(ps), net.names)) && return nothing
    params = params_as_given(ps)
    arrays = (params..., xs..., data...)
    found = loss_code(net, loss, length(params), ps isa Vector, length(xs), arrays)
    found === nothing && return nothing
    code = found.code
    code !== nothing && have_sizes(p̄s, params) && are_apart(p̄s, arrays) || return nothing
    return run_loss(eltype(first(params)), code, found.has, p̄s, arrays)
end

function loss_code(net::PaddleNet, loss::F, params::Int, flat::Bool, inputs::Int, arrays::Arrays) where {F}
    world = Base.get_world_counter()
    for found in (@atomic codes_of(net).losses)
        found.loss === loss && found.world == world && found.flat == flat && found.inputs == inputs &&
            length(found.has) == params || continue
        fits_loss(found, arrays) && return found
    end
    return nothing
end

function fits_loss((; code, kinds)::LossCode, arrays::Tuple{Vararg{Array}})
    code === nothing && return kinds == Any[map(kind_of_array, arrays)...]
    return length(code.inputs) == length(arrays) && fits(code, 1, 0, arrays...)
end
fits_loss((; kinds)::LossCode, arrays::Arrays) = kinds == Any[kind_of_array(x) for x in arrays]
kind_of_array(x) = (typeof(x), size(x), device(x))

"The value of a loss by its code, once its gradients are written; the number type is that of the parameters, if it is the loss's."
function run_loss(::Type{T}, code::Code, has::Vector{Bool}, p̄s::Arrays, arrays::Arrays) where {T}
    call = known_call(() -> loss_call(code, has, length(arrays)), code, 0, false)
    at = take_addresses_and_work(code, call)
    GC.@preserve p̄s arrays at begin
        k = put_addresses!(at.bases, BEFORE_ARRAYS + 1, arrays)
        k = put_addresses!(at.bases, k, p̄s)
        at.bases[k] = Address(pointer(at.number))
        run_code(code, call, at)
    end
    value = of_number(T, code.outputs[1].layout.type, at.number)
    @atomic code.spare = at
    all(has) || foreach((p̄, depends) -> depends || p̄ === nothing || fill!(p̄, 0), p̄s, has)
    return value
end

of_number(::Type{T}, A::DataType, number::Vector{UInt64}) where {T} =
    A === Array{T,0} ? read_number(T, number) : Base.inferencebarrier(read_number)(eltype(A), number)
read_number(::Type{T}, number::Vector{UInt64}) where {T} = GC.@preserve number unsafe_load(Ptr{T}(pointer(number)))

function loss_call(code::Code, has::Vector{Bool}, arrays::Int)
    inputs = [BaseOffset(BEFORE_ARRAYS + k, 0) for k in 1:arrays]
    behind = BEFORE_ARRAYS + arrays
    gradients = [BaseOffset(behind + k, 0) for k in eachindex(has) if has[k]]
    outputs = [BaseOffset(behind + length(has) + 1, 0); gradients]
    missing_bytes = zeros(Int, behind + length(has) + 1)
    for (word, output) in zip(gradients, code.outputs[2:end]) # those that are not wanted
        missing_bytes[word.base] = sizeof(output.layout, 0)
    end
    return Call(code, 0, false, inputs, outputs, missing_bytes, 0)
end

# Of arrays of any kind, and where there is no code yet, or none.
function value_and_gradient_of(grads, given::PaddleNet, x, ps, loss, data::Tuple)
    check_captured(loss)
    x isa Union{AbstractArray,Tuple{AbstractArray,Vararg{AbstractArray}}} || throw(
        ArgumentError("the input must be an array or a tuple of arrays, got $(kind_of(x)); give one"),
    )
    foreach(check_data, data)
    net, params, xs = arrays(given, inputs(x), ps)
    p̄s = param_buffers(grads, ps, net.names)
    rest = (xs..., map(dense, data)...)
    every = both(params, rest)
    check_buffers(p̄s, every, (x, ps, data))
    check_device(every)
    found = loss_code(net, loss, length(params), is_flat(ps), length(xs), every)
    found === nothing && (found = traced_loss(net, loss, params, is_flat(ps), length(xs), every))
    code = found.code
    code === nothing && return value_by_python(found, p̄s, every)
    direct(p̄) = p̄ isa Array
    new = each((p̄, p) -> p̄ === nothing || direct(p̄) ? p̄ : similar(p), p̄s, params)
    value = run_loss(eltype(first(params)), code, found.has, new, every)
    foreach((p̄, n) -> p̄ === n || copyto!(p̄, n), p̄s, new)
    return value
end

check_data(_::AbstractArray{<:Real}) = nothing
check_data(x) = throw(
    ArgumentError("the data of a loss are arrays of numbers, got $(kind_of(x)); let the loss capture what is not, such as a number"),
)

"Refuse a loss that captures memory: what is in there later would not be seen."
function check_captured(loss)
    T = typeof(loss)
    for i in 1:fieldcount(T)
        x = getfield(loss, i)
        isbits(x) || x isa Union{Function,Type,Symbol,String} || throw(
            ArgumentError(
                "the loss captures $(fieldname(T, i)), $(kind_of(x)), which may change after it was traced; give it as data: " *
                "value_and_gradient!(grads, net, x, ps, loss, data...) calls loss(net(x, ps), data...)",
            ),
        )
        x isa Function && check_captured(x)
    end
    return nothing
end

"""
    traced_loss(net, loss, params, flat, inputs, arrays) -> LossCode

The code of a loss for arrays like these, kept with the net; Paddle's program of it where there is no such code.
"""
function traced_loss(net::PaddleNet, loss, params::Arrays, flat::Bool, inputs::Int, arrays::Arrays)
    failure, count, world = Failure(nothing), length(params), Base.get_world_counter()
    function of_tensors(own::Py, data::Py)
        ps, rest = map(traced_array, items(own)), map(traced_array, items(data))
        y = forward(net, Tuple(rest[1:inputs]), flat ? only(ps) : Tuple(ps))
        return checked_loss(loss(y, rest[inputs+1:end]...)).tensor
    end
    constants = Dict{Any,Py}()
    found = reporting(failure) do
        crossing() do
            GC.@preserve arrays in_turn(arrays) do
                made = BRIDGE.Gradients(called_by_python(of_tensors, failure), Py(count))
                answer = with_constants(constants, first(arrays)) do
                    PythonCall.pynew(call_with(made.code, (), Tuple(arrays)))
                end
                has_code = isempty(text(answer.why)) && all(x -> x isa Array, arrays)
                code = has_code ? Code(text(answer.text), answer.owner) : nothing
                has = has_code ? split(text(answer.structure)) .== "1" : fill(true, count)
                LossCode(loss, world, flat, inputs, Any[kind_of_array(x) for x in arrays], code, has, made, failure)
            end
        end
    end
    codes = codes_of(net)
    @atomic codes.losses = [found; first((@atomic codes.losses), MOST_CODE - 1)]
    return found
end

value_by_python(found::LossCode, p̄s::Arrays, arrays::Arrays) = reporting(found.failure) do
    crossing() do
        GC.@preserve arrays in_turn(arrays) do
            given = call_with(found.made, (), Tuple(arrays))
            try
                foreach((k, p̄) -> store!(p̄, given, k:k, false), 2:1+length(p̄s), p̄s)
                return only(Array(receive(tuple_item(given, 0))))
            finally
                drop(given)
            end
        end
    end
end
