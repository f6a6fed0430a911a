# Optimisers: what is frozen is not trainable, and its rules as part of a step that is traced.
module PaddleChainRulesOptimisersExt

using Functors: functor
using LinearAlgebra: norm
using Optimisers: Optimisers, Leaf, OptimiserChain
using PaddleChainRules:
    LoweredModule, PaddleChainRules, PaddleModuleWrapper, TraceError, Traced, TracedNumber, TrainedLeaf, kind_of,
    spread_out, trained

Optimisers.trainable(w::PaddleModuleWrapper) = (; functor(w)[1].params)

# What `trainables` and `destructure` go through: as the tangent that a call gives, with every field and every
# parameter, so that Zygote adds the two in either order.
(::Optimisers.TrainableStructWalk)(recurse, w::PaddleModuleWrapper) =
    (; net = nothing, params = spread_out(recurse(Optimisers.trainable(w).params), trained(w)))
(::Optimisers.TrainableStructWalk)(recurse, m::LoweredModule) = (; net = nothing, params = recurse(m.params))

PaddleChainRules.trained_leaves(state, model) = collect_leaves!(TrainedLeaf[], Base.IdSet{Leaf}(), state, model)

function collect_leaves!(found, seen, leaf::Leaf, x)
    leaf in seen && return found
    push!(seen, leaf)
    x isa AbstractArray || refuse(leaf, x)
    leaf.frozen || push!(found, TrainedLeaf(leaf, x))
    return found
end
collect_leaves!(found, _, ::Nothing, _) = found
function collect_leaves!(found, seen, tree, x)
    isempty(tree) && return found # of what Optimisers does not train
    children = functor(x)[1]
    tree isa Union{NamedTuple,Tuple,AbstractDict,AbstractArray} && keys(tree) == keys(children) || refuse(tree, x)
    for key in keys(tree)
        collect_leaves!(found, seen, tree[key], children[key])
    end
    return found
end

refuse(tree, x) = throw(
    ArgumentError(
        "the state is that of another tree: it has $(kind_of(tree)) for $(kind_of(x)); give Optimisers.setup(rule, ps) of " *
        "the parameters that are trained",
    ),
)

PaddleChainRules.apply_rule(rule, state, x::Traced, x̄::Traced) = Optimisers.apply!(rule, state, x, x̄)

# Learning rates are numbers that a step is given, and no constants of its code.

PaddleChainRules.rates(rule) = has_rate(rule) ? Any[rule.eta] : Any[]
PaddleChainRules.rates(rule::OptimiserChain) = mapreduce(PaddleChainRules.rates, vcat, rule.opts; init = Any[])
PaddleChainRules.with_rates(rule, row) = has_rate(rule) ? with_eta(rule, popfirst!(row)) : rule
PaddleChainRules.with_rates(rule::OptimiserChain, row) =
    OptimiserChain(map(own -> PaddleChainRules.with_rates(own, row), rule.opts))

"Whether a rule is one of Optimisers' own, whose learning rate may be of any type."
has_rate(rule::R) where {R} =
    parentmodule(R) === Optimisers && hasfield(R, :eta) && rule.eta isa Union{Float32,Float64} && type_of_eta(R) isa TypeVar
type_of_eta(R) = Base.unwrap_unionall(R.name.wrapper).types[Base.fieldindex(R, :eta)]

"A rule with another learning rate, whose constructors would look at its sign."
function with_eta(rule::R, eta) where {R}
    names, own = Base.unwrap_unionall(R.name.wrapper).parameters, type_of_eta(R)
    types = map((name, type) -> name === own ? typeof(eta) : type, Tuple(names), Tuple(R.parameters))
    fields = Any[name === :eta ? eta : getfield(rule, name) for name in fieldnames(R)]
    return ccall(:jl_new_structv, Any, (Any, Ptr{Any}, UInt32), R.name.wrapper{types...}, fields, length(fields))
end

isdefined(Optimisers, :ofeltype) && (Optimisers.ofeltype(::Traced{T}, eta::TracedNumber) where {T} = T(eta))

PaddleChainRules.needs_finite(_) = false
PaddleChainRules.needs_finite(rule::Optimisers.ClipNorm) = rule.throw
PaddleChainRules.needs_finite(rule::OptimiserChain) = any(PaddleChainRules.needs_finite, rule.opts)

# Rules that look at values: the same by choices.

function Optimisers.apply!(rule::Optimisers.ClipNorm, state, x::Traced{T}, x̄) where {T}
    x̄ = Base.materialize(x̄)
    return state, x̄ .* T(min(rule.omega / norm(x̄, rule.p), 1))
end

Optimisers.apply!(::Optimisers.AccumGrad, state, ::Traced, x̄) = throw(
    TraceError(
        "AccumGrad counts its calls, and a compiled step counts nothing",
        "add up gradients of PaddleChainRules.value_and_gradient!, and call Optimisers.update! with their mean",
    ),
)

function Optimisers.apply!(rule::Optimisers.RAdam, (m, v, power, t), x::Traced{T}, x̄) where {T}
    η, (β1, β2), ϵ = T(rule.eta), T.(rule.beta), T(rule.epsilon)
    most = 2 / (1 - β2) - 1
    m = β1 .* m .+ (1 - β1) .* x̄
    v = β2 .* v .+ (1 - β2) .* abs2.(x̄)
    length = most - 2 * t * power[2] / (1 - power[2])
    is_known = length > 4
    kept = ifelse(is_known, length, most)
    factor = sqrt((kept - 4) * (kept - 2) * most / ((most - 4) * (most - 2) * kept))
    mean = m ./ (1 - power[1])
    size = sqrt.(v ./ (1 - power[2])) .+ ϵ
    return (m, v, power .* (β1, β2), t + 1), ifelse.(is_known, mean ./ size .* η .* factor, mean .* η)
end

function Optimisers.apply!(rule::Optimisers.Rprop, (g, η), x::Traced{T}, x̄) where {T}
    (less, more), (least, most) = T.(rule.ell), T.(rule.gamma)
    turn = g .* x̄
    η = ifelse.(turn .> 0, min.(η .* more, most), ifelse.(turn .< 0, max.(η .* less, least), η))
    g = ifelse.(turn .< 0, zero(T), x̄)
    return (g, η), η .* sign.(g)
end

# A first `train!` compiles the rule on traced arrays more than anything else.
for T in (Float32, Float64), R in (T, Float64)
    rule = Optimisers.Adam{R,Tuple{Float64,Float64},Float64}
    x, number = Traced{T,1}, TracedNumber{T}
    traced_rule = Optimisers.Adam{TracedNumber{R},Tuple{Float64,Float64},Float64}
    precompile(PaddleChainRules.apply_rule, (traced_rule, Tuple{x,x,Tuple{number,number}}, x, x))
    leaf = Leaf{rule,Tuple{Vector{T},Vector{T},Tuple{T,T}}}
    precompile(PaddleChainRules.trained_leaves, (leaf, Vector{T}))
end

end
