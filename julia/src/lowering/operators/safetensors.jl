# Arrays of a safetensors file, in the order in which they are there.
function read_safetensors(path)
    bytes = read(path)
    length = Int(ltoh(only(reinterpret(UInt64, bytes[1:8]))))
    header = String(bytes[9:8+length])
    types = Dict(
        "F16" => Float16, "F32" => Float32, "F64" => Float64, "I64" => Int64, "I32" => Int32,
        "I16" => Int16, "I8" => Int8, "U8" => UInt8, "BOOL" => Bool,
    )
    entry = r"\"dtype\":\"(\w+)\",\"shape\":\[([\d,]*)\],\"data_offsets\":\[(\d+),(\d+)\]"
    return map(collect(eachmatch(entry, header))) do found
        T, start, stop = types[found[1]], parse(Int, found[3]), parse(Int, found[4])
        shape = parse.(Int, split(found[2], ','; keepempty = false))
        part = bytes[9+length+start:8+length+stop]
        reshape(ltoh.(collect(reinterpret(T, part))), Tuple(reverse(shape)))
    end
end
