# Fully connected nets.

"""
    PaddleFCNet(dim_in, dim_out, num_layers, hidden;
        dtype = "float32", activation = "sigmoid", seed)

Make a fully connected net with fresh parameters, as a [`PaddleModuleWrapper`](@ref).

# Arguments

- `dim_in`, `dim_out`: the numbers of inputs and outputs.
- `num_layers`: the number of affine maps. 1 goes from input to output directly; `n` has
  `n - 1` hidden layers, each followed by the activation.
- `hidden`: the width of the hidden layers.
- `dtype`: `"float32"`, `"float64"`, or `"float16"`, which Paddle computes on a GPU only.
- `activation`: a Python callable of a tensor, or a name: `"identity"`, `"sigmoid"`,
  `"tanh"`, `"relu"`, `"gelu"`, `"silu"`, `"softplus"`, `"elu"`, `"leaky_relu"`, `"mish"`,
  `"sin"`.
- `seed`: the integer that alone decides the parameters; by default drawn from Julia's
  default generator.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh", seed = 0);

julia> size(wrapper(rand(Float32, 3, 32)))
(2, 32)
```
"""
function PaddleFCNet(
    dim_in::Integer,
    dim_out::Integer,
    num_layers::Integer,
    hidden::Integer;
    dtype = "float32",
    activation = "sigmoid",
    seed::Integer = rand(Random.default_rng(), UInt32),
)
    num_layers >= 1 || throw(
        ArgumentError("num_layers counts the affine maps and must be at least 1, got $num_layers"),
    )
    for (name, value) in (("dim_in", dim_in), ("dim_out", dim_out), ("hidden", hidden))
        value >= 1 || throw(ArgumentError("$name must be at least 1, got $value"))
    end
    haskey(FLOATS, dtype) || throw(
        ArgumentError("unsupported dtype $(repr(dtype)); use one of $(listed(sort!(collect(keys(FLOATS)))))"),
    )
    check_seed(seed)
    return crossing() do
        sizes = vcat([Int(dim_in)], fill(Int(hidden), num_layers - 1), [Int(dim_out)])
        args = (pytuple(sizes), python_activation(activation), Py(String(dtype)), Py(seed))
        wrapper(BRIDGE.fcnet(args...))
    end
end

"Names of the built-in activations, within a `crossing`."
activations() = split(text(BRIDGE.activations()), ',')

function python_activation(name::Union{AbstractString,Symbol})
    known = activations()
    string(name) in known ||
        throw(
            ArgumentError(
                "unknown activation $(repr(string(name))); the built-in ones are $(join(known, ", "))",
            ),
        )
    return Py(string(name))
end
python_activation(f::Py) = f
python_activation(f) = throw(
    ArgumentError(
        "activation must be a name or a Python callable of a tensor, got $(kind_of(f)); " *
        "a Julia function can't run inside Paddle",
    ),
)
