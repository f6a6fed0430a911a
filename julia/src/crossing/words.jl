# How errors name what they were given.

"Items with commas between, of many the first ten."
listed(items) =
    isempty(items) ? "none" :
    length(items) <= 12 ? sprint(join, items, ", ") :
    string(sprint(join, first(items, 10), ", "), ", ... (", length(items), " in all)")

"What a value is, in a few words."
function kind_of(x)
    T = typeof(x)
    name = string(parentmodule(T) === (@__MODULE__) ? nameof(T) : T)
    return (first(name) in "AEIO" ? "an " : "a ") * name
end
kind_of(::Nothing) = "nothing"
kind_of(xs::Tuple) = "a tuple of $(length(xs))"
kind_of(xs::NamedTuple) = "a named tuple with the names $(listed(keys(xs)))"
kind_of(x::Py) = crossing(() -> "Python's $(pytype_name(x))")
kind_of(f::Function) = "the function $f"

pytype_name(object::Py) = string(PythonCall.pytype(object).__name__)
