# Nets in streams: to other processes by Distributed, and in files of Serialization.

using Serialization: Serialization, AbstractSerializer, Serializer, deserialize, serialize

# Names of Paddle's own layers, plain values and tensors: to read them makes a net and runs no code.
function Serialization.serialize(s::AbstractSerializer, handle::PaddleHandle)
    Serialization.serialize_cycle(s, handle) && return nothing
    description, arrays = try
        crossing() do
            made = BRIDGE.described(object_of(handle))
            text(made[0]), receive_all(made[1])
        end
    catch err
        # Between processes half a message stops both: there the refusal travels, for the reader.
        err isa PyException && !(s isa Serializer) || rethrow()
        crossing(() -> string(err.v)), nothing
    end
    Serialization.serialize_type(s, PaddleHandle, true)
    serialize(s, description)
    serialize(s, arrays)
    return nothing
end

function Serialization.deserialize(s::AbstractSerializer, ::Type{PaddleHandle})
    description, arrays = deserialize(s)::String, deserialize(s)
    arrays === nothing && throw(ArgumentError(description))
    handle = crossing() do
        made = described_net(description, arrays)
        PaddleHandle(made, text(made.activation), shared_buffers(made))
    end
    Serialization.deserialize_cycle(s, handle)
    return handle
end
