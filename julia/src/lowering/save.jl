# Lowered nets as files that need neither Python nor this package.

"""
    save_lowered(path, lowered, ps)
    save_lowered(path, lowered_wrapper)

Write a lowered net as Julia source, and its parameters beside it.

`save_lowered("net.jl", ...)` writes `net.jl` and `net.safetensors`. The source is a module
named after the file. It holds all that the net calls, except what it borrows from NNlib,
AbstractFFTs or SpecialFunctions, which it loads. Its `net(x)` is the net at the parameters
of the file, `net(x, ps)` at others. It is differentiated as any Julia code.

# Arguments

- `path`: a file name that ends in `.jl`.
- `lowered`, `lowered_wrapper`: what [`lower`](@ref) returns.
- `ps`: parameters, as the lowered net takes them. The written `net(x, ps)` takes a tuple in
  the same order; `x` is an array, or a tuple if the net takes several.

# Throws

- `ArgumentError`: `path` does not end in `.jl`, or Paddle does not take an array.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh", seed = 0);

julia> path = joinpath(mktempdir(), "small_net.jl");

julia> save_lowered(path, lower(wrapper));

julia> include(path);

julia> size(SmallNet.net(rand(Float32, 3, 4)))
(2, 4)
```
"""
save_lowered(path::AbstractString, m::LoweredModule) = save_lowered(path, m.net, m.params)
function save_lowered(path::AbstractString, l::Lowered, ps)
    stem, ending = splitext(path)
    ending == ".jl" || throw(
        ArgumentError("a lowered net is Julia source, so its path must end in .jl; got $path"),
    )
    params = in_order(l.net, ps)
    constants = l.call.constants[1]
    names = ["params.$name" for name in l.net.names]
    append!(names, "constants.$i" for i in eachindex(constants))
    write_arrays(stem * ".safetensors", names, (params..., constants...))
    part = tempname(dirname(abspath(path))) # so that nothing is left half-written
    write(part, module_source(l, basename(stem), names, length(params)))
    mv(part, path; force = true)
    return path
end

write_arrays(path, names, arrays::Tuple) = crossing() do
    in_turn(arrays) do
        drop(call_with(BRIDGE.save_arrays, (Py(path), Py(join(names, '\x1f'))), arrays))
    end
end

function module_source(l::Lowered, stem, names, n_params)
    value = l.call.texts[1]
    needed = Operators.needed(value)
    borrowed = ["using $package: $(join(names, ", "))" for (package, names) in sort!(collect(needed); by = first)]
    plain = join(
        (read(joinpath(@__DIR__, "operators", "$name.jl"), String) for name in Operators.FILES), "\n",
    )
    name = join(uppercasefirst.(split(stem, r"[^A-Za-z0-9]+"; keepempty = false)))
    return """
    # $(l.net.label), lowered to Julia by PaddleChainRules. `net(x)` is the net at the parameters of
    # $stem.safetensors, `net(x, ps)` at others. A Paddle tensor of shape [n, d] is an array of size (d, n).
    module $(isletter(first(name)) ? name : "Net" * name)

    $(join(borrowed, "\n"))

    $plain
    $value
    $(read(joinpath(@__DIR__, "operators", "safetensors.jl"), String))
    const ARRAYS = read_safetensors(joinpath(@__DIR__, "$stem.safetensors"))
    const params = Tuple(Any[ARRAYS[name] for name in $(names[1:n_params])])
    const constants = Tuple(Any[ARRAYS[name] for name in $(names[n_params+1:end])])

    net(x::AbstractArray, ps = params) = value((x,), ps, constants)
    net(xs::Tuple, ps = params) = value(xs, ps, constants)

    end
    """
end
