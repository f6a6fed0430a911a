# Vectors with names in them are flat parameters whose order can be checked.
module PaddleChainRulesComponentArraysExt

using ComponentArrays: ComponentArray, ComponentArrays, ComponentVector, getaxes, getdata
using PaddleChainRules: PaddleChainRules, Traced, dense, dual_type, listed, tensor_for, with_plain

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

# What they hold is shared as it lies, and known again at the next call.
PaddleChainRules.dense(x::ComponentArray) = dense(getdata(x))

# A traced vector with the names of the vector that it stands for.
const TracedComponents = ComponentVector{<:Real,<:Traced}
PaddleChainRules.as_traced(x::ComponentVector, traced::Traced) = ComponentVector(traced, getaxes(x))
PaddleChainRules.with_plain(T::Type, x::TracedComponents) =
    ComponentVector(with_plain(T, getdata(x)), getaxes(x))
PaddleChainRules.dual_type(x::TracedComponents) = dual_type(getdata(x))
PaddleChainRules.tensor_for(x::TracedComponents) = tensor_for(getdata(x))

end
