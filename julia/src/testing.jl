# Comparisons for tests, of this package's and of your own layers; the twin of Python's.

using Random: Xoshiro

# As in `paddle_chainrules.testing`, which says why: of errors relative to the largest entry, the
# least that counts as one, as a part of the largest of all, and the step of differences.
const TOLERANCES = Dict(Float32 => 1e-4, Float64 => 1e-10)
const LEAST = 1e-2
const DIFFERENCES = 1e-5
const STEP = 1e-6

"""
    Row

One array against one oracle; `where` is the index of the largest error, `nothing` where an
array was compared as a whole.
"""
struct Row
    eltype::DataType
    oracle::String
    label::String
    size::Dims
    error::Float64
    where::Union{Nothing,Dims}
    tolerance::Float64
end

passes(row::Row) = row.error <= row.tolerance

"""
    Report

The result of a comparison: printed it is a table.

`rows` holds an entry for each array and oracle, and `ok` is true if all of them agree.

# Examples

```jldoctest
julia> report = PaddleChainRules.check_vjp(paddle.nn.Linear(3, 2), rand(Float32, 3, 4));

julia> report.ok
true
```
"""
struct Report
    rows::Vector{Row}
end

Base.getproperty(report::Report, name::Symbol) =
    name === :ok ? all(passes, report.rows) : getfield(report, name)
Base.propertynames(::Report) = (:rows, :ok)

function Base.show(io::IO, ::MIME"text/plain", report::Report)
    table = [("type", "oracle", "array", "size", "error", "where", "")]
    for row in report.rows
        digits = round(row.error; sigdigits = 2)
        mark = passes(row) ? "" : "more than $(row.tolerance)"
        place = row.where === nothing ? "" : join(row.where, ", ")
        push!(table, (string(row.eltype), row.oracle, row.label, join(row.size, "×"), string(digits), place, mark))
    end
    return print(io, aligned(table))
end
Base.show(io::IO, report::Report) =
    print(io, "Report(", length(report.rows), " arrays, ", report.ok ? "all agree" : "some differ", ")")

passed(report::Report) =
    report.ok ? report : throw(AssertionError("arrays differ\n" * sprint(show, MIME("text/plain"), report)))

"""
    PaddleChainRules.check_vjp(layer, args...;
        eltypes = (Float32, Float64), seed = 0, kwargs...)

Compare a layer's outputs and gradients, as they arrive in Julia, with two oracles.

They are compared element by element, with random cotangents. The oracles are `native`, the
untouched layer, called and differentiated by `paddle.grad` on copies made by way of numpy;
and `differences`, central differences in Float64, along a random direction of each array.
The layer and Paddle's random state are left as they were.

# Arguments

- `layer`: a `paddle.nn.Layer`. Random layers draw the same numbers every time.
- `args`, `kwargs`: the layer's arguments, which may be nested.
- `eltypes`: the element types that floating arrays are converted to, one after another.
- `seed`: the seed of cotangents and directions.

# Returns

A [`Report`](@ref PaddleChainRules.Report) with a row for each array and oracle.

# Throws

- `AssertionError` with the table: they differ.

# Examples

```jldoctest
julia> PaddleChainRules.check_vjp(paddle.nn.Linear(3, 2), rand(Float32, 3, 4)).ok
true
```
"""
function check_vjp(layer, args...; eltypes = (Float32, Float64), seed::Integer = 0, kwargs...)
    rows = Row[]
    for T in eltypes
        side = Side(layer, T, args, values(kwargs))
        ȳ = random_cotangent(Xoshiro(seed), output(side, side.params, side.args, side.kwargs))
        found, expected = gradients(side, ȳ), native(side, ȳ)
        least = LEAST * maximum(largest, expected; init = 0.0)
        for ((label, a), b) in zip(found, expected)
            push!(rows, compared(T, "native", label, a, b, TOLERANCES[T], least))
        end
        T === Float64 && append!(rows, differences(side, ȳ, found, Xoshiro(seed + 1)))
    end
    return passed(Report(rows))
end

"""
    PaddleChainRules.compare(f, g, args...; tolerance, move = identity)

Call two functions on the same arguments, and compare the arrays that they return.

# Arguments

- `f`, `g`: the functions; `g` is the reference.
- `args`: the arguments of both.
- `tolerance`: of errors relative to the largest entry; by default it depends on the element
  type.
- `move`: a function that is applied to every array before, for example `cu`.

# Returns

A [`Report`](@ref PaddleChainRules.Report).

# Throws

- `AssertionError`: they differ in nesting, size, element type or value.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 3, 16; activation = "tanh", seed = 0);

julia> PaddleChainRules.compare(wrapper, lower(wrapper), rand(Float32, 3, 8)).ok
true
```
"""
function compare(f, g, args...; tolerance = nothing, move = identity)
    moved = map(x -> nested_as((leaf, _) -> leaf isa AbstractArray ? move(leaf) : leaf, x, anything()), args)
    found, expected = labelled(f(moved...), "output"), labelled(g(moved...), "output")
    first.(found) == first.(expected) ||
        throw(AssertionError("outputs are nested as $(first.(found)) and $(first.(expected))"))
    rows = Row[]
    for ((label, a), (_, b)) in zip(found, expected)
        if !(b isa AbstractArray)
            isequal(a, b) || throw(AssertionError("$label is $(repr(a)) and $(repr(b))"))
            continue
        end
        T = eltype(b)
        allowed = something(tolerance, get(TOLERANCES, T, 0.0))
        push!(rows, compared(T, "other", label, a, b, allowed, 0.0))
    end
    return passed(Report(rows))
end

"A layer in one element type, its net, and its arguments in that type."
struct Side
    layer::Py
    net::PaddleNet
    params::Tuple
    args::Tuple
    kwargs::NamedTuple
end

function Side(layer, T::DataType, args::Tuple, kwargs::NamedTuple)
    copied = pyimport("copy").deepcopy(Py(layer)).to(dtype = lowercase(string(T)))
    wrapper = PaddleModuleWrapper(copied)
    converted(x, _) = x isa AbstractArray{<:AbstractFloat} ? convert(Array{T}, dense(x)) : x
    all = nested_as(converted, (args, kwargs), anything())
    return Side(copied, wrapper.net, wrapper.params, all...)
end

"A row for `nested_as` whose items do not matter."
anything() = Iterators.Stateful(Iterators.repeated(nothing))

# The same random numbers each time; a net without a seed draws none.
seeded(side::Side, kwargs = side.kwargs) =
    is_chain(side.net.handle) ? kwargs : merge(kwargs, (; seed = 0))

output(side::Side, params, args, kwargs) =
    evaluate(side.net, args, params, seeded(side, kwargs))

random_cotangent(rng, y::AbstractArray) =
    has_derivative(y) ? randn(rng, eltype(y), size(y)) : nothing
random_cotangent(rng, ys::Union{Tuple,NamedTuple}) = map(y -> random_cotangent(rng, y), ys)
random_cotangent(_, _) = nothing

"""
    labelled(x, label) -> Vector{Pair}

The leaves of `x`, each with where it stands, such as `"input[1].b"`.
"""
labelled(x, label::String) = Pair{String,Any}[label => x]
labelled(xs::Tuple, label::String) =
    reduce(vcat, (labelled(x, "$label[$i]") for (i, x) in pairs(xs)); init = Pair{String,Any}[])
labelled(xs::NamedTuple, label::String) =
    reduce(vcat, (labelled(x, "$label.$key") for (key, x) in pairs(xs)); init = Pair{String,Any}[])

"Where everything that has a gradient stands, and the values themselves, in a row."
function primals(side::Side)
    params = [string(name) => p for (name, p) in zip(side.net.names, side.params)]
    inputs = [labelled(side.args, "input"); labelled(side.kwargs, "keywords")]
    return [params; filter(has_derivative ∘ last, inputs)]
end

"Outputs and gradients by our rule, labelled; those of what is not used are zero."
function gradients(side::Side, ȳ)
    y, of = net_rule(Eager(), side.net, side.args, side.params, seeded(side))
    x̄, k̄w, p̄s = tangents(of, ȳ)
    row = Any[plain(p̄s)..., leaves_of(side.args, x̄)...]
    append!(row, leaves_of(side.kwargs, k̄w))
    found = [first(x) => g === nothing ? zero(last(x)) : g for (x, g) in zip(primals(side), row)]
    return [arrays_of(y); found]
end

arrays_of(y) = filter(((_, x),) -> x isa AbstractArray, labelled(y, "output"))

"Gradients of the floating arrays of `x` in a row."
leaves_of(x::AbstractArray, x̄) = has_derivative(x) ? Any[plain(x̄)] : Any[]
leaves_of(::Constant, _) = Any[]
leaves_of(xs::Union{Tuple,NamedTuple}, x̄s) =
    reduce(vcat, (leaves_of(xs[key], part_of(x̄s, key)) for key in keys(xs)); init = Any[])

"The same without labels, by the layer itself and `paddle.grad`, on copies by way of numpy."
function native(side::Side, ȳ)
    floating = Py[]
    args, kwargs = in_python(side.args, floating), in_python(side.kwargs, floating)
    named = PythonCall.pydict(side.layer.named_parameters())
    params = Py[named[string(name)] for name in side.net.names]
    cotangents = PythonCall.pylist([x === nothing ? nothing : tensor_of(x) for (_, x) in labelled(ȳ, "")])
    sides = pyimport("paddle_chainrules.testing.sides")
    ys, grads = sides.native_gradients(side.layer, args, kwargs, PythonCall.pylist([params; floating]), cotangents)
    return Any[
        (array_of(y) for y in ys if PythonCall.pyisinstance(y, TENSOR))...,
        (PythonCall.pyis(g, NONE) ? zero(x) : array_of(g) for ((_, x), g) in zip(primals(side), grads))...,
    ]
end

tensor_of(x::AbstractArray) =
    paddle.to_tensor(pyimport("numpy").asarray(permutedims(dense(x), ndims(x):-1:1)))
function array_of(tensor::Py)
    array = PythonCall.pyconvert(Array, tensor.detach().numpy())
    return permutedims(array, ndims(array):-1:1)
end

"Nested arguments as Python's; floating tensors are collected."
function in_python(x::AbstractArray, floating)
    tensor = tensor_of(x)
    has_derivative(x) && push!(floating, tensor)
    return tensor
end
in_python(x::Constant, _) = dense(x)
in_python(xs::Tuple, floating) = pytuple([in_python(x, floating) for x in xs])
in_python(xs::NamedTuple, floating) =
    PythonCall.pydict([string(key) => in_python(x, floating) for (key, x) in pairs(xs)])

largest(x::AbstractArray) = maximum(abs, Iterators.filter(isfinite, x); init = zero(real(eltype(x))))

function compared(T, oracle, label, a, b, tolerance, least)
    size(a) == size(b) && eltype(a) == eltype(b) || throw(
        AssertionError("$label is $(summary(a)), the oracle's $(summary(b))"),
    )
    found, expected = Array(a), Array(b)
    isempty(expected) && return Row(T, oracle, label, size(expected), 0.0, nothing, tolerance)
    # Infinities and NaNs agree with themselves alone.
    apart(x, y) = isequal(x, y) || x == y ? 0.0 : (d = Float64(abs(x - y)); isnan(d) ? Inf : d)
    error, place = findmax(map(apart, found, expected))
    scale = max(Float64(largest(expected)), least)
    relative = error / (scale == 0 ? 1.0 : scale)
    return Row(T, oracle, label, size(expected), relative, Tuple(CartesianIndices(expected)[place]), tolerance)
end

"Each gradient along a random direction against the slope of the output."
function differences(side::Side, ȳ, found, rng)
    points = primals(side)
    grads = Dict(found)
    value(i, x) = inner_product(ȳ, output_at(side, Any[j == i ? x : last(p) for (j, p) in enumerate(points)]))
    rows = map(enumerate(points)) do (i, (label, x))
        v = randn(rng, size(x))
        slope = (value(i, x .+ STEP .* v) - value(i, x .- STEP .* v)) / 2STEP
        terms = grads[label] .* v
        # Relative to what the terms of the product add up to, not to what is left.
        return label, size(x), abs(sum(terms) - slope), max(sum(abs, terms), abs(slope))
    end
    least = LEAST * maximum(last, rows; init = 0.0)
    return map(rows) do (label, size, difference, scale)
        most = max(scale, least)
        Row(Float64, "differences", label, size, difference / (most == 0 ? 1.0 : most), nothing, DIFFERENCES)
    end
end

"The output with other values, those of `primals` in a row."
function output_at(side::Side, row)
    n = length(side.params)
    rest = Iterators.Stateful(row[n+1:end])
    other(x, _) = has_derivative(x) ? popfirst!(rest) : x
    args, kwargs = nested_as(other, (side.args, side.kwargs), anything())
    return output(side, Tuple(row[1:n]), args, kwargs)
end

inner_product(ȳ::AbstractArray, y) = sum(ȳ .* y)
inner_product(::Nothing, _) = 0.0
inner_product(ȳs, ys) = sum(inner_product(ȳs[key], ys[key]) for key in keys(ȳs); init = 0.0)
