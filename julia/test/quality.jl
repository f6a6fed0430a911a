using Aqua: Aqua
using ExplicitImports: ExplicitImports
using PaddleChainRules: PaddleChainRules

@testset "Aqua" begin
    # Compatibility bounds of the standard library are checked where a registry is.
    Aqua.test_all(PaddleChainRules; persistent_tasks = false)
end

@testset "explicit imports" begin
    @test ExplicitImports.check_no_implicit_imports(PaddleChainRules) === nothing
    @test ExplicitImports.check_no_stale_explicit_imports(PaddleChainRules) === nothing
end
