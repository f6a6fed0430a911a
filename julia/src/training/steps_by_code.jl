# Steps of training as machine code that Julia calls: two sets of arrays take turns.

"""
    step_code(training, leaves, constants, failure) -> Code or nothing

The code of a step, from parameters and states to the next ones and the loss; nothing where there is none, or it needs Python.
"""
function step_code(training::Py, leaves::Vector{TrainedLeaf}, constants, failure::Failure)
    device(first(leaves).array) == CPU || return nothing
    return reporting(failure) do
        crossing() do
            found = with_constants(() -> PythonCall.pynew(call(training.code, ())), constants, first(leaves).array)
            isempty(text(found.why)) || return nothing
            code = Code(text(found.text), found.owner)
            return code.may_leave ? nothing : code
        end
    end
end

"""
    steps_by_code(code, model, leaves, steps, callback, every) -> losses

All steps, and what is reported meanwhile.
"""
function steps_by_code(code::Code, model, leaves::Vector{TrainedLeaf}, steps::Int, callback, every::Int)
    start = Any[as_carry(trained.array) for trained in leaves]
    append!(start, (as_carry(x) for trained in leaves for x in carried(trained.leaf)))
    sets = (start, Any[similar(x) for x in start])
    losses = Vector{eltype(last(code.outputs).layout.type)}(undef, steps)
    call = known_call(() -> step_call(code, length(start)), code, 0, false)
    at = take_addresses_and_work(code, call)
    done, now, stops = 0, 1, false
    while done < steps && !stops
        due = callback === nothing ? steps : min(done + every - done % every, steps)
        done, now = advance_by_code!(losses, sets, now, code, call, at, done, due)
        write_down!(leaves, sets[now], done)
        stops = callback !== nothing && done == due && callback(done, losses[done], model) === true
        set_rates!(sets[now], leaves)
    end
    @atomic code.spare = at
    return resize!(losses, done)
end

"Learning rates as they are now, in a set of arrays."
function set_rates!(set::Vector{Any}, leaves::Vector{TrainedLeaf})
    place = length(leaves)
    for (; leaf) in leaves
        for (i, rate) in enumerate(rates(leaf.rule))
            set[place+i][] = rate
        end
        place += length(carried(leaf))
    end
    return nothing
end

as_carry(x::AbstractArray) = Array(copy(x))
as_carry(x::Real) = fill(x)

"Steps until so many are done, or it is time to look at Julia; gives how many are done, and the set that has what they gave."
function advance_by_code!(losses::Vector, sets::NTuple{2,Vector{Any}}, now::Int, code::Code, call::Call, at::Addresses, done::Int, due::Int)
    where_are = map(set -> Address[address(x)::Address for x in set], sets)
    count, until = length(first(sets)), time_ns() + round(UInt64, 1e9 * SLICE)
    GC.@preserve losses sets while done < due
        copyto!(at.bases, BEFORE_ARRAYS + 1, where_are[now], 1, count)
        copyto!(at.bases, BEFORE_ARRAYS + count + 1, where_are[3-now], 1, count)
        at.bases[end] = Address(pointer(losses, done + 1))
        run_code(code, call, at)
        now, done = 3 - now, done + 1
        time_ns() > until && break
    end
    return done, now
end

function step_call(code::Code, count::Int)
    words = [BaseOffset(BEFORE_ARRAYS + k, 0) for k in 1:2count+1]
    return Call(code, 0, false, words[1:count], words[count+1:end], zeros(Int, BEFORE_ARRAYS + 2count + 1), 0)
end
