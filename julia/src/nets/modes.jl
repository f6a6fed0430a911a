# Training and test mode of nets and wrappers.

"""
    in_mode(net::N, training) -> N

The net with all its layers in training mode, or in test mode; itself where `training` is nothing.
"""
in_mode(net::PaddleNet, ::Nothing) = net
in_mode(net::N, training::Bool) where {N<:PaddleNet} =
    of_kind(N, derived(handle -> handle.in_mode(training, true), net, (:mode, training)))

"""
    PaddleChainRules.trainmode(wrapper)
    PaddleChainRules.trainmode(net)

The same net with all its layers in training mode: dropout draws, BatchNorm takes the statistics of
the batch. A wrapper shares parameters and buffers with the one given, whose mode stays as it is.

`Flux.trainmode!` and `Flux.testmode!` change the mode of a wrapper in place, and in a `Chain`;
`:auto` is the mode that the layer had when it was wrapped. The mode of `net(x, ps, st)` is
in its state: `LuxCore.trainmode(st)`, `LuxCore.testmode(st)`.
"""
trainmode(w::Union{PaddleModuleWrapper,PaddleNet}) = moded(w, true)

"""
    PaddleChainRules.testmode(wrapper)
    PaddleChainRules.testmode(net)

The same in test mode, see [`trainmode`](@ref PaddleChainRules.trainmode): dropout does nothing,
BatchNorm takes its running statistics.

```julia
wrapper = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 16), paddle.nn.Dropout(0.5)))
quiet = PaddleChainRules.testmode(wrapper)
x = rand(Float32, 3, 8)
quiet(x) == quiet(x)
```
"""
testmode(w::Union{PaddleModuleWrapper,PaddleNet}) = moded(w, false)

moded(net::PaddleNet, training) = in_mode(net, training)
function moded(w::PaddleModuleWrapper, training)
    (; net, buffers) = present(w)
    return PaddleModuleWrapper(net, w.params, trained(w), MutableState(net, buffers, training))
end

"""
    set_mode!(wrapper, training)

Change the mode in place; `nothing` is the mode that the layer had when it was wrapped.
"""
function set_mode!(w::PaddleModuleWrapper, training::Union{Bool,Nothing})
    present(w).training, present(w).moded = training, nothing
    return nothing
end
