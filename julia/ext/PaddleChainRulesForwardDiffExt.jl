# Dual numbers through nets and their pullbacks.
module PaddleChainRulesForwardDiffExt

using ForwardDiff: ForwardDiff, Dual, Partials
using PaddleChainRules: PaddleChainRules, has_derivative, plain_type, replace_plain

PaddleChainRules.dual_type(::Type{D}) where {D<:Dual} = D

PaddleChainRules.plain_type(::Type{<:Dual{T,V}}) where {T,V} = plain_type(V)
PaddleChainRules.replace_plain(::Type{Dual{T,V,N}}, F::Type) where {T,V,N} =
    Dual{T,replace_plain(V, F),N}

PaddleChainRules.primal(::Type{<:Dual{T}}, x::AbstractArray{<:Dual{T}}) where {T} =
    ForwardDiff.value.(T, x)

PaddleChainRules.partial(::Type{<:Dual{T}}, x::AbstractArray{<:Dual{T}}, k::Int) where {T} =
    ForwardDiff.partials.(T, x, k)

PaddleChainRules.partials_count(::Type{<:Dual{T,V,N}}) where {T,V,N} = N

function PaddleChainRules.joined(::Type{Dual{T,V,N}}, y::AbstractArray, ẏ) where {T,V,N}
    has_derivative(y) || return y
    ẏ === nothing && return map(v -> Dual{T}(v, zero(Partials{N,eltype(y)})), y)
    parts = ntuple(k -> selectdim(ẏ, ndims(ẏ), k), Val(N))
    return broadcast((v, ps...) -> Dual{T}(v, Partials(ps)), y, parts...)
end

end
