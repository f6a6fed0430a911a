# What a layer refuses, in Julia's terms before Paddle's.

"""
    LayerError(layer, message, cause)

An error of Paddle's about what a layer of a net was given, in Julia's terms.

It shows the sentence, and beneath it Paddle's own words, in which sizes are in the reverse
order, with Python's traceback. Exceptions of a layer's own code are not Paddle's, and pass
as PythonCall's `PyException`.

# Arguments

- `layer`: the layer's name within the net, empty for the whole.
- `message`: a sentence with sizes and element types as Julia has them.
- `cause`: Python's exception.

# Examples

```jldoctest
julia> wrapper = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.LSTM(3, 2)));

julia> try
           wrapper(rand(Float32, 4, 5, 2))
       catch err
           err isa PaddleChainRules.LayerError
       end
true
```
"""
struct LayerError <: Exception
    layer::String
    message::String
    cause::PyException
end

Base.showerror(io::IO, error::LayerError) =
    crossing(() -> showerror(print_sentence(io, error), error.cause))
Base.showerror(io::IO, error::LayerError, trace; backtrace = true) =
    crossing(() -> showerror(print_sentence(io, error), error.cause, trace; backtrace))

function print_sentence(io::IO, error::LayerError)
    print(io, "LayerError: ", error.message)
    print(io, "\n\nIn Paddle's words, with sizes in the reverse order:\n")
    return io
end

"""
    throw_python()

Throw Python's error: a [`LayerError`](@ref PaddleChainRules.LayerError) where Paddle has refused
what a layer was given, and elsewhere a `PyException`.
"""
@noinline function throw_python()
    error = try
        PythonCall.Core.pythrow()
    catch err
        err
    end
    PythonCall.pyisnull(BRIDGE) && throw(error)
    found = BRIDGE.refusal(error.v)
    PythonCall.pyis(found, NONE) && throw(error)
    throw(LayerError(text(found[0]), text(found[1]), PyException(found[2])))
end
