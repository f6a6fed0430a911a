# Many steps of training, compiled.

"Seconds of steps between two looks at Julia: for an interrupt, and to write down what there is."
const SLICE = 0.1

"""
    PaddleChainRules.train!(loss, ps, state, data...;
        steps, callback = nothing, every = 1) -> losses
    PaddleChainRules.train!(loss, net, ps, state, data...;
        steps, callback = nothing, every = 1) -> losses

Run many steps of an optimizer of Optimisers on a loss, as one compiled program a step.

It does what a loop of `Zygote.gradient` and `Optimisers.update!` does. The loss and the
rule are traced: they are called a few times with arrays that stand for Paddle's tensors,
and their operations become the program.

# Arguments

- `loss`: a function `loss(ps, data...)` or `loss(net, ps, data...)` that returns a number.
  It is made of nets, [`derivatives`](@ref), [`laplacian`](@ref) and other functions of
  nets, broadcasts of any function of numbers, sums, products, slices, and `vcat`. It must
  depend on nothing that changes from step to step. Arrays that it has from elsewhere are
  constants.
- `ps`: anything that `Optimisers.setup` takes: a flat vector, a `ComponentVector`, nested
  named tuples, a wrapper. Its arrays are updated in place. What is frozen stays.
- `state`: `Optimisers.setup(rule, ps)`, updated in place, so that you can go on with
  `Optimisers.update!` or another `train!`. Or a method of
  [`minimize`](@ref PaddleChainRules.minimize), such as `SelfScaledBroyden()`.
- `steps`: the number of steps.
- `callback`: called as `callback(step, loss, ps)` after each `every` steps and after the
  last. If it returns `true`, training ends. It may change `ps` and `state`, and the
  learning rate by `Optimisers.adjust!(state, rate)`. For another rule, or other settings
  of it, the step is traced anew, which takes longer than many steps. After an error of its own, or Ctrl-C, `ps` and `state` are those of a finished step, at
  most a tenth of a second old.

# Returns

The loss of each step, before its update.

# Throws

- [`TraceError`](@ref PaddleChainRules.TraceError): the loss needs a value while it is
  traced, such as in `if`.
- `ArgumentError`: the loss is no number, or the state is of another tree.

# Examples

```jldoctest
julia> using Optimisers

julia> wrapper = PaddleFCNet(1, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params));

julia> x = collect(reshape(range(-3, 3; length = 64), 1, :));

julia> state = Optimisers.setup(Optimisers.Adam(0.01), theta);

julia> loss(net, theta, x, y) = sum(abs2, net(x, theta) .- y) / length(y);

julia> losses = PaddleChainRules.train!(loss, net, theta, state, x, sin.(x); steps = 500);

julia> losses[end] < losses[1] / 10
true
```
"""
function train!(loss, model, state, data...; steps::Integer, callback = nothing, every::Integer = 1)
    steps >= 0 && every >= 1 || throw(
        ArgumentError("train! makes 0 steps or more, and reports after 1 or more, got steps = $steps, every = $every"),
    )
    state isa SecondOrder && return train_by_search!(loss, model, state, data, steps, callback, every)
    Base.get_extension(@__MODULE__, :PaddleChainRulesOptimisersExt) === nothing && throw(
        ArgumentError("train! takes the state of an optimizer of Optimisers; load it, using Optimisers, for its setup"),
    )
    callback === nothing && return some_steps(loss, model, state, data, Int(steps), nothing, Int(every))
    reported = Reported(callback, state, model, 0, Int(steps), false)
    losses = some_steps(loss, model, state, data, Int(steps), reported, Int(every))
    while reported.changed
        reported.done, reported.changed = length(losses), false
        append!(losses, some_steps(loss, model, state, data, Int(steps) - reported.done, reported, Int(every)))
    end
    return losses
end
train!(loss, net::PaddleNet, ps, state, data...; options...) = train!(LossOfNet(loss, net), ps, state, data...; options...)

"Steps until all are done or the callback ends them."
function some_steps(loss, model, state, data::Tuple, steps::Int, callback, every::Int)
    leaves = trained_leaves(state, model)::Vector{TrainedLeaf}
    isempty(leaves) && throw(
        ArgumentError("the state has no leaf that is trained; give Optimisers.setup(rule, ps), with some not frozen"),
    )
    foreach(check_trained, leaves)
    steps == 0 && return eltype(first(leaves).array)[]
    known = known_loop(loss, model, leaves, data)
    known === nothing || return steps_by_code(known, model, leaves, steps, callback, every)
    return run_steps(loss, data, model, leaves, steps, callback, every)
end

"""
    Reported(callback, state, model, done, steps, changed)

The caller's callback, for steps that follow `done` others. If it changes what the next step begins with, `changed` is
true and the steps end, so that `train!` can begin anew. Learning rates are read after each report.
"""
mutable struct Reported
    callback::Any
    state::Any
    model::Any
    done::Int
    steps::Int
    changed::Bool
end
function (of::Reported)(step, value, model)
    before = start_of_steps(of.state, of.model)
    of.callback(of.done + step, value, model) === true && return true
    return of.changed = of.done + step < of.steps && !isequal(before, start_of_steps(of.state, of.model))
end

all_rates(leaves::Vector{TrainedLeaf}) = Any[rates(trained.leaf.rule) for trained in leaves]

"What steps begin with: for each leaf its rule but for its rates, and copies of its array and its state."
start_of_steps(state, model) = [
    (objectid(trained.leaf), without_rates(trained.leaf.rule), objectid(trained.array), map(as_carry, Any[trained.array, state_parts(trained.leaf.state)...]))
    for trained in trained_leaves(state, model)::Vector{TrainedLeaf}
]

"The loss of parameters and data that is one of a net, too."
struct LossOfNet{F,N<:PaddleNet}
    loss::F
    net::N
end
(of::LossOfNet)(ps, data...) = of.loss(of.net, ps, data...)

function check_trained(trained::TrainedLeaf)
    x = trained.array
    x isa DenseArray && eltype(x) <: AbstractFloat && haskey(FLOATS, dtype_name(eltype(x))) || throw(
        ArgumentError(
            "train! writes into what it trains, dense arrays of Float32 or Float64, got $(summary(x)); make such a one, " *
            "such as collect(x)",
        ),
    )
    return nothing
end

function run_steps(loss, data::Tuple, model, leaves::Vector{TrainedLeaf}, steps::Int, callback, every::Int)
    check_device(Any[trained.array for trained in leaves])
    constants, failure = Dict{Any,Py}(), Failure(nothing)
    training = crossing() do
        of_array(x::AbstractArray) = own_tensor(dense(x))
        of_array(x::Real) = own_tensor(beside((first(leaves).array,), fill(x)))
        params = pytuple([of_array(trained.array) for trained in leaves])
        states = pytuple([of_array(x) for trained in leaves for x in carried(trained.leaf)])
        BRIDGE.Training(
            called_by_python(loss_of_tensors(ps -> loss(ps, data...), model, leaves), failure),
            called_by_python(rule_of_tensors(leaves), failure),
            params, states, steps,
        )
    end
    code = step_code(training, leaves, constants, failure)
    if code !== nothing
        remember_loop!(loss, model, leaves, data, code)
        return steps_by_code(code, model, leaves, steps, callback, every)
    end
    losses, done, stops = nothing, 0, false
    while done < steps && !stops
        due = min(done + every - done % every, steps)
        before = done
        most = callback === nothing ? steps : due
        done, latest = advanced!(training, leaves, before, most, constants, failure)
        losses === nothing && (losses = similar(latest, 0))
        append!(losses, latest)
        given = all_rates(leaves)
        stops = callback !== nothing && done == due && callback(done, last(losses), model) === true
        if !stops && done < steps && all_rates(leaves) != given
            stops = callback.changed = true
        end
    end
    return losses
end

"`f()`, in which constants of a loss are kept here. Within a crossing."
function with_constants(f, constants, trained = Float64[])
    before = CONSTANTS[], TRAINED[]
    CONSTANTS[], TRAINED[] = constants, trained
    try
        return f()
    finally
        CONSTANTS[], TRAINED[] = before
    end
end

"""
    advanced!(training, leaves, done, most, constants, failure) -> done, losses

Some more steps, after which parameters and states are written down. In one crossing, which no
interrupt divides.
"""
function advanced!(training::Py, leaves::Vector{TrainedLeaf}, done::Int, most::Int, constants, failure::Failure)
    return reporting(failure) do
        crossing() do
            args = map(Py, (done, most, SLICE))
            found = with_constants(constants, first(leaves).array) do
                GC.@preserve args call(training.advance, map(PythonCall.getptr, args))
            end
            now = whole_number(PythonCall.pynew(found))
            tensors, latest = training.now(now, done)
            write_down!(leaves, map(receive, items(tensors)), now)
            return now, Array(receive(latest[0]))
        end
    end
end

"`f()`, of whose errors those of Julia's code that Python has called are thrown as they were."
function reporting(f, failure::Failure)
    try
        return f()
    catch err
        err isa PyException && failure.error !== nothing || rethrow()
        crossing(() -> pytype_name(err.v)) == "JuliaError" || rethrow()
        throw(failure.error)
    end
end

function write_down!(leaves::Vector{TrainedLeaf}, arrays::Vector, step::Int)
    for (trained, new) in zip(leaves, arrays)
        needs_finite(trained.leaf.rule) && !all(isfinite, new) && throw(
            DomainError(
                step, "a gradient was not finite within the steps up to this one, which ClipNorm refuses; the parameters " *
                "are those of the report before",
            ),
        )
    end
    states = arrays[length(leaves)+1:end]
    for (trained, new) in zip(leaves, arrays)
        splice!(states, 1:length(rates(trained.leaf.rule)))
        copyto!(trained.array, new)
        trained.leaf.state = with_parts(written, trained.leaf.state, states)
    end
    return nothing
end

written(old::DenseArray, new::AbstractArray) = copyto!(old, new)
written(old::AbstractArray, new::AbstractArray) = convert(typeof(old), new)
written(old::Real, new::AbstractArray) = convert(typeof(old), only(collect(new)))
