# Native Paddle as the oracle: the untouched layer, called and differentiated in Python.

using PaddleChainRules: PaddleChainRules, paddle
using PythonCall
using Random: Xoshiro

"Call what goes over tasks, as Lux's batched Jacobians, where there is a thread for them: 1.12 has one."
over_tasks(f) = Threads.nthreads(:interactive) + Threads.nthreads() > 1 ? PaddleChainRules.threaded(f) : f()

"A dense copy of a tensor by way of numpy, dimensions reversed: not the way under test."
function from_numpy(tensor)
    array = pyconvert(Array, tensor.detach().numpy())
    return permutedims(array, reverse(1:ndims(array)))
end

"A tensor of a Julia array by way of numpy, dimensions reversed: not the way under test."
function to_tensor(x::AbstractArray)
    array = permutedims(Array(x), reverse(1:ndims(x)))
    return paddle.to_tensor(pyimport("numpy").asarray(array))
end

"""
    native(layer, xs, cotangents; kwargs = (;)) -> outputs, parameter gradients, input gradients

Of the layer itself, by `paddle.grad`: those of the floating arrays of `xs` and `kwargs`, which may
be nested, in a row. `outputs(y)` picks the tensors that count.
"""
function native(layer, xs::Tuple, cotangents::Tuple; outputs = y -> (y,), kwargs = (;))
    floating = Py[]
    args, named = to_python(xs, floating), to_python(kwargs, floating)
    ys = outputs(pyimport("functools").partial(layer, args...)(; (Symbol(string(k)) => named[k] for k in named)...))
    params = [p for p in layer.parameters() if !pytruth(p.stop_gradient)]
    found = paddle.grad(
        pylist(ys), pylist([params; floating]), pylist(map(to_tensor, cotangents));
        allow_unused = true,
    )
    grads = [pyis(g, pybuiltins.None) ? nothing : from_numpy(g) for g in found]
    return map(from_numpy, ys), grads[1:length(params)], grads[(length(params)+1):end]
end

"Nested arguments as Python's, the floating tensors among them recorded, and in a row."
function to_python(x::AbstractArray, floating)
    tensor = to_tensor(x)
    if eltype(x) <: AbstractFloat
        tensor.stop_gradient = false
        push!(floating, tensor)
    end
    return tensor
end
to_python(x, _) = Py(x)
to_python(x::Symbol, _) = Py(string(x))
to_python(xs::Tuple, floating) = pytuple([to_python(x, floating) for x in xs])
to_python(xs::NamedTuple, floating) =
    pydict([string(k) => to_python(x, floating) for (k, x) in pairs(xs)])

"Equal in size and element type, and element by element in value."
function same(found, expected; rtol = 1e-5, atol = 1e-6)
    size(found) == size(expected) || return false
    eltype(found) == eltype(expected) || return false
    return all(isapprox.(found, expected; rtol, atol))
end

"""
    importing(name)

A module that imports Paddle, once Paddle is there: the import of Paddle itself is guarded, without which
its handlers of signals stay.
"""
importing(name) = (paddle.__version__; pyimport(name))

"A module of Python's tests."
function python_module(name)
    sys = pyimport("sys")
    tests = joinpath(dirname(dirname(@__DIR__)), "tests")
    pyin(tests, sys.path) || sys.path.insert(0, tests)
    return importing(name)
end

"Everything of a layer that no call may change: tensors, buffers, gradients, modes, flags, hooks."
snapshot(layer) = python_module("snapshots").snapshot(layer)

"Whether it is as it was; where not, Python's assertion says what changed."
function is_unchanged(layer, before)
    python_module("snapshots").assert_unchanged(layer, before)
    return true
end

"Whether `f()` leaves the layer as it was."
function unchanged(f, layer)
    before = snapshot(layer)
    f()
    return is_unchanged(layer, before)
end

"""
    counted(f, names...) -> Vector{Int}

How often `f()` calls each of some functions, `"module:attribute"`.
"""
function counted(f, names...)
    count = python_module("counts").counted(names...)
    pywith(_ -> f(), count)
    return pyconvert(Vector{Int}, pylist(count.calls))
end

"Whether anything may run as a program, by the environment."
programs_are_on() = pyconvert(Bool, importing("paddle_chainrules.settings").programs_are_on())

"The names of the operators that programs run within `f()`, in turn."
function operators_run(f)
    found = python_module("counts").operators_run()
    pywith(_ -> f(), found)
    return pyconvert(Vector{String}, found.names)
end

sequential() = paddle.nn.Sequential(
    paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2),
)
