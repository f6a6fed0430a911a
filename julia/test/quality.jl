using Aqua: Aqua
using ExplicitImports: ExplicitImports
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet

@testset "Aqua" begin
    # Compatibility bounds of the standard library are checked where a registry is.
    Aqua.test_all(PaddleChainRules; persistent_tasks = false)
end

@testset "explicit imports" begin
    @test ExplicitImports.check_no_implicit_imports(PaddleChainRules) === nothing
    @test ExplicitImports.check_no_stale_explicit_imports(PaddleChainRules) === nothing
end

@testset "pullbacks are compiled ahead" begin
    # Whose type inference does not know can't be.
    X, V = Matrix{Float32}, Vector{Float32}
    for how in (PaddleChainRules.Lazy, PaddleChainRules.Eager)
        for (rule, types) in (
            (PaddleChainRules.net_rule, (PaddleNet, X, V)),
            (PaddleChainRules.net_rule, (PaddleNet, X, Tuple{X,V})),
            (PaddleChainRules.wrapper_rule, (PaddleModuleWrapper{Tuple{X,V},nothing,false}, X)),
        )
            @test isconcretetype(PaddleChainRules.precompile_rule(rule, how, types...))
        end
    end
end
