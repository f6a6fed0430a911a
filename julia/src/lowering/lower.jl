# Nets lowered to Julia: what is called, with its parameters in any form.

"""
    Lowered

What [`lower`](@ref) gives of a net.
"""
struct Lowered{N<:PaddleNet,C<:LoweredCall,G<:Tuple}
    net::N # names and sizes of the parameters; Python is called for derivatives alone
    call::C
    given::G # how its arguments are nested, and those that are no arrays
    derivatives::Dict{Any,Any} # lowered on first use
    lock::ReentrantLock
end

"""
    lower(net, x...; kw...)
    lower(net, x, st)
    lower(wrapper, x...; kw...)

Return a net as a pure Julia function of the same arguments, which calls no Paddle.

`lower(net, x)(x, ps)` equals `net(x, ps)`. The call is captured operator by operator and
written in Julia; `print` shows the code. Small nets pay for no crossing, and the net takes
what Paddle does not: dual numbers of ForwardDiff, other element types. Its gradients are
Julia code, too; nets with an operator whose gradient is not (recurrent layers) are
differentiated by Zygote as any Julia code. [`laplacian`](@ref),
[`derivative`](@ref PaddleChainRules.derivative), [`derivatives`](@ref) and
[`jvp`](@ref PaddleChainRules.jvp) take a lowered net in place of the net. The result is
compared with Paddle before it is returned.

# Arguments

- `net` or `wrapper`: what to lower. A lowered wrapper shares the wrapper's parameters.
- `x`, `kw`, `st`: arguments of a call. The result takes arguments that are nested as these,
  with the same constants and sizes, and any number of samples along the last dimension if
  the code depends on it linearly. A fully connected net needs no `x`.

Convolution, pooling and attention need `using NNlib`, Fourier transforms a package of
AbstractFFTs, gelu `using SpecialFunctions`.

# Throws

- A Python error with the name and place of an operator that has no expression in Julia,
  such as those that draw random numbers.
- `ArgumentError`: a package is missing.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh", seed = 0);

julia> x = rand(Float32, 3, 4);

julia> lower(wrapper, x)(x) ≈ wrapper(x)
true
```
"""
lower(net::PaddleNet, x; kw...) = lowered(net, x, sample_params(net, x), values(kw))
lower(net::PaddleNet) = lower(net, sample_input(net))

function lower(net::PaddleNet, x, st::NamedTuple)
    moded, kw = used(net, st)
    return LoweredWithState(lowered(moded, x, sample_params(moded, x), kw), st)
end

"Numbers like those of a net at its start."
sample_like(sizes::Dims, ::Type{T}) where {T} =
    T(0.3) * randn(Random.Xoshiro(length(sizes) + sum(sizes; init = 0)), T, sizes)

"""
    sample_params(net, x)

Such numbers for each parameter, in the floating type of the input: a net computes in that of its parameters,
whatever its layer had.
"""
function sample_params(net::PaddleNet, x)
    T = plain_of_precision(common_precision(x))
    eltypes = T === nothing || net.eltype === nothing ? net.eltypes : map(Returns(T), net.eltypes)
    return map(sample_like, Tuple(net.sizes), Tuple(eltypes))
end

plain_of_precision(::Precision{T}) where {T} = T

function sample_input(net::PaddleNet)
    net.features > 0 || throw(
        ArgumentError(
            "only a fully connected net is lowered without an input, got $net; give one of the " *
            "size that it takes, lower(net, x)",
        ),
    )
    return sample_like((net.features, 3), first(net.eltypes))
end

function lowered(given::PaddleNet, x, ps::Tuple, kw::NamedTuple)
    net = in_precision(given, ps)
    call = lowered_call(net, x, ps, kw)
    found = Lowered(net, call, nesting(x, kw), Dict{Any,Any}(), ReentrantLock())
    check_equal(found(x, ps; kw...), evaluate(net, x, ps, kw), net)
    return found
end

function lowered_call(net::PaddleNet, x, ps::Tuple, kw::NamedTuple)
    flat, given = in_a_row(net, x, kw)
    row = input_arrays(flat, given)
    inputs = arrays_among(row...)
    all(!isempty, inputs) || throw(
        ArgumentError(
            "a net is lowered for arrays with elements, got the sizes $(listed(map(size, inputs))); " *
            "give some samples, the number of which may differ in calls",
        ),
    )
    texts, samples, why, constants = lowered_texts(flat, row, map(dense, ps))
    check_packages(texts[1])
    compiled(text) = isempty(text) ? nothing : Operators.compiled(text)
    sizes = Dims[map(size, inputs)...]
    count = isempty(sizes) || isempty(sizes[1]) ? 0 : last(sizes[1])
    held = values(get(kw, :buffers, (;)))
    free = map(arrays_among(given...), sizes) do x, size
        samples == 0 && !any(buffer -> buffer === x, held) ? free_dimension(size, count) : 0
    end
    return LoweredCall(map(compiled, texts)..., constants, texts, sizes, Int[free...], samples, why)
end

"What the Python side makes of a call, in one crossing."
function lowered_texts(net::PaddleNet, row::Tuple, ps::Tuple)
    return crossing() do
        in_turn(both(ps, row)) do
            lower = object_of(net.handle).lower
            made = PythonCall.pynew(call_with(lower, (Py(length(ps)),), (ps..., row...)))
            texts = ntuple(i -> text(made[i-1]), 3)
            samples = whole_number(made[3])
            constants = ntuple(i -> receive_all(made[4+i]), 3)
            return texts, samples, text(made[4]), constants
        end
    end
end

function check_packages(source)
    for (package, names) in Operators.needed(source)
        all(name -> !isempty(methods(getfield(Operators, name))), names) || throw(
            ArgumentError(
                "this net calls $(join(names, ", ")) of $package; say `using $package` first, " *
                "and lower it then",
            ),
        )
    end
    return nothing
end

"""
    check_equal(found, expected, net)

Refuse a lowered net that gives other values than Paddle: no such net is known.
"""
check_equal(found, expected, net) =
    for (a, b) in zip(parts_of(found), parts_of(expected))
        b isa AbstractArray{<:Number} || continue
        rtol = sqrt(eps(real(float(one(eltype(b))))))
        size(a) == size(b) && isapprox(a, b; rtol, nans = true) || error(
            "$net lowered to Julia gives other values than Paddle does, which should not be; use " *
            "the net itself, and report this net",
        )
    end

parts_of(y) = Any[y]
parts_of(ys::Union{Tuple,NamedTuple}) = reduce(vcat, map(parts_of, Tuple(ys)); init = Any[])

(l::Lowered)(args...; kw...) = throw(
    ArgumentError(
        "a lowered net takes its input and its parameters, lowered(x, ps), got $(length(args)) " *
        "arguments; lower(wrapper, x) holds parameters, and lower(net, x, st) takes a state",
    ),
)
(l::Lowered)(x, ps; kw...) = on_columns(l, x) do x
    inputs = arrays_in(l, x, values(kw))
    check_inputs(l.call, inputs)
    return run_lowered(l.call, inputs, in_order(l.net, ps))
end

function arrays_in(l::Lowered, x, kw::NamedTuple)
    check_nesting(l.given, nesting(x, kw))
    args, kwargs = arguments(x, kw)
    return arrays_among(leaves(args)..., leaves(kwargs)...)
end

"How arguments are nested, and those that are no arrays; the seed of random numbers is none."
function nesting(x, kw::NamedTuple)
    args, kwargs = arguments(x, Base.structdiff(kw, NamedTuple{(:seed,)}))
    constants = constants_among(leaves(args)..., leaves(kwargs)...)
    return layout(args), layout(kwargs), constants
end

constants_among() = ()
constants_among(::AbstractArray, rest...) = constants_among(rest...)
constants_among(x, rest...) = (x, constants_among(rest...)...)

function check_nesting(given::Tuple, found::Tuple)
    found[1:2] == given[1:2] || throw(
        ArgumentError(
            "the arguments are nested as $(call_text(found[1:2]...)), the net was lowered for " *
            "$(call_text(given[1:2]...)), with _ for each array or constant; give them so, or lower it " *
            "for these",
        ),
    )
    # As many as before, since there are as many arrays.
    all(map(is_same, found[3], given[3])) || throw(
        ArgumentError(
            "the arguments that are no arrays are $(found[3]), the net was lowered for $(given[3]); " *
            "lower it for these",
        ),
    )
    return nothing
end

is_same(a, b) = a === b || isequal(a, b)
is_same(a::Py, b::Py) = PythonCall.getptr(a) == PythonCall.getptr(b)

arrays_among() = ()
arrays_among(x::AbstractArray, rest...) = (x, arrays_among(rest...)...)
arrays_among(_, rest...) = arrays_among(rest...)

"""
    on_columns(f, lowered, x)

A fully connected net takes arrays of any number of dimensions, column by column; others take one
sample as a vector.
"""
on_columns(f, ::Lowered, x) = f(x)
on_columns(f, l::Lowered, x::AbstractArray) =
    takes_columns(l, x) ? as_columns_of(x, f(as_columns(x))) : f(x)

as_columns_of(x, y::AbstractArray{<:Any,0}) = y
as_columns_of(x, y::AbstractArray) = reshape(y, size(y)[1:end-1]..., size(x)[2:end]...)
as_columns_of(x, ys::Union{Tuple,NamedTuple}) = map(y -> as_columns_of(x, y), ys)

"""
    in_order(net, ps)

Parameters as a tuple of arrays in order, views within a flat vector; of any element type.
"""
function in_order(net::PaddleNet, theta::AbstractVector)
    check_flat(net, theta)
    stops = cumsum(map(prod, net.sizes))
    return ntuple(length(stops)) do i
        reshape(view(theta, stops[i]-prod(net.sizes[i])+1:stops[i]), net.sizes[i])
    end
end
in_order(net::PaddleNet, ps::NamedTuple) = in_order(net, by_position(net, ps))
function in_order(net::PaddleNet, ps::Tuple)
    check_sizes(net, ps)
    return in_filled_arrays(ps)
end
in_order(net::PaddleNet, ps) = param_arrays(net, ps) # which refuses it

"""
    LoweredWithState

What [`lower`](@ref) gives of a net and its state: a function of `(x, ps, st)`.
"""
struct LoweredWithState{L<:Lowered,S<:NamedTuple}
    net::L
    state::S
end

function (l::LoweredWithState)(x, ps, st::NamedTuple)
    isempty(l.state) && isempty(st) && return l.net(x, ps), st
    check_state(l, st)
    # A chain of Linear layers is told nothing by its state.
    kw = isempty(l.net.given[2]) ? (;) : (; buffers = NamedTuple{keys(l.state.buffers)}(st.buffers))
    return with_state(l.net(x, ps; kw...), st, kw)
end
(l::LoweredWithState)(args...; kw...) = throw(
    ArgumentError(
        "what was lowered with a state takes one, lowered(x, ps, st), got " *
        "($(join(map(kind_of, args), ", "))); give the state of PaddleChainRules.initial_state",
    ),
)

function check_state(l::LoweredWithState, st::NamedTuple)
    isempty(st) == isempty(l.state) || throw(
        ArgumentError(
            "the net was lowered with $(kind_of(l.state)) as state, got $(kind_of(st)); give one with " *
            "these names, or lower it with this state",
        ),
    )
    check_state(l.net.net, st)
    st.training === l.state.training || throw(
        ArgumentError(
            "the net was lowered with st.training = $(l.state.training), got $(st.training); lower it " *
            "with this state",
        ),
    )
    return nothing
end

"""
    LoweredModule

What [`lower`](@ref) gives of a wrapper: a function with parameters of its own, for Functors
and Optimisers as the wrapper is.
"""
struct LoweredModule{L<:Lowered,P<:Tuple}
    net::L
    params::P
end

Functors.@functor LoweredModule (params,)
@leaf Lowered

function lower(w::PaddleModuleWrapper, x...; kw...)
    check_all_trained(w, "a lowered net")
    given = isempty(x) && isempty(kw) ? sample_input(w.net) : alone(arguments_of(w, x)...)
    return LoweredModule(lowered(w.net, given, w.params, values(kw)), w.params)
end

(m::LoweredModule)(x...; kw...) = m.net(alone(arguments_of(m, x)...), m.params; kw...)
PaddleHandle(m::LoweredModule) = m.net.net.handle

"Arguments of a wrapper as those of its net."
alone(x::AbstractArray) = x
alone(xs...) = xs

# What the REPL shows of them: how they run, and their code, which is what `print` writes.
const AnyLowered = Union{Lowered,LoweredWithState,LoweredModule}

label(l::Lowered) = l.net.label
label(l::LoweredWithState) =
    isempty(l.state) ? label(l.net) : "$(label(l.net)), in $(mode_name(l.state.training)) mode, with its state"
label(m::LoweredModule) = "$(label(m.net)), $(m.net.net.nparams) parameters"
mode_name(training) = training === Val(true) ? "training" : "test"

lowered_call(l::Lowered) = l.call
lowered_call(l::Union{LoweredWithState,LoweredModule}) = l.net.call

Base.print(io::IO, l::AnyLowered) = print(io, lowered_call(l).texts[1])
Base.show(io::IO, l::AnyLowered) = print(io, "Lowered(", label(l), ")")
Base.summary(io::IO, l::AnyLowered) = show(io, l)
function Base.show(io::IO, ::MIME"text/plain", l::AnyLowered)
    (; samples, back, why, texts) = lowered_call(l)
    show(io, l)
    samples == 0 || print(io, "\n  for ", samples, " samples alone")
    back === nothing && print(io, "\n  differentiated as Julia code: ", why)
    return print(io, "\n", chomp(texts[1]))
end
