# Calls of Python on raw references.

# Raw references: owned ones are released by `drop`, never left to Julia's garbage
# collector, which does not see the memory behind them.
drop(object::PyPtr) = ccall(PYTHON[].decref, Cvoid, (PyPtr,), object)
keep(object::PyPtr) = ccall(PYTHON[].incref, Cvoid, (PyPtr,), object)
none() = PythonCall.getptr(NONE)
boolean(x::Bool) = PythonCall.getptr(x ? TRUE : FALSE)

tuple_length(object::PyPtr) = ccall(PYTHON[].tuple_size, Cssize_t, (PyPtr,), object)
tuple_item(object::PyPtr, i) = ccall(PYTHON[].tuple_item, PyPtr, (PyPtr, Cssize_t), object, i)
function owned_item(object::PyPtr, i)
    item = tuple_item(object, i)
    keep(item)
    return PythonCall.pynew(item)
end
"The items of a Python object. (`collect(Py, object)` compiles PythonCall's conversions for seconds.)"
items(object::Py) = Py[item for item in object]
is_tuple(object::PyPtr) = is_instance(object, TUPLE)
is_instance(object::PyPtr, type::Py) =
    ccall(PYTHON[].is_instance, Cint, (PyPtr, PyPtr), object, PythonCall.getptr(type)) == 1

"""
    text(string::Py) -> String

A Python string. (The first `pyconvert` of a session compiles for half a second.)
"""
function text(string::Py)
    GC.@preserve string begin
        bytes = ccall(PYTHON[].utf8, Cstring, (PyPtr,), PythonCall.getptr(string))
        bytes == C_NULL && PythonCall.Core.pythrow()
        return unsafe_string(bytes)
    end
end

"A whole number of Python's, that fits into a `Clong`."
function whole_number(number::Py)
    return GC.@preserve number begin
        found = ccall(PYTHON[].as_long, Clong, (PyPtr,), PythonCall.getptr(number))
        found == -1 && PythonCall.Core.errcheck()
        Int(found)
    end
end

"""
    call(f, args) -> PyPtr

Call a Python object on a tuple or vector of borrowed references; the result is owned.
Python's error passes as [`throw_python`](@ref PaddleChainRules.throw_python) has it.
"""
function call(f::Py, args::NTuple{N,PyPtr}) where {N}
    block = Ref(args)
    return GC.@preserve block call(f, Ptr{PyPtr}(pointer_from_objref(block)), N)
end
call(f::Py, args::Vector{PyPtr}) = GC.@preserve args call(f, pointer(args), length(args))

@inline function call(f::Py, args::Ptr{PyPtr}, count)
    vectorcall = PYTHON[].vectorcall
    result = GC.@preserve f begin
        object, number = PythonCall.getptr(f), Csize_t(count)
        keep(object) # what Python calls meanwhile may replace it
        found = @gc_safe ccall(
            vectorcall, PyPtr, (PyPtr, Ptr{PyPtr}, Csize_t, Ptr{Cvoid}),
            object, args, number, C_NULL,
        )
        drop(object)
        found
    end
    result == PyPtr(0) && throw_python()
    return result
end
