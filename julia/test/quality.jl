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
    for how in (PaddleChainRules.Lazy, PaddleChainRules.Eager), N in (PaddleNet{true}, PaddleNet{false})
        for (rule, types) in (
            (PaddleChainRules.net_rule, (N, X, V)),
            (PaddleChainRules.net_rule, (N, X, Tuple{X,V})),
            (PaddleChainRules.wrapper_rule, (PaddleModuleWrapper{Tuple{X,V},nothing,false,N}, X)),
        )
            @test all(isconcretetype, PaddleChainRules.precompile_rule(rule, how, types...))
        end
    end
end

@testset "what is compiled by running it has sizes and gradients as a net has" begin
    sizes = (5, 3), (5,), (2, 5), (2,)
    w = PaddleChainRules.stand_in(Float64, sizes...)
    y, back = PaddleChainRules.pullback(w, ones(3, 4))
    p̄s, x̄ = back(ones(2, 4))
    @test size(y) == size(w(ones(3, 4))) == (2, 4) && size(x̄) == (3, 4) && map(size, p̄s) == sizes
end

# Loaded first, as in most scripts. A method of ours that takes anything, or a call of ours for types
# that are known late, would have Zygote's compiled code, or ours, compiled anew at the first gradient.
const LATER = """
using PaddleChainRules
seen = ccall(:jl_debug_method_invalidation, Any, (Cint,), 1)
using Zygote, ForwardDiff, LuxCore
ccall(:jl_debug_method_invalidation, Any, (Cint,), 0)
is_of(M, x) = x isa Method ? parentmodule(x.module) === M || x.module === M : x isa Core.MethodInstance && is_of(M, x.def)
lost = count(i -> is_of(PaddleChainRules, seen[i]) && seen[i] isa Core.MethodInstance && seen[i+1] isa Integer, 1:length(seen)-1)
causes = count(x -> x isa Vector && any(m -> is_of(PaddleChainRules, m), x), seen)
println(length(seen) > 0, ' ', lost, ' ', causes)
"""

@testset "what is loaded later has nothing compiled anew" begin
    command = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) -e $LATER`
    @test readchomp(pipeline(command; stderr = devnull)) == "true 0 0"
end
