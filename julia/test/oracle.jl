# Native Paddle as the oracle: the untouched layer, called and differentiated in Python.

using PaddleChainRules: paddle
using PythonCall
using Random: Xoshiro

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
    native(layer, xs, cotangents) -> outputs, parameter gradients, input gradients

Of the layer itself, by `paddle.grad`. `outputs(y)` picks the tensors that count.
"""
function native(layer, xs::Tuple, cotangents::Tuple; outputs = y -> (y,))
    tensors = map(to_tensor, xs)
    floating = [t for t in tensors if pytruth(t.is_floating_point())]
    foreach(t -> t.stop_gradient = false, floating)
    ys = outputs(layer(tensors...))
    params = [p for p in layer.parameters() if !pytruth(p.stop_gradient)]
    found = paddle.grad(
        pylist(ys), pylist([params; floating]), pylist(map(to_tensor, cotangents));
        allow_unused = true,
    )
    grads = [pyis(g, pybuiltins.None) ? nothing : from_numpy(g) for g in found]
    return map(from_numpy, ys), grads[1:length(params)], grads[(length(params)+1):end]
end

"Equal in size and element type, and element by element in value."
function same(found, expected; rtol = 1e-5, atol = 1e-6)
    size(found) == size(expected) || return false
    eltype(found) == eltype(expected) || return false
    return all(isapprox.(found, expected; rtol, atol))
end

sequential() = paddle.nn.Sequential(
    paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2),
)
