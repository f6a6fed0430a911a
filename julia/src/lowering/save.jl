# Lowered nets as files that need neither Python nor this package.

"""
    save_lowered(path, lowered, ps)
    save_lowered(path, lowered_wrapper)

Write a lowered net as Julia source and its parameters beside it: `save_lowered("net.jl", ...)` writes
`net.jl` and `net.safetensors`.

The source is a module, named after the file, with all that the net calls but what it borrows from
NNlib, AbstractFFTs or SpecialFunctions, which it loads. Its `net(x)` is the net at the parameters of
the file, `net(x, ps)` at others, a tuple in the same order; `x` is an array, or a tuple where the net
takes several. It is differentiated as any Julia code.

Throws an `ArgumentError` for a path that does not end in `.jl`, and for constants of complex numbers,
which the format lacks.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh", seed = 0)
folder = mktempdir()
save_lowered(joinpath(folder, "small_net.jl"), lower(wrapper))
include(joinpath(folder, "small_net.jl"))
SmallNet.net(rand(Float32, 3, 4))
```
"""
save_lowered(path, m::LoweredModule) = save_lowered(path, m.net, m.params)
function save_lowered(path, l::Lowered, ps)
    stem, ending = splitext(path)
    ending == ".jl" || throw(
        ArgumentError("a lowered net is Julia source, so its path must end in .jl; got $path"),
    )
    params = in_order(l.net, ps)
    constants = l.call.constants[1]
    names = ["params.$name" for name in l.net.names]
    append!(names, "constants.$i" for i in eachindex(constants))
    arrays = write_safetensors(names, (params..., constants...))
    source = module_source(l, basename(stem), length(params), length(constants))
    write_all(stem * ".safetensors", arrays)
    write_all(path, source)
    return path
end

"Written beside its place first, so that nothing is left half-written."
function write_all(path, content)
    part = tempname(dirname(abspath(path)))
    write(part, content)
    mv(part, path; force = true)
    return nothing
end

const SAFETENSORS = Dict(
    Float16 => "F16", Float32 => "F32", Float64 => "F64", Int64 => "I64", Int32 => "I32",
    Int16 => "I16", Int8 => "I8", UInt8 => "U8", Bool => "BOOL",
)

"Arrays in the safetensors format, with the shapes of Paddle, as bytes."
function write_safetensors(names, arrays)
    header, data = String[], IOBuffer()
    for (name, array) in zip(names, arrays)
        type = get(SAFETENSORS, eltype(array)) do
            throw(
                ArgumentError(
                    "a safetensors file holds no arrays of $(eltype(array)), and $name is one; " *
                    "a lowered net of real numbers can be saved",
                ),
            )
        end
        start = position(data)
        write(data, htol.(collect(array)))
        shape = join(reverse(size(array)), ',')
        push!(
            header,
            "\"$name\":{\"dtype\":\"$type\",\"shape\":[$shape],\"data_offsets\":[$start,$(position(data))]}",
        )
    end
    text = "{" * join(header, ',') * "}"
    text *= " "^mod(-ncodeunits(text), 8)
    return vcat(reinterpret(UInt8, [htol(UInt64(ncodeunits(text)))]), codeunits(text), take!(data))
end

function module_source(l::Lowered, stem, n_params, n_constants)
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
    const params = Tuple(ARRAYS[1:$n_params])
    const constants = Tuple(ARRAYS[$(n_params + 1):end])

    net(x::AbstractArray, ps = params) = value((x,), ps, constants)
    net(xs::Tuple, ps = params) = value(xs, ps, constants)

    end
    """
end
