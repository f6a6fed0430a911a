# Memory that Python holds for Julia, which Julia's garbage collector does not see.

"Bytes behind the pullbacks alive that still keep what they recorded, estimated by Python."
const RETAINED_BYTES = Threads.Atomic{Int}(0)

"More than so many bytes make a collection."
const RETAINED_LIMIT = 32 * 2^20
const NEXT_COLLECTION = Ref(RETAINED_LIMIT)

# Where Python writes the bytes behind the pullback made last.
const LAST_RETAINED_BYTES = Ref{Ptr{Int64}}(C_NULL)

start_counting() = LAST_RETAINED_BYTES[] = Ptr{Int64}(parse(UInt, text(BRIDGE.retained_bytes_address())))

last_retained_bytes() = Int(unsafe_load(LAST_RETAINED_BYTES[]))

"""
    relieve()

Collect garbage where dropped pullbacks may hold too much: the young of it, then all of it where
that was not enough. Pullbacks that are still in use raise the limit to twice what they hold.
"""
function relieve()
    PythonCall.GC.gc() # frees what threads without Python's lock have collected
    RETAINED_BYTES[] > NEXT_COLLECTION[] || return nothing
    for full in (false, true)
        GC.gc(full)
        PythonCall.GC.gc()
        2RETAINED_BYTES[] > NEXT_COLLECTION[] || break
    end
    NEXT_COLLECTION[] = max(RETAINED_LIMIT, 2RETAINED_BYTES[])
    return nothing
end
