# What a net keeps besides parameters, explicit: `net(x, ps, st)` gives `(y, st)`, as Lux has it.

"""
    PaddleChainRules.initial_state(net; seed)
    PaddleChainRules.initial_state(wrapper; seed)

Return the state `st` of a call `net(x, ps, st)`, which gives `(y, st)` with the next state.

Nothing of it has a derivative. The state of a [`PaddleFCNet`](@ref) is empty.

# Arguments

- `seed`: the seed of the first call, by default drawn from Julia's default generator.

# Returns

A named tuple:

- `buffers`, a named tuple of arrays: what the layer holds but does not train, such as
  BatchNorm's running statistics and frozen parameters. In training mode calls return new
  ones.
- `seed`, of the random numbers of the call: the same state gives the same dropout. Each
  call returns the next seed.
- `training`, `Val(true)` or `Val(false)`: the mode, at first the one that the layer had.

# Examples

```jldoctest
julia> layer = paddle.nn.Sequential(
           paddle.nn.Linear(3, 16), paddle.nn.BatchNorm1D(16), paddle.nn.Dropout(0.5));

julia> wrapper = PaddleModuleWrapper(layer);

julia> net = PaddleNet(wrapper);

julia> st = PaddleChainRules.initial_state(net; seed = 1);

julia> y, next = net(rand(Float32, 3, 8), wrapper.params, st);

julia> next.seed == st.seed, keys(st)
(false, (:buffers, :seed, :training))

julia> quiet = merge(st, (; training = Val(false))); # no dropout
```
"""
initial_state(w::PaddleModuleWrapper; options...) = initial_state(w.net; options...)
initial_state(net::PaddleNet; seed::Integer = rand(Random.default_rng(), UInt64)) = crossing() do
    found = object_of(net.handle).state()
    PythonCall.pyis(found, NONE) && return NamedTuple()
    names = Tuple(Symbol.(split(text(found[0]), '\x1f'; keepempty = false)))
    return (;
        buffers = NamedTuple{names}(receive_all(found[1])),
        seed = UInt64(check_seed(seed)),
        training = Val(PythonCall.pytruth(found[2])),
    )
end

function check_seed(seed)
    seed isa Integer && !(seed isa Bool) && 0 <= seed <= typemax(UInt64) || throw(
        ArgumentError("a seed is a whole number from 0 to 2^64 - 1, got $(repr(seed)); give such a one"),
    )
    return seed
end

"Of the next call: a linear congruential step with Knuth's constants, of period 2^64."
next_seed(seed::Integer) = UInt64(seed) * 0x5851f42d4c957f2d + 0x14057b7ef767814f

function in_mode(net::N, st::NamedTuple) where {N<:PaddleNet}
    st.training isa Union{Val{true},Val{false}} || throw(
        ArgumentError("st.training must be Val(true) or Val(false), got $(st.training)"),
    )
    return of_kind(N, derived(handle -> handle.in_mode(st.training === Val(true)), net, st.training))
end

"""
    used(net, st) -> net, kw

The net in the mode and the precision of the state, and the keyword arguments that the state
stands for; none where it has nothing to tell.
"""
function used(net::PaddleNet, st::NamedTuple)
    isempty(st) && return net, (;)
    check_state(net, st)
    T = other_precision(net, "the buffers of the state", st.buffers)
    moded = in_dtype(in_mode(net, st), T)
    return moded, is_chain(moded.handle) ? (;) : (; st.buffers, st.seed)
end

"Refuse a state that is not like those of the net."
function check_state(net::PaddleNet, st::NamedTuple)
    issetequal(keys(st), (:buffers, :seed, :training)) || throw(
        ArgumentError(
            "the state must have the names buffers, seed and training, as " *
            "PaddleChainRules.initial_state gives it, or be empty; got $(kind_of(st))",
        ),
    )
    check_seed(st.seed)
    buffers, held = st.buffers, net.handle.buffers
    buffers isa NamedTuple && issetequal(keys(buffers), keys(held)) || throw(
        ArgumentError(
            "st.buffers must be $(kind_of(held)), as PaddleChainRules.initial_state gives it; got " *
            kind_of(buffers),
        ),
    )
    for (name, leaf) in pairs(held)
        check_size("buffer $name", buffers[name], size(leaf))
        is_float(leaf) && is_float(buffers[name]) ||
            check_eltype("buffer $name", eltype(buffers[name]), eltype(leaf))
    end
    return nothing
end

"The output and the next state, from what the net gives."
function with_state(found, st::NamedTuple, kw::NamedTuple)
    isempty(kw) && return found, advanced(st)
    y, buffers = found
    return y, advanced(merge(st, (; buffers)))
end

advanced(st::NamedTuple) = isempty(st) ? st : merge(st, (; seed = next_seed(st.seed)))

function (net::PaddleNet)(x, ps, st::NamedTuple)
    moded, kw = used(net, st)
    return with_state(evaluate(moded, x, ps, kw), st, kw)
end
