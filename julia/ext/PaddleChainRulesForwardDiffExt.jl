# Dual numbers through nets and their pullbacks.
module PaddleChainRulesForwardDiffExt

using ForwardDiff: ForwardDiff, Dual, Partials
using GPUArraysCore: AnyGPUArray
using PaddleChainRules: PaddleChainRules, has_derivative, plain_type, replace_plain, stacked_parts

PaddleChainRules.dual_type(::Type{D}) where {D<:Dual} = D

PaddleChainRules.plain_type(::Type{<:Dual{T,V}}) where {T,V} = plain_type(V)
PaddleChainRules.replace_plain(::Type{Dual{T,V,N}}, F::Type) where {T,V,N} =
    Dual{T,replace_plain(V, F),N}

PaddleChainRules.primal(::Type{<:Dual{T}}, x::AbstractArray{<:Dual{T}}) where {T} =
    ForwardDiff.value.(T, x)

PaddleChainRules.partial(::Type{<:Dual{T}}, x::AbstractArray{<:Dual{T}}, k::Int) where {T} =
    ForwardDiff.partials.(T, x, k)

# In one pass over the numbers; elsewhere, as on GPUs, by broadcasts.
function PaddleChainRules.partials(D::Type{<:Dual{T}}, x::AbstractArray{Dual{T,V,N}}) where {T,V,N}
    x isa AnyGPUArray && return stacked_parts([PaddleChainRules.partial(D, x, k) for k in 1:N])
    found, n = Array{V}(undef, size(x)..., N), length(x)
    for (i, number) in enumerate(x)
        parts = ForwardDiff.partials(T, number)
        for k in 1:N
            @inbounds found[i+(k-1)*n] = parts[k]
        end
    end
    return found
end

PaddleChainRules.partials_count(::Type{<:Dual{T,V,N}}) where {T,V,N} = N

function PaddleChainRules.joined(::Type{Dual{T,V,N}}, y::AbstractArray, ẏ) where {T,V,N}
    has_derivative(y) || return y
    ẏ === nothing && return map(v -> Dual{T}(v, zero(Partials{N,eltype(y)})), y)
    y isa Array && ẏ isa Array && return joined_on_host(Dual{T,eltype(y),N}, y, ẏ)
    parts = ntuple(k -> selectdim(ẏ, ndims(ẏ), k), Val(N))
    return broadcast((v, ps...) -> Dual{T}(v, Partials(ps)), y, parts...)
end

function joined_on_host(::Type{Dual{T,V,N}}, y::Array{V,M}, ẏ::Array{V}) where {T,V,N,M}
    found, n = Array{Dual{T,V,N},M}(undef, size(y)), length(y)
    for i in eachindex(y)
        @inbounds found[i] = Dual{T,V,N}(y[i], Partials(ntuple(k -> @inbounds(ẏ[i+(k-1)*n]), Val(N))))
    end
    return found
end

end
