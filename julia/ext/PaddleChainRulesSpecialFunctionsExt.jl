# The one activation whose formula needs a function that Julia's standard library lacks.
module PaddleChainRulesSpecialFunctionsExt

using PaddleChainRules: PaddleChainRules, Activation
using SpecialFunctions: erf

below(z) = (1 + erf(z / sqrt(oftype(float(z), 2)))) / 2

(::Activation{:gelu})(z) = z * below(z)

function PaddleChainRules.slopes(::Activation{:gelu}, z, _)
    density = exp(-z^2 / 2) / sqrt(2 * oftype(float(z), π))
    return below(z) + z * density, density * (2 - z^2), density * z * (z^2 - 4)
end

end
