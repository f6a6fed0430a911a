# Fourier transforms for lowered nets.
module PaddleChainRulesAbstractFFTsExt

using AbstractFFTs: AbstractFFTs
using PaddleChainRules.Operators: Operators

for name in (:fft, :bfft, :rfft, :brfft)
    @eval Operators.$name(args...) = AbstractFFTs.$name(args...)
end

end
