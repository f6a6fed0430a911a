# What is exported collides with no export of the packages that people load beside this one.

using PaddleChainRules: PaddleChainRules

# Of packages that need not be installed: what they export of derivatives, layers and parameters.
const EXPORTED = (
    DifferentiationInterface = (
        :value_and_pushforward, :pushforward, :value_and_pullback, :pullback, :hvp, :gradient_and_hvp, :derivative,
        :value_and_derivative, :gradient, :value_and_gradient, :jacobian, :value_and_jacobian, :hessian,
        :second_derivative, :value_derivative_and_second_derivative, :value_gradient_and_hessian,
    ),
    Lux = (
        :batched_jacobian, :jacobian_vector_product, :vector_jacobian_product, :f16, :f32, :f64, :Training,
        :StatefulLuxLayer, :FromFluxAdaptor, :ToSimpleChainsAdaptor, :Chain, :Dense, :Embedding, :apply, :setup,
    ),
    Flux = (
        :gradient, :withgradient, :Chain, :Dense, :Embedding, :DataLoader, :f16, :f32, :f64, :setup, :update!,
        :destructure, :freeze!, :thaw!, :train!, :loadmodel!, :state, :trainable, :outputsize,
    ),
)
const INSTALLED = (
    :ChainRulesCore, :FiniteDifferences, :Flux, :ForwardDiff, :LinearAlgebra, :Lux, :LuxCore, :Optimisers,
    :Statistics, :Zygote, :DifferentiationInterface,
)

"What a module exports, without what it has that is public alone, since Julia 1.11."
exported(M) = filter(name -> Base.isexported(M, name), Base.names(M))

@testset "no export collides with $package" for package in INSTALLED
    ours = setdiff(exported(PaddleChainRules), (:PaddleChainRules,))
    found = Base.find_package(string(package))
    known = found === nothing ? () : exported(Base.require(Main, package))
    @test !isempty(known) || haskey(EXPORTED, package)
    @test isempty(intersect(ours, known)) && isempty(intersect(ours, get(EXPORTED, package, ())))
end

@testset "what is not exported is documented, and public where Julia knows that" begin
    for name in (:batched_jacobian, :batched_vjp, :derivative, :freeze, :initial_state, :jvp, :pullback, :threaded)
        @test !Base.isexported(PaddleChainRules, name)
        @test haskey(Base.Docs.meta(PaddleChainRules), Base.Docs.Binding(PaddleChainRules, name))
        VERSION >= v"1.11" && @test Base.ispublic(PaddleChainRules, name)
    end
end
