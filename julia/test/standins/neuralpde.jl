# A stand-in for what an extension sees of NeuralPDE 7: the same names and signatures, on a
# symbolic calculus of a few lines. Read from NeuralPDE's source; no part of it.
module NeuralPDE

abstract type AbstractDerivativeLowering end

struct Differential
    x::Symbol
    order::Int
end
struct Call
    operation::Any
    arguments::Vector{Any}
end
(D::Differential)(inner) = Call(D, [inner])

unwrap(x) = x
iscall(x) = x isa Call
operation(x::Call) = x.operation
arguments(x::Call) = x.arguments
_isnumber(x) = x isa Number

"A dependent variable's net: what it is called with, and which of its outputs it is."
Base.@kwdef struct TrialNetwork
    NN::Any
    args::Vector{Symbol}
    output::Int = 1
end

"Where variables are among the points, and which net is which dependent variable."
Base.@kwdef struct Context
    iv_index::Dict{Symbol,Int}
    iv_global::Dict{Symbol,Int}
    networks::Dict{Symbol,TrialNetwork}
end

"A lowered derivative, to be evaluated at points and parameters."
struct Term
    net::TrialNetwork
    rows::Vector{Any}
    directions::Any
end

function lower_derivative end

"A symbol, which is a number to Julia."
struct Num <: Real
    name::Symbol
end

# As `@register_array_symbolic` of Symbolics has methods for symbols, whatever the directions are.
nn_jvp(f, X::AbstractMatrix{<:Num}, θ::AbstractVector, ε, k::Integer) = :symbolic
nn_jvp(f, X::AbstractMatrix, θ::AbstractVector{<:Num}, ε, k::Integer) = :symbolic
nn_jvp(f, X::AbstractMatrix{<:Num}, θ::AbstractVector{<:Num}, ε, k::Integer) = :symbolic

lower_depvar(call, ctx, shift, directions) = Term(
    ctx.networks[operation(call)],
    [a isa Number ? a : ctx.iv_index[a] for a in arguments(call)],
    directions,
)

function evaluate(term::Term, xs, θ)
    # A literal argument is a row of that number.
    row(r) = r isa Int ? xs[r:r, :] : fill(convert(eltype(xs), r), 1, size(xs, 2))
    X = reduce(vcat, map(row, term.rows))
    return nn_jvp(term.net.NN, X, θ, term.directions, term.net.output)
end

end
