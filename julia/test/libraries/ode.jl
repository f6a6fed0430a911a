# A neural ODE by steps of one's own, with an adjoint written by hand.

using FiniteDifferences: central_fdm, grad
using PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

near(a, b; rtol = 1e-7) = same(a, b; rtol, atol = 1e-9)

"One step of the classical method of Runge and Kutta."
function rk4(f, u, h)
    k1 = f(u)
    k2 = f(u .+ h / 2 .* k1)
    k3 = f(u .+ h / 2 .* k2)
    k4 = f(u .+ h .* k3)
    return u .+ h / 6 .* (k1 .+ 2 .* k2 .+ 2 .* k3 .+ k4)
end
solution(f, u, h, steps) = accumulate((u, _) -> rk4(f, u, h), 1:steps; init = u)
function last_of(f, u, h, steps)
    for _ in 1:steps
        u = rk4(f, u, h)
    end
    return u
end

"The adjoint of the steps themselves, by a pullback for each."
function step_adjoint(net, theta, u, ū, h, steps)
    states = (u, solution(u -> net(u, theta), u, h, steps)...)
    θ̄ = zero(theta)
    for i in steps:-1:1
        _, back = Zygote.pullback((u, θ) -> rk4(u -> net(u, θ), u, h), states[i], theta)
        ū, δ = back(ū)
        θ̄ .+= δ
    end
    return ū, θ̄
end

"The adjoint of the equation, integrated back beside the solution itself, as backsolving has it."
function equation_adjoint(net, theta, u, ū, h, steps)
    n = length(u)
    u_end = last_of(u -> net(u, theta), u, h, steps)
    function slope(z)
        state, adjoint = reshape(z[1:n], size(u)), reshape(z[n+1:2n], size(u))
        y, back = Zygote.pullback(net, state, theta)
        x̄, θ̄ = back(adjoint)
        return [vec(y); -vec(x̄); -θ̄]
    end
    z = last_of(slope, [vec(u_end); vec(ū); zero(theta)], -h, steps)
    return reshape(z[n+1:2n], size(u)), z[2n+1:end]
end

@testset "$name" for (name, make) in (
    ("machine code", () -> PaddleFCNet(2, 2, 2, 3; activation = "tanh", dtype = "float64", seed = 1)),
    ("Python", () -> PaddleModuleWrapper(
        paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.Softshrink(0.01), paddle.nn.Linear(3, 2)).to(dtype = "float64");
        jit = false)),
)
    paddle.seed(1)
    wrapper = make()
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    u, ū, h, steps = randn(Xoshiro(1), 2, 3), randn(Xoshiro(2), 2, 3), 0.1, 4
    loss(u, θ) = sum(ū .* last_of(u -> net(u, θ), u, h, steps))
    by_hand = step_adjoint(net, theta, u, ū, h, steps)
    through = Zygote.gradient(loss, u, theta)
    @test all(map(near, by_hand, through))
    @test near(by_hand[1], grad(central_fdm(3, 1; adapt = 0), u -> loss(u, theta), u)[1]; rtol = 1e-6)
    @test near(by_hand[2], grad(central_fdm(3, 1; adapt = 0), θ -> loss(u, θ), theta)[1]; rtol = 1e-6)
    name == "Python" && continue # where the slope jumps, the equation's adjoint is as rough as that
    of_equation = equation_adjoint(net, theta, u, ū, h, steps)
    @test all(map((a, b) -> near(a, b; rtol = 1e-4), of_equation, by_hand))
end
