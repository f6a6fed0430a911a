# What programs of this folder share: nets in plain Julia, and the process's memory.

sigmoid(x) = 1 / (1 + exp(-x))
const ACTIVATIONS = (tanh = tanh, relu = x -> max(x, zero(x)), sin = sin, sigmoid = sigmoid)

"A chain of Linear layers on weights and biases in a row."
function chain(act, ps, x)
    for i in 1:2:length(ps)
        x = ps[i] * x .+ ps[i+1]
        i + 2 < length(ps) && (x = act.(x))
    end
    return x
end

"Megabytes of memory that the process has."
resident() = parse(Int, split(read("/proc/self/statm", String))[2]) * 4096 / 2^20
