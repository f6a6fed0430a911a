# Which thread may enter Python, and when: one crossing at a time, whichever thread it is on.

"""
    @gc_safe ccall(...)

A call of C during which other threads may collect garbage: one that may wait for another thread,
or takes long. Arguments must be plain pointers and numbers, and what they point to preserved.

Without it two threads stop for ever: one that waits here for Python's lock, and the one that holds
the lock and waits, in order to collect, for every thread to reach a safepoint.
"""
macro gc_safe(call)
    return quote
        state = ccall(:jl_gc_safe_enter, Int8, ())
        result = $(esc(call))
        ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
        result
    end
end

# The turn to cross: libuv's recursive mutex, which belongs to a thread, not to a task, as Python's
# lock does. That one is not enough: Paddle lets go of it in every operator.
const TURN = Ref{Ptr{Cvoid}}(C_NULL)
const TURN_BYTES = 256 # more than a mutex of any platform
const DEPTH = Ref(0) # of crossings within one another; who has the turn changes it
const OPEN = Threads.Atomic{Int}(0) # calls of `threaded` under way

function start_lock()
    address = text(BRIDGE.start_lock(julia_handles_segv()))
    PYTHON_LOCK[] = Ptr{UInt64}(parse(UInt, address))
    TURN[] == C_NULL || return nothing
    atexit(end_lending)
    block = Libc.calloc(TURN_BYTES, 1)
    block == C_NULL && throw(OutOfMemoryError())
    ccall(:uv_mutex_init_recursive, Cint, (Ptr{Cvoid},), block) == 0 ||
        error("the system has no mutex left")
    TURN[] = block
    return nothing
end

# Where Python writes which of its threads holds the lock to call Julia, zero for none.
const PYTHON_LOCK = Ref{Ptr{UInt64}}(C_NULL)

"""
    check_python_lock()

Refuse a thread of Python's that does not hold the lock, or one that would go before another.
"""
function check_python_lock()
    owner = unsafe_load(PYTHON_LOCK[])
    is_foreign = ccall(:jl_threadpoolid, Int8, (Int16,), Threads.threadid() - 1) < 0
    is_foreign || owner != 0 || return nothing
    owner == ccall(PYTHON[].thread_ident, Culong, ()) && return nothing
    throw(
        ConcurrencyViolationError(
            "where several threads of Python use Julia each holds the lock, the main one too, or " *
            "a garbage collection may wait for ever:\n\n" *
            "    from paddle_chainrules import julia\n    with julia.lock:\n        net(x)",
        ),
    )
end

holds_lock() = ccall(PYTHON[].holds_gil, Cint, ()) == 1

"""
    PaddleChainRules.crossing(f)

Run `f()`, which enters Python, while this thread holds Python's lock and no other crosses.

The task stays on its thread. An interrupt (Ctrl-C) waits until the crossing has ended, so
that it leaves nothing halfway. The result is that of `f()`.

# Throws

- `ConcurrencyViolationError`: the thread does not have the lock, outside of
  [`threaded`](@ref PaddleChainRules.threaded).

# Examples

```jldoctest
julia> using PythonCall

julia> PaddleChainRules.crossing(() -> pyconvert(Int, pybuiltins.len("four")))
4
```
"""
@inline function crossing(f::F) where {F}
    bridge()
    task = current_task()
    Base.sigatomic_begin()
    migrates, task.sticky = !task.sticky, true
    try
        state = take_turn()
        try
            return f()
        finally
            DEPTH[] -= 1
            state < 0 || ccall(PYTHON[].release, Cvoid, (Cint,), state)
            ccall(:uv_mutex_unlock, Cvoid, (Ptr{Cvoid},), TURN[])
        end
    finally
        migrates && (task.sticky = false)
        Base.sigatomic_end() # throws what has waited
    end
end

"""
    take_turn() -> state

Wait for the turn, then for Python's lock; the lock's state before, negative where this thread
held it already. Who waits for the turn lets go of the lock meanwhile.
"""
function take_turn()
    holds = holds_lock()
    holds && check_python_lock()
    turn = TURN[]
    if ccall(:uv_mutex_trylock, Cint, (Ptr{Cvoid},), turn) != 0
        saved = holds ? ccall(PYTHON[].save_thread, Ptr{Cvoid}, ()) : C_NULL
        @gc_safe ccall(:uv_mutex_lock, Cvoid, (Ptr{Cvoid},), turn)
        holds && regain_lock(saved)
    end
    # With the turn: `threaded` does not end until this thread has had Python's lock.
    if !holds && OPEN[] == 0
        ccall(:uv_mutex_unlock, Cvoid, (Ptr{Cvoid},), turn)
        throw(
            ConcurrencyViolationError(
                "Paddle was called on Julia thread $(Threads.threadid()), which does not hold " *
                "Python's lock. Call it from the main thread, or let all threads call it:\n\n" *
                "    PaddleChainRules.threaded() do\n        Threads.@threads for ... end\n    end\n\n" *
                "A net that is machine code needs neither: PaddleChainRules.compile(net, x, ps) makes it " *
                "so before, as a first call of value_and_gradient! does for a loss; PaddleChainRules.explain(net, x, ps) " *
                "says whether it is.",
            ),
        )
    end
    DEPTH[] += 1
    holds && return Cint(-1)
    ensure = PYTHON[].ensure
    return @gc_safe ccall(ensure, Cint, ())
end

function regain_lock(saved::Ptr{Cvoid})
    restore = PYTHON[].restore_thread
    @gc_safe ccall(restore, Cvoid, (Ptr{Cvoid},), saved)
    return nothing
end

# What the main thread of Python has let go of in `threaded`, and on which of Julia's.
const LENT = Ref((C_NULL, 0))

"At an exit within `threaded` Python is ended, for which its main thread needs the lock."
function end_lending()
    saved, thread = LENT[]
    saved == C_NULL || thread != Threads.threadid() || regain_lock(saved)
    return nothing
end

"""
    PaddleChainRules.threaded(f)

Run `f()`, within which any Julia thread may call nets, wrappers and their pullbacks.

Call it on the main thread, which lends Python's lock to the others meanwhile. Calls take
turns. Within `f` no other use of Python is safe, such as a progress bar's, unless it is
wrapped in `PaddleChainRules.crossing(() -> ...)`. If a program calls
`PythonCall.GIL.@unlock` and `@lock` itself instead, a garbage collection at the wrong
moment stops it for ever (with Julia 1.10).

# Throws

- `ErrorException`: called within a call that Python made while a net was computing.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(3, 2, 2, 16; seed = 0);

julia> xs = [rand(Float32, 3, 8) for _ in 1:20];

julia> ys = Vector{Matrix{Float32}}(undef, 20);

julia> PaddleChainRules.threaded() do
           Threads.@threads for i in eachindex(xs)
               ys[i] = wrapper(xs[i])
           end
       end

julia> ys[3] ≈ wrapper(xs[3])
true
```
"""
function threaded(f)
    bridge()
    holds_lock() || OPEN[] > 0 || throw(
        ConcurrencyViolationError(
            "threaded must be called on the thread that holds Python's lock, the main one; " *
            "this is Julia thread $(Threads.threadid())",
        ),
    )
    holds_lock() || return f()
    nested = crossing(() -> DEPTH[] > 1)
    nested && error(
        "threaded was called while a net was computing, by code that Python called; other threads " *
        "would wait for that net for ever",
    )
    task = current_task()
    migrates, task.sticky = !task.sticky, true
    Base.sigatomic_begin()
    Threads.atomic_add!(OPEN, 1)
    saved = ccall(PYTHON[].save_thread, Ptr{Cvoid}, ())
    LENT[] = (saved, Threads.threadid())
    try
        Base.sigatomic_end()
        return f()
    finally
        Base.sigatomic_begin()
        Threads.atomic_sub!(OPEN, 1)
        # After an interrupt others may still call: who has the turn ends, and the next get an error.
        turn = TURN[]
        @gc_safe ccall(:uv_mutex_lock, Cvoid, (Ptr{Cvoid},), turn)
        LENT[] = (C_NULL, 0)
        regain_lock(saved)
        ccall(:uv_mutex_unlock, Cvoid, (Ptr{Cvoid},), turn)
        migrates && (task.sticky = false)
        Base.sigatomic_end()
    end
end
