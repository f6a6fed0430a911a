# What Enzyme and compilers such as Reactant are told.

using PaddleChainRules: PaddleFCNet, PaddleNet
using Random: Xoshiro

include("../needing.jl")

"A number that stands for a computation, as a compiler has them."
struct Standing <: Real end

@testset "numbers of a compiler" begin
    w = PaddleFCNet(3, 2, 2, 4)
    @test_throws "lower(net, x), which is plain Julia" w(fill(Standing(), 3, 4))
    @test_throws "lower(net, x), which is plain Julia" PaddleNet(w)(rand(Xoshiro(1), Float32, 3, 4), fill(Standing(), w.net.nparams))
end

run_where(("EnzymeCore",), "enzyme")
