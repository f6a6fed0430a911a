# Vectors with names in them are flat parameters whose order can be checked.
module PaddleChainRulesComponentArraysExt

using ComponentArrays: ComponentArrays, ComponentVector, getaxes, getdata
using PaddleChainRules: PaddleChainRules, Traced, dual_type, listed, tensor_for

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

# A traced vector with the names of the vector that it stands for.
const TracedComponents = ComponentVector{<:Real,<:Traced}
PaddleChainRules.as_traced(x::ComponentVector, traced::Traced) = ComponentVector(traced, getaxes(x))
PaddleChainRules.dual_type(x::TracedComponents) = dual_type(getdata(x))
PaddleChainRules.tensor_for(x::TracedComponents) = tensor_for(getdata(x))

end
