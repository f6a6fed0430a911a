# Parameters in files that both languages read.

"""
    PaddleChainRules.save_params(path, wrapper)
    PaddleChainRules.save_params(path, net, ps)

Write parameters to a `.npz` or `.safetensors` file, which Python's `load_params` reads too, with
dimensions reversed by the layout law. It is there as a whole or not at all.

Throws Python's `ValueError` for another suffix, and what the file system says.
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

Read parameters from a `.npz` or `.safetensors` file: a wrapper with them, or a named tuple. Nothing
in the file is executed, no pickle is read.

Throws Python's `ValueError` for a file that is corrupt or of another net; it says what differs.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16)
path = joinpath(mktempdir(), "net.npz")
PaddleChainRules.save_params(path, wrapper)
again = PaddleChainRules.load_params(path, wrapper)
```
"""
function load_params(path::AbstractString, w::PaddleModuleWrapper)
    (; net, buffers, training) = present(w)
    found = Tuple(load_params(path, in_precision(w.net, w.params)))
    params = map((old, new) -> beside((old,), new), w.params, found)
    return PaddleModuleWrapper(net, params, trained(w), Present(net, buffers, training))
end
load_params(path::AbstractString, net::PaddleNet) = crossing() do
    NamedTuple{Tuple(net.names)}(receive_all(object_of(net.handle).load(String(path))))
end
