# What Flux's own layers do: modes that change in place, and sizes without numbers.
module PaddleChainRulesFluxExt

using Flux: Flux
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, set_mode!, testmode

function Flux.testmode!(w::PaddleModuleWrapper, mode)
    mode isa Union{Bool,Nothing} || mode === :auto || throw(
        ArgumentError(
            "testmode! takes true, false, nothing or :auto, got $(repr(mode)); give :auto for the " *
            "mode that the layer had when it was wrapped",
        ),
    )
    set_mode!(w, mode isa Bool ? !mode : nothing)
    return w
end

Flux.testmode!(net::PaddleNet, _) = throw(
    ArgumentError(
        "$net has no mode that could be changed in place; take PaddleChainRules.testmode(net) or " *
        "trainmode(net), or change the wrapper",
    ),
)

const Nil = Flux.NilNumber.Nil

# What `Flux.outputsize` calls: the size that zeros give, in test mode, which draws no numbers.
function (w::PaddleModuleWrapper)(x::AbstractArray{Nil}, rest::AbstractArray{Nil}...)
    T = isempty(w.params) ? Float32 : eltype(first(w.params))
    return nil_like(testmode(w)(map(x -> zeros(T, size(x)), (x, rest...))...))
end

nil_like(y::AbstractArray) = fill(Flux.nil, size(y))
nil_like(ys::Union{Tuple,NamedTuple}) = map(nil_like, ys)
nil_like(y) = y

end
