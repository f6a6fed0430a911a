# The one activation whose formula needs a function that Julia's standard library lacks.
module PaddleChainRulesSpecialFunctionsExt

using PaddleChainRules: PaddleChainRules
using SpecialFunctions: erf

gelu(z) = z * (1 + erf(z / sqrt(oftype(float(z), 2)))) / 2

__init__() = PaddleChainRules.LOWERED["gelu"] = gelu

end
