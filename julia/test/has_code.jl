# Whether nets become machine code that Julia calls, and what is said then.

using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, paddle
using PythonCall: pyconvert
using Random: Xoshiro

const CODE = "machine code, without Python, on any thread"
const HAS_CODE = PaddleChainRules.crossing(() -> pyconvert(Int, PaddleChainRules.BRIDGE.patience())) >= 0

"How many kinds of calls of a net and of what is derived of it have code."
function code_count(net)
    derived = values(getfield(net.net.handle, :operators, :sequentially_consistent))
    codes = filter(!isnothing, [net.net.handle.codes; [o.handle.codes for o in derived]])
    return sum(c -> length(@atomic c.values) + length(@atomic c.ways), codes; init = 0)
end

"Whether what is asked of a net goes over from Python to code, and is the same before and after."
function becomes_code(of)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 6), paddle.nn.Tanh(), paddle.nn.Linear(6, 2)).to(dtype = "float64")
    net, slow = (PaddleModuleWrapper(layer; jit) for jit in (nothing, false))
    θ = reduce(vcat, vec.(net.params))
    for n in (5, 9)
        x = randn(Xoshiro(n), 3, n)
        expected = of(slow.net, x, θ)
        for _ in 1:(n == 5 ? 45 : 10) # through Python first, then by code
            all(map((a, b) -> isapprox(a, b; rtol = 1e-9), of(net.net, x, θ), expected)) || return false
        end
    end
    return code_count(net) > 0
end
