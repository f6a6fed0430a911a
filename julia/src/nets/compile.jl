# How a net's calls run, and what makes them machine code at once.

"""
    PaddleChainRules.explain(net, x, ps) -> String
    PaddleChainRules.explain(wrapper, x) -> String

Say which way calls with arrays of these sizes go, and why, in a sentence or two.

They go as machine code, which enters no Python, takes no lock and so runs on any thread; or
through Python. The first calls of a kind go through Python. After some 36 of them, or one
[`compile`](@ref PaddleChainRules.compile), the net's program comes to Julia as one
function, if all of its operators can be machine code. After calls with two numbers of
samples it serves any number of at least two.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> PaddleChainRules.explain(wrapper, rand(Float32, 3, 8)) isa String
true
```
"""
explain(net::PaddleNet, x, ps; kw...) = explained(arrays_of(net, x, ps, values(kw))[1:3]...)
explain(w::PaddleModuleWrapper, x; kw...) = explain(w.net, x, w.params; kw...)

"""
    PaddleChainRules.compile(net, x, ps) -> String
    PaddleChainRules.compile(wrapper, x) -> String

Compile the net's value and its gradients to machine code now, not after some calls.

It takes half a second for a small net. Threads may then call the net without
[`threaded`](@ref PaddleChainRules.threaded).

# Arguments

- `x`, `ps`: arrays like those of later calls. If `x` is a matrix, the code serves any
  number of samples, for which the net is called on some of its columns.

# Returns

What [`explain`](@ref PaddleChainRules.explain) says then.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> xs = [rand(Float32, 3, 8) for _ in 1:20];

julia> PaddleChainRules.compile(wrapper, xs[1]);

julia> ys = Vector{Matrix{Float32}}(undef, 20);

julia> Threads.@threads for i in eachindex(xs)
           ys[i] = wrapper(xs[i])
       end

julia> ys[3] ≈ wrapper(xs[3])
true
```
"""
function compile(net::PaddleNet, x, ps; kw...)
    of, params, inputs, flat = arrays_of(net, x, ps, values(kw))
    bridge() # knows whether there is to be code
    PATIENCE[] < 0 && return explained(of, params, inputs)
    for (n, asks) in (x isa Matrix && !isempty(x) ? other_numbers(net, x) : ())
        others = (inputs[1][:, mod1.(1:n, end)], Base.tail(inputs)...)
        try
            crossing(() -> fetch_code(of, params, others, flat, asks))
        catch err
            err isa InterruptException && rethrow() # a net may take some numbers of samples alone
        end
    end
    crossing(() -> fetch_code(of, params, inputs, flat, true))
    return explained(of, params, inputs)
end
compile(w::PaddleModuleWrapper, x; kw...) = compile(w.net, x, w.params; kw...)

"The net of arguments in a row, and these, as [`forward`](@ref) has them."
function arrays_of(net::PaddleNet, x, ps, kw::NamedTuple)
    flat_net, row = in_a_row(net, x, kw)
    of, params, inputs = arrays(flat_net, row, ps)
    return of, params, inputs, is_flat(ps)
end

"""
Two numbers of samples that no size of the net is a multiple of, and one sample; and whether code is
to be fetched then: that of the second serves the first, too.
"""
function other_numbers(net::PaddleNet, x::Matrix)
    sizes = (size(x, 1), (d for dims in net.sizes for d in dims)...)
    primes = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
    apart = first((p for p in primes if !any(d -> d % p == 0, sizes)), 2)
    return length(apart) < 2 ? ((1, true),) : ((apart[1], false), (apart[2], true), (1, true))
end

const CALLS_BEFORE = 5 # more than the calls that a net waits for before there is a program

# Through Python, until there is code or a reason why there is none.
function fetch_code(net::PaddleNet, params::Arrays, inputs::Tuple, flat::Bool, asks::Bool)
    for (kind, find, entry) in ((:value, value_code, :forward), (:way, way_code, :pullback))
        find(net, params, inputs)[1] === nothing || continue
        GC.@preserve params inputs in_turn(both(params, inputs)) do
            for _ in 1:CALLS_BEFORE
                drop(enter(net, entry, params, inputs, flat))
            end
            asks && ask_for_code(net, kind, params, inputs, flat)
        end
    end
    return nothing
end

function explained(net::PaddleNet, params::Arrays, inputs::Tuple)
    has_value, has_way = value_code(net, params, inputs)[1] !== nothing, way_code(net, params, inputs)[1] !== nothing
    has_value && has_way && return "Values and gradients are machine code, without Python, on any thread."
    why = missed_calls(net, has_value ? :way : :value, inputs).why
    reason = PATIENCE[] < 0 ? "programs or machine code are off (PADDLE_CHAINRULES_PROGRAMS, PADDLE_CHAINRULES_LOOPS), or llvmlite is not installed" :
             isempty(why) ? "calls of this kind are too few yet; PaddleChainRules.compile(net, x, ps) has the code at once" : why
    part = has_value ? "Values are machine code, gradients go" : has_way ? "Gradients are machine code, values go" : "Calls go"
    return "$part through Python, one thread at a time: $(rstrip(reason, '.'))."
end

"""
    PaddleChainRules.forward!(y, net, x, ps) -> y
    PaddleChainRules.forward!(y, wrapper, x) -> y

Write the net's value into an array of the caller's.

Machine code allocates nothing here.

# Throws

- `DimensionMismatch`: `y` has another size than the value.
- `ArgumentError`: `y` has another element type or overlaps what is read, or the net gives
  more than one array. Nothing is written then.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> x, y = rand(Float32, 3, 8), zeros(Float32, 2, 8);

julia> PaddleChainRules.forward!(y, wrapper, x) === y && y ≈ wrapper(x)
true
```
"""
function forward!(y::AbstractArray, net::PaddleNet, x, ps; kw...)
    isempty(kw) && write_at_once!(y, net, x isa Array ? (x,) : x, ps) && return y
    of, params, inputs, flat = arrays_of(net, x, ps, values(kw))
    found, n = value_code(of, params, inputs)
    foreach(read -> check_apart(y, read), (params, inputs, x, ps)) # views are copied: what was given, too
    if found !== nothing && found.structure === 1 && has_layout(found.code.outputs[1].layout, n, y)
        write_value!((y,), of, found.code, n, params, inputs, flat)
        return y
    end
    check_device(both((y,), both(params, inputs)))
    value = evaluate(net, x, ps, values(kw))
    value isa AbstractArray || throw(
        ArgumentError("the net gives $(kind_of(value)); forward! is for nets that give one array"),
    )
    size(y) == size(value) || throw(
        DimensionMismatch("the array for the value has size $(size(y)), the value $(size(value)); give one of that"),
    )
    check_eltype("the array for the value", eltype(y), eltype(value))
    return copyto!(y, value)
end
"""
    write_at_once!(y, net, xs, ps) -> Bool

Whether the value was written by code; false where there is none for plain arrays like these, or `y` is not one for it.
"""
write_at_once!(_, _, _, _) = false
function write_at_once!(y::Array, net::PaddleNet, xs::Tuple{Array,Vararg{Array}}, ps)
    found, n = fitting_code((@atomic codes_of(net).values), net, ps, xs)
    found === nothing && return false
    code, params = found.code, params_as_given(ps)
    gives_alone(found, typeof(y), length(code.outputs)) && has_layout(code.outputs[1].layout, n, y) || return false
    are_apart((y,), (params..., xs...)) || return false
    write_value!((y,), net, code, n, params, xs, ps isa Vector)
    return true
end

forward!(y::AbstractArray, w::PaddleModuleWrapper, x; kw...) = forward!(y, w.net, x, w.params; kw...)

check_apart(y, xs::Vector{Any}) = foreach(x -> check_apart(y, x), xs)
check_apart(y, x) = overlap(y, x) && throw(
    ArgumentError("the array for the value overlaps a parameter or an input; give one of its own"),
)
