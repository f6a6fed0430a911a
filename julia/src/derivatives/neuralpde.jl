# Functions of the shape `derivative(phi, u, x, εs, order, θ)`, which NeuralPDE takes in place of
# its finite differences. There `x` has a point a column, and each of `εs` is zero but for
# the input by which it differentiates.

"""
    exact_derivative(net)
    exact_derivative()

Return a function that gives NeuralPDE exact partial derivatives of a fully connected net.

The function `(phi, u, x, εs, order, θ)` is for
`PhysicsInformedNN(chain, strategy; derivative)`. It does not call `phi` and `u`, but the
net, at the flat parameters `θ`, with `x` of size `(d, n)`. The net is that of the layer
within `phi`, which [`luxlayer`](@ref) has made: in systems of several nets NeuralPDE says
with each call which one it is. See [`derivative`](@ref PaddleChainRules.derivative) for
which nets and orders.

# Arguments

- `net`: the net if `phi` is `nothing`. A lowered one, which is faster if it is small,
  stands in for the net that it was made of, or for a chain of Linear layers alike.

# Throws

The function throws an `ArgumentError` if `phi` holds no such layer, or another net than the
one that was lowered.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> u_xx, θ = exact_derivative(wrapper), reduce(vcat, vec.(wrapper.params));

julia> size(u_xx(nothing, nothing, rand(2, 5), [[1e-3, 0.0], [1e-3, 0.0]], 2, θ))
(1, 5)
```
"""
function exact_derivative(net::Union{PaddleNet,Lowered})
    exact(phi, u, x, εs, order, θ) = exact_at(net_for(phi, net), x, εs, order, θ)
    return exact
end
exact_derivative(w::Union{PaddleModuleWrapper,LoweredModule}) = exact_derivative(w.net)
exact_derivative() = exact_of_phi
exact_of_phi(phi, u, x, εs, order, θ) = exact_at(net_in(phi), x, εs, order, θ)

function exact_at(net, x, εs, order, θ)
    precision, index = common_precision(x, θ), multi_index(εs, order, size(x, 1))
    return derivative(net, input_in(precision, net, x), in_precision_of(precision, θ), index)
end

"What to differentiate for `phi`, where this net is given."
net_for(phi, net::PaddleNet) = phi === nothing ? net : net_in(phi)
function net_for(phi, lowered::Lowered)
    phi === nothing && return lowered
    net = net_in(phi)
    computes_as(net, lowered.net) || throw(
        ArgumentError(
            "$net is to be differentiated, and what was lowered is $(lowered.net); give exact_derivative() " *
            "for systems of several nets, or lower the wrapper that luxlayer was given",
        ),
    )
    return lowered
end

"""
    computes_as(net, other)

Whether two nets compute the same of the same parameters: one net, also in another precision, or
chains of Linear layers alike.
"""
computes_as(net::PaddleNet, other::PaddleNet) =
    net.sizes == other.sizes && (
        net.handle === other.handle || is_derived(net, other) || is_derived(other, net) ||
        is_chain(net.handle) && net.handle.activation == other.handle.activation
    )
is_derived(net::PaddleNet, other::PaddleNet) =
    any(made -> made isa PaddleNet && made.handle === net.handle, values(@atomic other.handle.operators))

"The net within what NeuralPDE calls, which holds a layer of Lux."
net_in(net::PaddleNet) = net
function net_in(f)
    layer = f
    for name in (:lux_model, :smodel, :model) # of NeuralPDE 7, and of 5 and 6
        hasproperty(layer, name) && (layer = getproperty(layer, name))
    end
    hasproperty(layer, :net) && layer.net isa PaddleNet && return layer.net
    throw(
        ArgumentError(
            "exact derivatives are of layers made by luxlayer(wrapper), got $(nameof(typeof(layer))); give " *
            "PhysicsInformedNN such a layer, or another derivative",
        ),
    )
end

"""
    stencil_derivative(phi, u, x, εs, order, θ)

Compute the central differences that NeuralPDE takes by itself, in one call on all points.

They are of second order in the step. Use them for nets that have no exact derivative.

# Arguments

- `phi`, `u`, `x`, `εs`, `order`, `θ`: what NeuralPDE passes to a `derivative`.
  `u(x, θ, phi)` is called once, on all points of the stencil.

# Examples

```jldoctest
julia> x = [0.5 1.0];

julia> y = stencil_derivative(nothing, (x, θ, phi) -> θ .* x .^ 2, x, [[1e-3]], 1, 3.0);

julia> y ≈ 6 .* x
true
```
"""
function stencil_derivative(phi, u, x, εs, order, θ)
    steps = first_steps(εs, order)
    isempty(steps) && return u(x, θ, phi)
    offsets, weights = map(part -> beside((x,), part), stencil(map(collect, steps)))
    d, m = size(x, 1), length(weights)
    points = reshape(reshape(x, d, :, 1) .+ reshape(offsets, d, 1, m), d, :)
    values = u(points, θ, phi)
    return reshape(reshape(values, :, m) * weights, size(values, 1), size(x)[2:end]...)
end

function first_steps(εs, order)
    0 <= order <= length(εs) || throw(
        ArgumentError("a derivative of order $order takes as many steps of εs, which has $(length(εs))"),
    )
    return εs[1:order]
end

function multi_index(εs, order, d)
    index = zeros(Int, d)
    for ε in first_steps(εs, order)
        length(ε) == d || throw(
            DimensionMismatch("a step has $(length(ε)) entries, the points have $d"),
        )
        i = findall(!iszero, collect(ε))
        length(i) == 1 || throw(
            ArgumentError("a step must differ from zero in one entry, got $ε"),
        )
        index[only(i)] += 1
    end
    return Tuple(index)
end

# Offsets in steps and weights of the central difference of each order. Source: Fornberg,
# "Generation of finite difference formulas", Mathematics of Computation 51, 1988.
const CENTRAL = (
    ((-1, -1 / 2), (1, 1 / 2)),
    ((-1, 1), (0, -2), (1, 1)),
    ((-2, -1 / 2), (-1, 1), (1, -1), (2, 1 / 2)),
    ((-2, 1), (-1, -4), (0, 6), (1, -4), (2, 1)),
)

"""
    stencil(εs) -> offsets, weights

Of all points of the product of the central differences along the steps: a matrix with an offset
a column, and a vector.
"""
function stencil(εs)
    T = eltype(first(εs))
    terms = [(zero(first(εs)), one(T))]
    for ε in unique(εs)
        order, step = count(==(ε), εs), only(filter(!iszero, ε))
        order <= length(CENTRAL) || throw(
            ArgumentError("differences are of order 4 at most in one direction, got $order"),
        )
        terms = [
            (offset .+ k .* ε, weight * T(w) / step^order) for (offset, weight) in terms for
            (k, w) in CENTRAL[order]
        ]
    end
    return reduce(hcat, first.(terms)), last.(terms)
end

"""
    PaddleDerivative()

Have NeuralPDE 7 and newer differentiate nets exactly, by Taylor series, not by differences.

Pass it as `derivative` to `PhysicsInformedNN`. It serves layers made by [`luxlayer`](@ref),
for derivatives of total order one to four, mixed ones too, of dependent variables with
respect to independent variables and numbers. The gradient with respect to parameters is
Zygote's, since Enzyme cannot see into Paddle. Needs `using NeuralPDE`.

# Examples

```julia
layer = luxlayer(PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh"))
discretization =
    PhysicsInformedNN(layer, GridTraining(0.05); derivative = PaddleDerivative())
problem = discretize(system, discretization; adtype = AutoZygote())
```
"""
PaddleDerivative(given...) = throw(
    ArgumentError(
        Base.get_extension(@__MODULE__, :PaddleChainRulesNeuralPDEExt) === nothing ?
        "PaddleDerivative needs NeuralPDE 7 or newer; say `using NeuralPDE` first (for older ones " *
        "there is exact_derivative)" :
        "the call is PaddleDerivative(), got $(length(given)) arguments; leave them out",
    ),
)

"""
    row_derivative(net, x, θ, directions, k) -> (1, n)

Output `k` of a net, differentiated once by each of `directions`, tuples of rows of `x` along
whose sum each goes.
"""
function row_derivative(net::PaddleNet, x, θ, directions::Tuple{Vararg{Tuple{Vararg{Int}}}}, k)
    counts, precision = index_counts(directions, size(x, 1)), common_precision(x, θ)
    isempty(counts) && return zeros_like(x, eltype(x), (1, size(x, 2)))
    parts = derivatives(net, in_precision_of(precision, x), in_precision_of(precision, θ), first.(counts))
    return weighted_row(parts, last.(counts), k)
end

weighted_row(parts, weights, k) = sum(map((part, w) -> w .* part[k:k, :], parts, weights))

"Multi-indices, and how often each comes about when one row is chosen of each direction."
function index_counts(directions, d::Int)
    1 <= length(directions) <= 4 || throw(
        ArgumentError(
            "exact derivatives are of total order one to four, got $(length(directions)); " *
            "introduce a variable for an inner one",
        ),
    )
    counts = Dict{NTuple{d,Int},Int}()
    for rows in Iterators.product(directions...)
        index = ntuple(i -> count(==(i), rows), d)
        counts[index] = get(counts, index, 0) + 1
    end
    return Tuple(sort!(collect(counts)))
end
