# Vectors with names in them are flat parameters whose order can be checked.
module PaddleChainRulesComponentArraysExt

using ComponentArrays: ComponentVector
using PaddleChainRules: PaddleChainRules, listed

function PaddleChainRules.check_names(names, ps::ComponentVector)
    found = keys(ps)
    isempty(found) || found == Tuple(names) || throw(
        ArgumentError(
            "a ComponentVector of parameters must have exactly the names $(listed(names)), in " *
            "that order, got $(listed(found)); make it of a named tuple in that order",
        ),
    )
    return nothing
end

end
