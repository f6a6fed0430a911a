# The one function of lowered nets that Julia's standard library lacks.
module PaddleChainRulesSpecialFunctionsExt

using PaddleChainRules.Operators: Operators
using SpecialFunctions: SpecialFunctions

Operators.erf(x) = SpecialFunctions.erf(x)

end
