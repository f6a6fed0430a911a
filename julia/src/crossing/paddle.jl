# Starting Paddle inside Julia: which Python, and whose signal handlers.

using Libdl: Libdl
using PythonCall: PythonCall, Py, PyException, pyimport, pytuple

# Signals whose handlers `import paddle` replaces. Julia needs its own: the garbage
# collector stops other threads by SIGSEGV at a safepoint. Numbers of `signal.h`.
const SIGNALS = (
    Cint(Sys.isapple() ? 10 : 7), # SIGBUS
    Cint(4),  # SIGILL
    Cint(6),  # SIGABRT
    Cint(8),  # SIGFPE
    Cint(11), # SIGSEGV
    Cint(15), # SIGTERM
)
const SIGSEGV = Cint(11)

# Larger than `struct sigaction` on every platform; its first word is the handler.
const SigAction = NTuple{64,UInt64}

function sigaction(signal::Cint)
    action = Ref(ntuple(Returns(UInt64(0)), Val(64)))
    ccall(:sigaction, Cint, (Cint, Ptr{Cvoid}, Ref{SigAction}), signal, C_NULL, action)
    return action[]
end

function sigaction!(signal::Cint, action::SigAction)
    ccall(:sigaction, Cint, (Cint, Ref{SigAction}, Ptr{Cvoid}), signal, action, C_NULL)
    return nothing
end

"""
    keep_signal_handlers(f)

Run `f()` and put the handlers of the six signals of `import paddle` back as they were.

Until they are back no garbage is collected, or other threads would stop by a SIGSEGV that is
not handled by Julia.
"""
function keep_signal_handlers(f)
    Sys.isunix() || return f()
    collects = GC.enable(false)
    # A collection that another thread has begun ends before the handlers change.
    Libc.systemsleep(0.002)
    GC.safepoint()
    saved = map(sigaction, SIGNALS)
    try
        return f()
    finally
        foreach(sigaction!, SIGNALS, saved)
        GC.enable(collects)
    end
end

# What Julia had when this package was loaded, before Paddle may have come by another import.
const FIRST_HANDLERS = Ref(ntuple(Returns(ntuple(Returns(UInt64(0)), Val(64))), length(SIGNALS)))

function __init__()
    Sys.isunix() && (FIRST_HANDLERS[] = map(sigaction, SIGNALS))
    return nothing
end

"""
    restore_signal_handlers()

Put the handlers back that were in place when this package was loaded, where Paddle's are now: somebody
else has imported it since.
"""
function restore_signal_handlers()
    Sys.isunix() || return nothing
    for (signal, first_action) in zip(SIGNALS, FIRST_HANDLERS[])
        occursin("libpaddle", library_of(sigaction(signal))) && sigaction!(signal, first_action)
    end
    return nothing
end

struct DlInfo
    fname::Cstring
    fbase::Ptr{Cvoid}
    sname::Cstring
    saddr::Ptr{Cvoid}
end

"""
    julia_handles_segv()

Whether Julia's own handler of SIGSEGV is in place, which threaded garbage collection needs.
"""
julia_handles_segv() = !Sys.isunix() || occursin("libjulia", library_of(sigaction(SIGSEGV)))

"The file of the library that a handler is in, empty for none."
function library_of(action::SigAction)
    info = Ref(DlInfo(C_NULL, C_NULL, C_NULL, C_NULL))
    found = ccall(:dladdr, Cint, (Ptr{Cvoid}, Ref{DlInfo}), Ptr{Cvoid}(first(action)), info)
    return found == 0 || info[].fname == C_NULL ? "" : basename(unsafe_string(info[].fname))
end

# Entry points of libpython, and objects that live as long as Python does.
struct PythonFunctions
    capsule_new::Ptr{Cvoid}
    capsule_pointer::Ptr{Cvoid}
    vectorcall::Ptr{Cvoid}
    tuple_size::Ptr{Cvoid}
    tuple_item::Ptr{Cvoid}
    is_instance::Ptr{Cvoid}
    incref::Ptr{Cvoid}
    decref::Ptr{Cvoid}
    holds_gil::Ptr{Cvoid}
    utf8::Ptr{Cvoid}
    as_long::Ptr{Cvoid}
    ensure::Ptr{Cvoid}
    release::Ptr{Cvoid}
    save_thread::Ptr{Cvoid}
    restore_thread::Ptr{Cvoid}
    thread_ident::Ptr{Cvoid}
end

const FUNCTION_NAMES = (
    :PyCapsule_New, :PyCapsule_GetPointer, :PyObject_Vectorcall, :PyTuple_Size,
    :PyTuple_GetItem, :PyObject_IsInstance, :Py_IncRef, :Py_DecRef, :PyGILState_Check,
    :PyUnicode_AsUTF8, :PyLong_AsLong, :PyGILState_Ensure, :PyGILState_Release,
    :PyEval_SaveThread, :PyEval_RestoreThread, :PyThread_get_thread_ident,
)

# Filled by the first use of Paddle, in `start_paddle`.
const PADDLE = PythonCall.pynew()
const BRIDGE = PythonCall.pynew()
const PYTHON = Ref(PythonFunctions(ntuple(Returns(C_NULL), length(FUNCTION_NAMES))...))

"""
    bridge()

The Python module `paddle_chainrules.bridge`; the first call imports Paddle.

Throws an `ErrorException` naming the command to run where Paddle or `paddle_chainrules` is
missing.
"""
function bridge()
    PythonCall.pyisnull(BRIDGE) && start_paddle()
    return BRIDGE
end

function start_paddle()
    lib = PythonCall.python_library_handle()
    PYTHON[] = PythonFunctions(map(name -> Libdl.dlsym(lib, name), FUNCTION_NAMES)...)
    holds_lock() || throw(
        ConcurrencyViolationError(
            "Paddle must be started on the thread that holds Python's lock, the main one; " *
            "this is Julia thread $(Threads.threadid()).",
        ),
    )
    restore_signal_handlers()
    keep_signal_handlers() do
        python_import("paddle")
        python_import("paddle_chainrules")
        PythonCall.pycopy!(BRIDGE, pyimport("paddle_chainrules.bridge"))
        PythonCall.pycopy!(PADDLE, pyimport("paddle"))
    end
    start_lock()
    start_exchange()
    start_counting()
    start_codes()
    if Threads.maxthreadid() > 1 && !julia_handles_segv()
        PythonCall.pycopy!(BRIDGE, PythonCall.PyNULL)
        error(
            "Julia has $(Threads.maxthreadid()) threads, but its handler of SIGSEGV is not " *
            "in place, so the next threaded garbage collection would kill the process. " *
            "Either Paddle was imported before PaddleChainRules could save the handlers: " *
            "say `using PaddleChainRules` before that import. Or Python started Julia without " *
            "them: start it with `paddle_chainrules.julia.start()`, or set " *
            "PYTHON_JULIACALL_HANDLE_SIGNALS=yes before importing juliacall, or " *
            "PYTHON_JULIACALL_THREADS=1.",
        )
    end
    return nothing
end

function python_import(name::String)
    try
        return pyimport(name)
    catch err
        err isa PyException || rethrow()
        is_missing = PythonCall.pyisinstance(err.v, pyimport("builtins").ModuleNotFoundError)
        is_missing && string(err.v.name) == name || rethrow()
        error(missing_message(name))
    end
end

"""
    missing_message(name, exe)

What to do when `exe`, the Python that PythonCall runs, lacks the package `name`.
"""
function missing_message(name::String, exe = PythonCall.python_executable_path())
    source = dirname(dirname(@__DIR__))
    wanted = if name == "paddle"
        "'paddlepaddle>=3.3.1'"
    elseif isfile(joinpath(source, "pyproject.toml"))
        source
    else
        "paddle-chainrules"
    end
    install = if occursin(".CondaPkg", exe) && !isdir(wanted)
        spec = split(strip(wanted, '\''), ">=")
        version = length(spec) == 2 ? "; version = \">=$(spec[2])\"" : ""
        "julia> using CondaPkg; CondaPkg.add_pip(\"$(spec[1])\"$version)"
    else
        "$exe -m pip install $wanted"
    end
    message = "The Python package `$name` is missing from $exe, the Python that PythonCall " *
              "runs. Install it there:\n\n    $install\n\n" *
              "or restart Julia with JULIA_PYTHONCALL_EXE set to a Python that has it."
    venv = get(ENV, "VIRTUAL_ENV", "")
    if !isempty(venv) && !startswith(abspath(exe), abspath(venv))
        message *= "\nA virtual environment is active; to use it:\n\n" *
                   "    JULIA_PYTHONCALL_EXE=$(joinpath(venv, "bin", "python")) julia"
    end
    return message
end

struct PaddleModule end

"""
    paddle

The Python module `paddle`, imported when you first use it.

Its functions take Python objects, so that shapes are written `pylist([2, 3])` of
PythonCall.

# Examples

```jldoctest
julia> layer = paddle.nn.Linear(3, 2);

julia> size(PaddleModuleWrapper(layer)(rand(Float32, 3, 4)))
(2, 4)
```
"""
const paddle = PaddleModule()

paddle_module() = crossing(() -> PADDLE)

# Within the crossing: outside of it the thread may not hold Python's lock.
Base.getproperty(::PaddleModule, name::Symbol) = crossing(() -> getproperty(PADDLE, name))
Base.propertynames(::PaddleModule, private::Bool = false) =
    crossing(() -> propertynames(PADDLE, private))
Base.show(io::IO, ::PaddleModule) = print(io, "the Python module paddle, imported on first use")
PythonCall.ispy(::PaddleModule) = true
PythonCall.Py(::PaddleModule) = paddle_module()
