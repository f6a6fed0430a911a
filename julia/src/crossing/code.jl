# Machine code of programs, which Julia calls without Python.

"""
    Extent(factor, power)

`factor * n^power`, where n is the number of samples of a call.
"""
struct Extent
    factor::Int
    power::Int
end

at(extent::Extent, n::Int) =
    extent.power == 0 ? extent.factor :
    extent.power == 1 ? extent.factor * n : extent.factor * n^extent.power

"""
    Layout(type, size)

An array of a call: `Array{T,N}`, and its size; `Nothing` where there is something
else, or elements that no code computes with.
"""
mutable struct Layout # so that a reference is passed
    type::DataType
    bytes::Int # of an element
    size::Vector{Extent}
end

Base.sizeof(layout::Layout, n::Int) = layout.bytes * prod(extent -> at(extent, n), layout.size; init = 1)

@enum Kind INPUT CONSTANT RESULT

"Where the elements of something are: in an input or a result by its number, or at an address."
struct Place
    kind::Kind
    at::Int
end

struct Output
    place::Place
    layout::Layout
end

const Address = Ptr{Cvoid}

"""
    BaseOffset(base, bytes)

An address of a call: a number of bytes behind one of its bases. The first base is null, and constants have their address as
bytes. The second is the block of residuals, and behind it come the arrays of the call.
"""
struct BaseOffset
    base::Int
    bytes::Int
end

const NOWHERE = BaseOffset(1, 0)
const OF_BLOCK = 2
const BEFORE_ARRAYS = 2

"""
    Call

What code does for one number of samples, worked out once: from what each word of its block of addresses is made, which
outputs are copied since the code does not write them, and how much memory it takes.
"""
mutable struct Call # so that a reference is found
    n::Int
    flat::Bool # whether parameters are one vector
    words::Vector{BaseOffset}
    copies::Vector{Tuple{BaseOffset,BaseOffset,Int}} # to, from, bytes
    missing_bytes::Vector{Int} # of each base, the memory to take if it is null; 0 if nothing uses it
    work::Int
    block::Int # bytes of residuals
end

"The addresses of one call, kept for the next one."
mutable struct Addresses # so that a reference is exchanged
    bases::Vector{Address}
    block::Vector{Int}
    number::Vector{UInt64} # where code writes a number
    work::Vector{UInt8} # memory for what is in between, if it is kept
end

"""
    Code

A program as one function of the address of a block: the number of samples, addresses of a flag that ends
it, of inputs and results, and that of memory for what is in between. Sizes and element types are checked before an
address is taken: [`samples_in`](@ref PaddleChainRules.samples_in).
"""
mutable struct Code
    address::Ptr{Cvoid} # null where nothing is computed
    may_leave::Bool # where a number that says a place is out of range
    samples::NTuple{4,Int} # the input that tells how many, its dimension, elements of a sample there, the most
    inputs::Vector{Layout}
    block::Vector{Place}
    work::Vector{Extent}
    outputs::Vector{Output}
    writers::Vector{Int} # of each result the output whose array it is, the last one
    owner::Py # which keeps the code and its constants
    @atomic calls::Vector{Call} # the latest numbers of samples; exchanged, not changed
    @atomic spare::Union{Nothing,Addresses} # for the next call
end

Code(address, may_leave, samples, inputs, block, work, outputs, writers, owner) =
    Code(address, may_leave, samples, inputs, block, work, outputs, writers, owner, Call[], nothing)

const WORK_ALIGNED = 64

"The code that a text of the Python side describes: its function `code_of`."
function Code(text::AbstractString, owner::Py)
    words = Iterators.Stateful(eachsplit(text, ' '))
    next() = popfirst!(words)
    number() = parse(Int, next())
    listed(f) = [f() for _ in 1:number()]
    extent() = Extent(number(), number())
    function layout()
        word = next()
        T, N = get(TYPES, word, Nothing), number()
        size = Extent[extent() for _ in 1:N]
        return T === Nothing ? Layout(T, 0, size) : Layout(Array{T,N}, sizeof(T), size)
    end
    kinds = Dict("i" => INPUT, "c" => CONSTANT, "o" => RESULT)
    place() = Place(kinds[next()], number())
    address, may_leave = Ptr{Cvoid}(number()), number() == 1
    samples = (number(), number(), number(), number())
    inputs, block, work, results = listed(layout), listed(place), listed(extent), listed(layout)
    outputs = listed(() -> Output(place(), layout()))
    writers = map(eachindex(results)) do j
        found = findlast(output -> output.place == Place(RESULT, j), outputs)
        found === nothing ? error("machine code with a result that is no output") : found
    end
    return Code(address, may_leave, samples, inputs, block, work, outputs, writers, owner)
end

const TYPES = Dict(
    "float32" => Float32, "float64" => Float64, "bool" => Bool, "int8" => Int8, "int16" => Int16,
    "int32" => Int32, "int64" => Int64, "uint8" => UInt8,
)

"""
    samples_in(code, first, inputs) -> Int

The number of samples where these arrays are what the inputs after the `first` must be, 0 where it
is fixed; -1 where they are not. What is no array is not looked at.
"""
function samples_in(code::Code, first::Int, inputs::Tuple)
    length(code.inputs) <= first + length(inputs) || return -1
    k, d, of_each, most = code.samples
    n = k == 0 ? 0 : size_along(inputs, k - first, d) ÷ of_each
    k == 0 || 2 <= n <= most || return -1 # one sample broadcasts
    return fits(code, first + 1, n, inputs...) ? n : -1
end

# Unrolled over the tuple, whose arrays differ in type.
size_along(::Tuple{}, _, _) = 0
size_along(xs::Tuple, k, d) = k == 1 ? size_along(xs[1], d) : size_along(Base.tail(xs), k - 1, d)
size_along(x::Array, d) = d <= ndims(x) ? size(x, d) : 0
size_along(_, _) = 0

fits(::Code, _, _) = true
fits(code::Code, k, n, x, rest...) =
    (k > length(code.inputs) ? !(x isa AbstractArray) : has_layout(code.inputs[k], n, x)) &&
    fits(code, k + 1, n, rest...)

has_layout(layout::Layout, _, x) = layout.type === Nothing && isempty(layout.size) && !(x isa AbstractArray)
function has_layout(layout::Layout, n::Int, x::Array)
    typeof(x) === layout.type || return false
    for d in 1:ndims(x)
        at(layout.size[d], n) == size(x, d) || return false
    end
    return true
end

"""
    new_array(layout, n)

An array for so many samples.
"""
new_array(layout::Layout, n::Int) = new_array(layout.type, layout.size, n)
new_array(::Type{Array{T,N}}, size::Vector{Extent}, n::Int) where {T,N} =
    Array{T,N}(undef, ntuple(d -> at(size[d], n), Val(N)))

"""
    Call(code, n, flat, inputs, outputs, bytes, block)

The call of code whose inputs and outputs are at these words. `bytes` is, of each base, the memory to take for it if it is
null: only for what the code reads or writes.
"""
function Call(code::Code, n::Int, flat::Bool, inputs::Vector{BaseOffset}, outputs::Vector{BaseOffset}, bytes::Vector{Int}, block::Int)
    source(place::Place) =
        place.kind === INPUT ? inputs[place.at] :
        place.kind === RESULT ? outputs[code.writers[place.at]] : BaseOffset(1, place.at)
    words = code.address == C_NULL ? BaseOffset[] : BaseOffset[source(place) for place in code.block]
    copies = Tuple{BaseOffset,BaseOffset,Int}[]
    for (to, output) in zip(outputs, code.outputs)
        from = source(output.place)
        to == from || to == NOWHERE || push!(copies, (to, from, sizeof(output.layout, n)))
    end
    used = Set(word.base for word in [words; map(copy -> copy[2], copies)])
    needed = [base in used ? count : 0 for (base, count) in enumerate(bytes)]
    work = sum(extent -> at(extent, n), code.work; init = 0)
    return Call(n, flat, words, copies, needed, work, block)
end

"""
    known_call(make, code, n, flat) -> Call

The call for so many samples, `make()` the first time.
"""
@inline function known_call(make::F, code::Code, n::Int, flat::Bool) where {F}
    for call in (@atomic code.calls)
        call.n == n && call.flat == flat && return call
    end
    made = make()::Call
    @atomic code.calls = [made; first((@atomic code.calls), MOST_CALLS - 1)]
    return made
end

const MOST_CALLS = 8

"""
    run_code(put!, code, call)

Compute what belongs into the arrays of a call: `put!(bases)` puts the address of its block and of each of its arrays, null
where there is none. The caller keeps them alive.

Other threads may collect garbage meanwhile. An interrupt ends it between two loops or products.
"""
@inline function run_code(put!::F, code::Code, call::Call) where {F}
    at = take_addresses(code, call)
    put!(at.bases)
    run_code(code, call, at)
    @atomic code.spare = at
    return nothing
end

# None are spare for calls within one another and on several threads at a time.
function take_addresses(code::Code, call::Call)
    spare = @atomicswap code.spare = nothing
    at = spare === nothing ? Addresses(Address[], zeros(Int, length(code.block) + 3), [UInt64(0)], UInt8[]) : spare
    length(at.bases) == length(call.missing_bytes) || resize!(at.bases, length(call.missing_bytes))
    at.bases[1] = at.bases[OF_BLOCK] = C_NULL
    return at
end

"The same, with memory for what is in between that stays from call to call."
function take_addresses_and_work(code::Code, call::Call)
    at = take_addresses(code, call)
    length(at.work) < call.work + WORK_ALIGNED && resize!(at.work, call.work + WORK_ALIGNED)
    return at
end

function run_code(code::Code, call::Call, at::Addresses)
    (; bases, block) = at
    others = fill_missing!(bases, call.missing_bytes)
    GC.@preserve others begin
        if code.address != C_NULL
            block[1], block[2] = call.n, Int(interrupt_flag())
            words = call.words
            @inbounds for i in eachindex(words)
                word = words[i]
                block[i+2] = Int(bases[word.base]) + word.bytes
            end
            call_code(code, block, call.work, at.work)
        end
        for (to, from, bytes) in call.copies
            bases[to.base] == C_NULL && continue
            ccall(:memmove, Address, (Address, Address, Csize_t), bases[to.base] + to.bytes, bases[from.base] + from.bytes, bytes)
        end
    end
    return nothing
end

"Memory for arrays that code reads or writes and the caller does not have: zeros for cotangents, and gradients that are not wanted."
function fill_missing!(bases::Vector{Address}, bytes::Vector{Int})
    others = nothing
    @inbounds for k in eachindex(bytes)
        bytes[k] > 0 && bases[k] == C_NULL || continue
        others === nothing && (others = Vector{UInt8}[])
        push!(others, zeros(UInt8, bytes[k]))
        bases[k] = Address(pointer(last(others)))
    end
    return others
end

function call_code(code::Code, block::Vector{Int}, bytes::Int, kept::Vector{UInt8})
    address, is_kept = code.address, length(kept) >= bytes + WORK_ALIGNED
    Base.sigatomic_begin()
    work = bytes == 0 ? C_NULL : is_kept ? Ptr{Cvoid}(pointer(kept)) : Libc.malloc(bytes + WORK_ALIGNED)
    if work == C_NULL && bytes > 0
        Base.sigatomic_end()
        throw(OutOfMemoryError())
    end
    block[end] = Int(work)
    GC.@preserve block code kept begin
        given = pointer(block)
        is_left = @gc_safe ccall(address, Bool, (Ptr{Int},), given)
        is_kept || work == C_NULL || Libc.free(work)
        Base.sigatomic_end() # throws what waits
        is_left && throw(code.may_leave ? OutOfRange() : InterruptException())
    end
    return nothing
end

"What code throws that was left, with nothing written that anybody has."
struct OutOfRange <: Exception end

Base.showerror(io::IO, ::OutOfRange) = print(
    io,
    "a number that says a place, such as that of a row, is out of range on the way back and was not on the way " *
    "there; leave the arguments of a net as they are until its pullback was called",
)

"""
    or_nothing(f, code, args...)

`f(args...)`, which runs the code, or nothing where that is left.
"""
function or_nothing(f::F, code::Code, args...) where {F}
    code.may_leave || return f(args...)
    return Base.inferencebarrier(caught)(f, args)
end

function caught(f, args)
    try
        return f(args...)
    catch err
        err isa OutOfRange || rethrow()
        return nothing
    end
end

# Interrupts are for Julia's first thread; it has a number that is not zero while one waits.
interrupt_flag() = Threads.threadid() == 1 ? PENDING[] : never()
never() = Address(pointer_from_objref(NEVER))
const NEVER = Ref(Int32(0))
const PENDING = Ref{Address}(C_NULL)

function find_pending()
    PENDING[] = try
        cglobal(:jl_signal_pending)
    catch # a Julia that has it no more: interrupts wait for the end
        never()
    end
    return nothing
end
