# Second-order methods for losses that are written in Julia.

"""
    PaddleChainRules.SecondOrder(method; options...)

A method of [`minimize`](@ref PaddleChainRules.minimize), by its name, with its options.

# Examples

```jldoctest
julia> PaddleChainRules.SecondOrder(:lbfgs; memory = 30)
PaddleChainRules.SecondOrder(:lbfgs; memory = 30)
```
"""
struct SecondOrder
    method::Symbol
    options::NamedTuple
end
SecondOrder(method::Symbol; options...) = SecondOrder(method, NamedTuple(options))
Base.show(io::IO, of::SecondOrder) =
    print(io, "PaddleChainRules.SecondOrder(", repr(of.method), isempty(of.options) ? "" : "; ", join(("$k = $(repr(v))" for (k, v) in pairs(of.options)), ", "), ")")

"""
    PaddleChainRules.SelfScaledBroyden(; options...)

The self-scaled method of Broyden's class, for any loss and some thousand parameters.

# Examples

```jldoctest
julia> PaddleChainRules.SelfScaledBroyden()
PaddleChainRules.SecondOrder(:self_scaled_broyden)
```
"""
SelfScaledBroyden(; options...) = SecondOrder(:self_scaled_broyden; options...)

"""
    PaddleChainRules.LevenbergMarquardt(; options...)

Levenberg's and Marquardt's method, for residuals.

# Examples

```jldoctest
julia> PaddleChainRules.LevenbergMarquardt(damping = 1e-3)
PaddleChainRules.SecondOrder(:levenberg_marquardt; damping = 0.001)
```
"""
LevenbergMarquardt(; options...) = SecondOrder(:levenberg_marquardt; options...)

const OF_RESIDUALS = (:levenberg_marquardt, :gauss_newton, :natural_gradient)

"""
    Minimum

What [`minimize`](@ref PaddleChainRules.minimize) has found.

# Fields

- `ps`: the parameters, in the form in which they were given.
- `value`: the loss, or half the sum of the squares of the residuals.
- `gradient`: the largest entry of its gradient.
- `steps`, `evaluations`: how many there were.
- `converged`: whether a tolerance was met.
- `reason`: why there are no more steps, in words.

# Examples

```jldoctest
julia> found = PaddleChainRules.minimize(x -> sum(abs2, x .- 3), zeros(2));

julia> found.ps ≈ [3, 3], found.converged
(true, true)
```
"""
struct Minimum{P}
    ps::P
    value::Float64
    gradient::Float64
    steps::Int
    evaluations::Int
    converged::Bool
    reason::String
end
Base.show(io::IO, of::Minimum) = print(
    io, "Minimum(value = ", of.value, ", gradient = ", of.gradient, ", steps = ", of.steps, ", evaluations = ",
    of.evaluations, ", converged = ", of.converged, ", reason = ", repr(of.reason), ")",
)

"""
    PaddleChainRules.minimize(loss, ps, data...;
        method = SelfScaledBroyden(), maxiters = 1000, seconds = Inf,
        callback = nothing, every = 1) -> found
    PaddleChainRules.minimize(loss, net, ps, data...; options...) -> found

Minimize a loss by a second-order method, from these parameters on.

On equations, these methods reach errors hundreds of times smaller than Adam in the same
time. The loss is traced as by [`train!`](@ref PaddleChainRules.train!), and its value,
gradient and Jacobian become programs. Use `Float64`: in `Float32` rounding ends a search
early.

# Arguments

- `loss`: a function `loss(ps, data...)` or `loss(net, ps, data...)`, made of what `train!`
  knows. It returns a number, or for a method of least squares the residuals: an array, or
  a tuple of arrays.
- `ps`: a vector, a `ComponentVector`, or nested named tuples of dense arrays. They stay as
  they are.
- `method`: `SelfScaledBroyden()`, `LevenbergMarquardt()`, or `SecondOrder(name)` of
  `:lbfgs`, `:bfgs`, `:gauss_newton` and `:natural_gradient`. Those of `:levenberg_marquardt`,
  `:gauss_newton` and `:natural_gradient` take residuals. Options are those of Python's
  functions in `paddle_chainrules.optimizers`, such as `LevenbergMarquardt(damping = 1e-3)`.
- `maxiters`, `seconds`: the most steps, and the most time.
- `callback`: called as `callback(step, value, ps)` after each `every` steps. If it returns
  `true`, the search ends.

# Returns

A [`Minimum`](@ref PaddleChainRules.Minimum). Ctrl-C ends the search, too.

# Throws

- [`TraceError`](@ref PaddleChainRules.TraceError): the loss needs a value while it is
  traced, such as in `if`.
- `ArgumentError`: there is no such method or option; the loss gives something else, or is
  not finite at the start.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(1, 1, 3, 8; dtype = "float64", activation = "tanh", seed = 0);

julia> net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params));

julia> x = collect(reshape(range(-3, 3; length = 64), 1, :));

julia> residuals(net, theta, x) = net(x, theta) .- sin.(x);

julia> method = PaddleChainRules.LevenbergMarquardt();

julia> found = PaddleChainRules.minimize(residuals, net, theta, x; method, maxiters = 100);

julia> found.value < 1e-4
true
```
"""
function minimize(
    loss, ps, data...; method::SecondOrder = SelfScaledBroyden(), maxiters::Integer = 1000, seconds::Real = Inf,
    callback = nothing, every::Integer = 1,
)
    maxiters >= 0 && every >= 1 && seconds >= 0 || throw(
        ArgumentError(
            "minimize takes 0 steps or more, in 0 seconds or more, and reports after 1 or more, got maxiters = $maxiters, " *
            "seconds = $seconds, every = $every",
        ),
    )
    leaves = TrainedLeaf[]
    Functors.fmap(x -> (x isa AbstractArray{<:AbstractFloat} && push!(leaves, TrainedLeaf(nothing, x)); x), ps)
    isempty(leaves) && throw(ArgumentError("minimize changes arrays of floating numbers, got $(summary(ps)), which has none"))
    foreach(check_trained, leaves)
    check_device(Any[leaf.array for leaf in leaves])
    of_tensors = loss_of_tensors(
        ps -> loss(ps, data...), ps, leaves,
        method.method in OF_RESIDUALS ? checked_residuals : value -> checked_loss(value).tensor,
    )
    return searched(of_tensors, ps, leaves, method, Int(maxiters), Float64(seconds), callback, Int(every))
end
minimize(loss, net::PaddleNet, ps, data...; options...) = minimize(LossOfNet(loss, net), ps, data...; options...)

"What `train!` does where the state is a method."
function train_by_search!(loss, ps, method::SecondOrder, data, steps, callback, every)
    losses = Float64[]
    function noted(step, value, found)
        push!(losses, value)
        callback === nothing || step % every != 0 && step != steps || return callback(step, value, found) === true
        return false
    end
    found = minimize(loss, ps, data...; method, maxiters = steps, callback = noted)
    Functors.fmap((x, y) -> (x isa AbstractArray{<:AbstractFloat} && copyto!(x, y); x), ps, found.ps)
    return losses
end

"What a search finds, of a function of tensors that Python calls; `wrapped` is its name in Python."
function searched(of_tensors, ps, leaves, method, maxiters, seconds, callback, every; wrapped = nothing)
    constants, failure = Dict{Any,Py}(), Failure(nothing)
    search = in_julias_words() do
        crossing() do
            python = pyimport("paddle_chainrules.bridge.minimizing")
            options = PythonCall.pydict(Dict(string(k) => v for (k, v) in pairs(method.options)))
            fn = called_by_python(of_tensors, failure)
            wrapped === nothing || (fn = getproperty(python, Symbol(wrapped))(fn))
            tensors = pytuple([own_tensor(dense(leaf.array)) for leaf in leaves])
            python.Minimizing(string(method.method), fn, tensors, options, maxiters)
        end
    end
    reason = run_search!(search, ps, leaves, constants, failure, callback, maxiters, seconds, every)
    return outcome(search, ps, leaves, constants, failure, reason)
end

"""
    minimize_by_gradient(value_and_gradient, θ, method; maxiters, seconds, callback)

Minimize a function of a vector that is not traced: `value_and_gradient(θ)` returns both.
"""
function minimize_by_gradient(value_and_gradient, θ::Vector, method::SecondOrder; maxiters, seconds, callback)
    method.method in OF_RESIDUALS && throw(
        ArgumentError("$(method.method) needs residuals that can be traced; use SelfScaledBroyden(), or SecondOrder(:lbfgs)"),
    )
    function of_tensor(tensor::Py)
        value, gradient = value_and_gradient(Array(receive(tensor)))
        return pytuple((own_tensor(fill(eltype(θ)(value))), own_tensor(convert(Vector{eltype(θ)}, gradient))))
    end
    leaves = [TrainedLeaf(nothing, θ)]
    return searched(of_tensor, θ, leaves, method, maxiters, seconds, callback, 1; wrapped = "GivenGradient")
end

"Steps until the search ends, or the callback, the time or the user ends it: why it was ended, or nothing."
function run_search!(search, ps, leaves, constants, failure, callback, maxiters, seconds, every)
    deadline, steps = time() + seconds, 0
    try
        while steps < maxiters
            left = deadline - time()
            left > 0 || return "the time is over"
            due = callback === nothing ? maxiters : min(steps + every - steps % every, maxiters)
            ended, steps, value = advanced_search!(search, due, min(left, SLICE), leaves, constants, failure)
            ended && return nothing
            if callback !== nothing && steps == due
                callback(steps, value, found_params(search, ps, leaves)) === true && return "the callback returned true"
            end
        end
        return nothing
    catch err
        err isa InterruptException || rethrow()
        return "it was interrupted"
    end
end

advanced_search!(search, most, seconds, leaves, constants, failure) = in_julias_words() do
    reporting(failure) do
        crossing() do
            ended = with_constants(constants, first(leaves).array) do
                search.advance(most, seconds)
            end
            return PythonCall.pyconvert(Bool, ended), PythonCall.pyconvert(Int, search.steps), PythonCall.pyconvert(Float64, search.value)
        end
    end
end

function outcome(search, ps, leaves, constants, failure, reason)
    gradient, evaluations, converged, own = in_julias_words() do
        reporting(failure) do
            crossing() do
                with_constants(() -> search.finish(), constants, first(leaves).array)
                PythonCall.pyconvert(Tuple{Float64,Int,Bool,String}, search.outcome())
            end
        end
    end
    value, steps = crossing(() -> (PythonCall.pyconvert(Float64, search.value), PythonCall.pyconvert(Int, search.steps)))
    return Minimum(
        found_params(search, ps, leaves), value, gradient, steps, evaluations, converged, something(reason, own),
    )
end

"The parameters that a search has reached, in the form of those that it began from."
function found_params(search, ps, leaves::Vector{TrainedLeaf})
    arrays = crossing(() -> map(tensor -> Array(receive(tensor)), items(search.now())))
    found = IdDict{Any,Any}(leaf.array => like_given(leaf.array, x) for (leaf, x) in zip(leaves, arrays))
    is_leaf(x) = haskey(found, x) || Functors.isleaf(x)
    return Functors.fmap(x -> get(found, x, x), ps; exclude = is_leaf)
end
like_given(given::Array, x) = x
like_given(given, x) = copyto!(similar(given), x)

checked_residuals(value::AnyTraced) = value.tensor
checked_residuals(values::Union{Tuple,AbstractVector}) = pytuple(map(checked_residuals, Tuple(values)))
checked_residuals(value) = throw(
    ArgumentError(
        "the residuals are $(kind_of(value)), which does not depend on the parameters; give an array, or a tuple of arrays, " *
        "that is computed from them",
    ),
)

"`f()`, of whose errors those about what it was given are thrown as Julia's."
function in_julias_words(f)
    try
        return f()
    catch err
        err isa PyException || rethrow()
        name, words = crossing(() -> (pytype_name(err.v), string(err.v)))
        name in ("ValueError", "TypeError", "CaptureError") || rethrow()
        throw(ArgumentError(words))
    end
end
