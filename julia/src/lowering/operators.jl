"""
What lowered nets call besides Julia's own functions: plain functions of numbers and arrays.
"""
module Operators

using RuntimeGeneratedFunctions: RuntimeGeneratedFunctions, RuntimeGeneratedFunction

RuntimeGeneratedFunctions.init(@__MODULE__)

# Functions of other packages, which an extension fills in; see `needed`.
function erf end
function batched_mul end
function batched_transpose end
function conv end
function maxpool end
function meanpool end
function conv_grad end
function maxpool_grad end
function meanpool_grad end
function fft end
function bfft end
function rfft end
function brfft end

"Their own, which files of lowered nets contain."
const FILES = ("numbers", "arrays", "normalization", "recurrent")

include("operators/numbers.jl")
include("operators/arrays.jl")
include("operators/normalization.jl")
include("operators/recurrent.jl")

include("vectorized.jl")
include("fusing.jl")

"The functions that come from other packages, by package."
const BORROWED = (
    SpecialFunctions = (:erf,),
    NNlib = (:batched_mul, :batched_transpose, :conv, :maxpool, :meanpool),
    AbstractFFTs = (:fft, :bfft, :rfft, :brfft),
)

"""
    needed(text) -> Dict

Which packages a source text needs, and which of their functions.
"""
function needed(text)
    uses(name) = occursin(Regex("\\b$name\\.?\\("), text) || (name === :erf && occursin("gelu", text))
    found = Dict(package => filter(uses, names) for (package, names) in pairs(BORROWED))
    return filter(!isempty ∘ last, found)
end

"A function of a source text, callable at once."
compiled(text) = RuntimeGeneratedFunction(@__MODULE__, @__MODULE__, fused(Meta.parse(text)))

end
