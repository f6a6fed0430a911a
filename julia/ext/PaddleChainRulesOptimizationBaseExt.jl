# Second-order methods as algorithms of Optimization.jl.
module PaddleChainRulesOptimizationBaseExt

using OptimizationBase: OptimizationBase, OptimizationCache
using PaddleChainRules: OF_RESIDUALS, SecondOrder, TraceError, minimize, minimize_by_gradient

const SciMLBase = OptimizationBase.SciMLBase

SciMLBase.has_init(::SecondOrder) = true
SciMLBase.requiresgradient(::SecondOrder) = true
SciMLBase.allowscallback(::SecondOrder) = true

SciMLBase.__init(problem::SciMLBase.OptimizationProblem, method::SecondOrder; options...) =
    OptimizationCache(problem, method; options...)

function SciMLBase.__solve(cache::OptimizationCache{<:SecondOrder})
    cache.sense === SciMLBase.MaxSense &&
        throw(ArgumentError("$(cache.opt.method) minimizes; give the negative of what is to be large"))
    maxiters = something(cache.solver_args.maxiters, 1000)
    seconds = Float64(something(cache.solver_args.maxtime, Inf))
    callback(step, value, u) =
        cache.callback(OptimizationBase.OptimizationState(; iter = step, u, p = cache.p, objective = value), value)
    value(found) = cache.opt.method in OF_RESIDUALS ? found : first(found)
    begun = time()
    found = try
        minimize(u -> value(cache.f.f(u, cache.p)), cache.u0; method = cache.opt, maxiters, seconds, callback)
    catch err
        err isa TraceError && cache.f.grad !== nothing || rethrow()
        gradient = similar(cache.u0)
        by_gradient(u) = (cache.f.grad(gradient, u); (first(cache.f.f(u, cache.p)), gradient))
        minimize_by_gradient(by_gradient, cache.u0, cache.opt; maxiters, seconds, callback)
    end
    stats = OptimizationBase.OptimizationStats(; iterations = found.steps, time = time() - begun, fevals = found.evaluations)
    retcode = found.converged ? SciMLBase.ReturnCode.Success :
              found.steps == maxiters ? SciMLBase.ReturnCode.MaxIters : SciMLBase.ReturnCode.Default
    return SciMLBase.build_solution(cache, cache.opt, found.ps, found.value; original = found, retcode, stats)
end

end
