# Recurrent layers: `x` of size (features, n, time), states of size (hidden, n, layers * ways).

sum_of(product, ::Nothing) = product
sum_of(product, bias) = product .+ bias

rows(x, k, hidden) = view(x, (k-1)*hidden+1:k*hidden, :)

function lstm_cell(by_x, (h, c), weight, bias)
    gates, d = by_x .+ sum_of(transpose(weight) * h, bias), size(h, 1)
    i, f, o = (sigmoid.(rows(gates, k, d)) for k in (1, 2, 4))
    next = f .* c .+ i .* tanh.(rows(gates, 3, d))
    return o .* tanh.(next), next
end

function gru_cell(by_x, (h,), weight, bias)
    by_h, d = sum_of(transpose(weight) * h, bias), size(h, 1)
    r, z = (sigmoid.(rows(by_x, k, d) .+ rows(by_h, k, d)) for k in (1, 2))
    candidate = tanh.(rows(by_x, 3, d) .+ r .* rows(by_h, 3, d))
    return ((h .- candidate) .* z .+ candidate,)
end

tanh_cell(by_x, (h,), weight, bias) = (tanh.(by_x .+ sum_of(transpose(weight) * h, bias)),)
relu_cell(by_x, (h,), weight, bias) = (relu.(by_x .+ sum_of(transpose(weight) * h, bias)),)

"""
Outputs of the steps `from` to `to`, one beside the other, and the last state. In halves, so
that nothing is written into and no array grows step by step.
"""
function steps(cell, by_x, state, weight, bias, from, to, backward)
    if from == to
        state = cell(by_x[:, :, from], state, weight, bias)
        return first(state), state
    end
    middle = (from + to) ÷ 2
    halves = backward ? ((middle + 1, to), (from, middle)) : ((from, middle), (middle + 1, to))
    one, state = steps(cell, by_x, state, weight, bias, halves[1]..., backward)
    other, state = steps(cell, by_x, state, weight, bias, halves[2]..., backward)
    return (backward ? hcat(other, one) : hcat(one, other)), state
end

function one_way(cell, x, state, (by_input, by_state, bias, other), backward)
    n, time = size(x, 2), size(x, 3)
    product = sum_of(transpose(by_input) * reshape(x, size(x, 1), :), bias)
    by_x = reshape(product, :, n, time)
    found, last = steps(cell, by_x, state, by_state, other, 1, time, backward)
    return reshape(found, :, n, time), last
end

"The outputs, nothing, and the last states. `layers` holds the weights of each way of each layer."
function recurrent(cell, x, states, layers)
    found, lasts, k = x, (), 0
    for ways in layers
        outputs = ()
        for (way, weights) in enumerate(ways)
            k += 1
            state = map(s -> s[:, :, k], states)
            output, last = one_way(cell, found, state, weights, way == 2)
            outputs, lasts = (outputs..., output), (lasts..., last)
        end
        found = vcat(outputs...)
    end
    sizes = (size(first(states), 1), size(x, 2), k)
    after = ntuple(i -> reshape(reduce(hcat, map(l -> l[i], lasts)), sizes), length(states))
    return found, nothing, after...
end
