# Poisson's equation of poisson_2d.py from Julia: the same net, points and exact Laplacian, with
# the gradient by Zygote, and scipy's L-BFGS around it. Run it from the folder of the checkout:
#
#     julia --project=$(julia julia/environment.jl Zygote | head -1) examples/poisson_2d.jl
#
# The picture goes to output/poisson_2d-julia.png.

using PaddleChainRules
using PythonCall
using Zygote

pyimport("sys").path.insert(0, @__DIR__)
const poisson_py = pyimport("poisson_2d")
const lbfgs = pyimport("lbfgs").lbfgs

# Points are rows in Python and columns here.
const inside, edges = (permutedims(pyconvert(Matrix{Float64}, p)) for p in poisson_py.points())
const rhs = -sinpi.(inside[1:1, :]) .* sinpi.(inside[2:2, :])
const weight = pyconvert(Float64, poisson_py.WEIGHT)

mean_square(x) = sum(abs2, x) / length(x)

function main()
    sizes = pyconvert(NTuple{4,Int}, poisson_py.SIZES)
    activation = pyconvert(String, poisson_py.ACTIVATION)
    wrapper = PaddleFCNet(2, 1, 3, sizes[2]; dtype = "float64", activation, seed = 0)
    net = PaddleNet(wrapper)
    loss(theta) =
        mean_square(laplacian(net, inside, theta) .- rhs) + weight * mean_square(net(edges, theta))

    function evaluate(flat)
        value, (gradient,) = Zygote.withgradient(loss, pyconvert(Vector{Float64}, flat))
        return value, gradient
    end

    found, losses = lbfgs(evaluate, reduce(vcat, vec.(wrapper.params)), 4000)
    theta = pyconvert(Vector{Float64}, found)
    x, y = (pyconvert(Matrix{Float64}, part) for part in poisson_py.plane())
    u = reshape(net(permutedims([vec(x) vec(y)]), theta), size(x))
    error = pyconvert(Float64, poisson_py.relative_error(u))
    picture = joinpath(dirname(@__DIR__), "output", "poisson_2d-julia.png")
    title = "Poisson's equation, Paddle from Julia"
    poisson_py.draw(pyimport("pathlib").Path(picture), u, losses, title)
    println("relative L2 error $error, loss $(losses[-1])")
    @assert error < 1e-3
    return nothing
end

main()
