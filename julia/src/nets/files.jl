# Parameters in files that both languages read.

"""
    PaddleChainRules.save_params(path, wrapper)
    PaddleChainRules.save_params(path, net, ps)

Write parameters to a `.npz` or `.safetensors` file, which Python's `load_params` reads too.

Dimensions are reversed there by the layout law. The file is there as a whole or not at all.

# Throws

- Python's `ValueError`: another suffix.
- What the file system says.

# Examples

```jldoctest
julia> path = joinpath(mktempdir(), "net.safetensors");

julia> PaddleChainRules.save_params(path, PaddleFCNet(3, 2, 2, 16; seed = 0));

julia> isfile(path)
true
```
"""
save_params(path::AbstractString, w::PaddleModuleWrapper) = save_params(path, w.net, w.params)
function save_params(path::AbstractString, given::PaddleNet, ps)
    net = in_precision(given, ps)
    params = param_arrays(net, ps)
    return crossing() do
        GC.@preserve params in_turn(params) do
            save, name = object_of(net.handle).save, Py(String(path))
            lent = PyPtr[PythonCall.getptr(name), boolean(is_flat(ps))]
            try
                foreach(p -> push!(lent, lend(p)), params)
                GC.@preserve name drop(call(save, lent))
            finally
                foreach(drop, @view lent[3:end])
            end
        end
        return nothing
    end
end

"""
    PaddleChainRules.load_params(path, wrapper) -> wrapper
    PaddleChainRules.load_params(path, net) -> ps

Read parameters from a `.npz` or `.safetensors` file.

Nothing in the file is executed, and no pickle is read.

# Returns

A new wrapper with the parameters of the file, or for a net a named tuple.

# Throws

- Python's `ValueError`: the file is corrupt or of another net; it says what differs.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> path = joinpath(mktempdir(), "net.npz");

julia> PaddleChainRules.save_params(path, wrapper);

julia> PaddleChainRules.load_params(path, wrapper).params == wrapper.params
true
```
"""
function load_params(path::AbstractString, w::PaddleModuleWrapper)
    (; net, buffers, training) = present(w)
    found = Tuple(load_params(path, in_precision(w.net, w.params)))
    params = map((old, new) -> beside((old,), new), w.params, found)
    return PaddleModuleWrapper(net, params, trained(w), MutableState(net, buffers, training))
end
load_params(path::AbstractString, net::PaddleNet) = crossing() do
    NamedTuple{Tuple(net.names)}(receive_all(object_of(net.handle).load(String(path))))
end
