# Arrays of a safetensors file by name.
function read_safetensors(path)
    bytes = read(path)
    length = Int(ltoh(only(reinterpret(UInt64, bytes[1:8]))))
    header = String(bytes[9:8+length])
    types = Dict(
        "F16" => Float16, "F32" => Float32, "F64" => Float64, "I64" => Int64, "I32" => Int32,
        "I16" => Int16, "I8" => Int8, "U8" => UInt8, "BOOL" => Bool,
    )
    entry = r"\"([^\"]+)\":\{\"dtype\":\"(\w+)\",\"shape\":\[([\d,]*)\],\"data_offsets\":\[(\d+),(\d+)\]"
    found = Dict{String,Array}()
    for (name, type, shape, start, stop) in eachmatch(entry, header)
        part = bytes[9+length+parse(Int, start):8+length+parse(Int, stop)]
        sizes = reverse(parse.(Int, split(shape, ','; keepempty = false)))
        found[name] = reshape(ltoh.(collect(reinterpret(types[type], part))), Tuple(sizes))
    end
    return found
end
