# Means of traced arrays, which Statistics looks at an element for.
module PaddleChainRulesStatisticsExt

using PaddleChainRules: Traced
using Statistics: Statistics

Statistics.mean(x::Traced; dims = :) = Statistics.mean(identity, x; dims)
Statistics.mean(f, x::Traced; dims = :) = of_count(sum(f, x; dims), x)

of_count(total::Real, x) = total / length(x)
of_count(total, x) = total ./ (length(x) ÷ length(total))

end
