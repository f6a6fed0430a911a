# The layers of tests/differential from Julia, beside differences that Python makes of the layers.

using ChainRulesCore: AbstractZero, rrule, unthunk
using PaddleChainRules: PaddleModuleWrapper, paddle
using PythonCall

include("../oracle.jl")

const REFERENCE = python_module("differential.reference")

function numbers(array)
    found = pyconvert(Array, array)
    return ndims(found) == 0 ? found : permutedims(found, reverse(1:ndims(found)))
end

function close_to(found, expected; rough)
    found isa Union{Nothing, AbstractZero} && return maximum(abs, expected; init = 0.0) <= 1e-9
    scale = max(maximum(abs, expected; init = 0.0), 1e-3)
    return size(found) == size(expected) &&
           maximum(abs, found .- expected; init = 0.0) <= (rough ? 1e-3 : 1e-6) * scale
end

headline(error) = first(split(sprint(showerror, error), '\n'))

"What came of a layer: exact, refused, nested (left to Python's tests), or what is wrong."
function verdict(name)
    found = try
        REFERENCE.reference(name)
    catch error
        return "refused: " * headline(error)
    end
    arrays(part) = Tuple(numbers(array) for array in part)
    xs, outputs, cotangents = arrays(found.inputs), arrays(found.outputs), arrays(found.cotangents)
    options = pytruth(found.seeded) ? (; seed = 7) : (;)
    rough = startswith(name, "LPPool")
    try
        wrapper = PaddleModuleWrapper(found.layer)
        y = wrapper(xs...; options...)
        length(outputs) == 1 && y isa AbstractArray || return "nested"
        close_to(y, only(outputs); rough) || return "wrong value"
        params = map(copy, wrapper.params)
        y, back = rrule(wrapper, xs...; options...)
        close_to(y, only(outputs); rough) || return "wrong value of the pullback"
        tangent, bars... = map(unthunk, back(only(cotangents)))
        ps = tangent isa AbstractZero ? map(_ -> nothing, params) : unthunk(tangent).params
        for (i, expected) in enumerate(found.by_parameters)
            close_to(unthunk(ps[i]), numbers(expected); rough) || return "wrong by parameter $i"
        end
        for (i, expected) in enumerate(found.by_inputs)
            pyis(expected, pybuiltins.None) && continue
            close_to(bars[i], numbers(expected); rough) || return "wrong by input $i"
        end
        wrapper.params == params || return "parameters have changed"
        xs == arrays(found.inputs) || return "inputs have changed"
        return "exact"
    catch error
        error isa InterruptException && rethrow()
        return "refused: " * headline(error)
    end
end

@testset "layers beside differences" begin
    names = pyconvert(Vector{String}, pylist(python_module("differential.layers").TABLE))
    default = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    verdicts = try
        Dict(name => verdict(name) for name in names)
    finally
        paddle.set_default_dtype(default)
    end
    count_of(kind) = count(startswith(kind), values(verdicts))
    faults = [name => v for (name, v) in verdicts if !startswith(v, r"exact|refused|nested")]
    foreach(println, faults)
    @test isempty(faults)
    @test count_of("exact") > 240
    @test count_of("refused") < 5
    foreach(println, sort([name => v for (name, v) in verdicts if startswith(v, "refused")]))
    println(count_of("exact"), " exact, ", count_of("refused"), " refused, ", count_of("nested"), " nested")
end
