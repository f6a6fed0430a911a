# Calls of nets on arrays in a row, as the tapes of ReverseDiff and Tracker have them.

"""
    RowCall

The call of a net of so many inputs; what follows in the row are parameters, a flat vector or one
after another.
"""
struct RowCall
    net::PaddleNet
    count::Int
    flat::Bool
end

"A call, and the row that it is given."
function row_call(net::PaddleNet, xs::Tuple, ps)
    row, flat = by_position(net, ps), is_flat(ps)
    return RowCall(net, length(xs), flat), (xs..., (flat ? (row,) : row)...)
end

function reversible(call::RowCall, row)
    ps = call.flat ? last(row) : row[call.count+1:end]
    return reversible(call.net, row[1:call.count], ps)
end

"Gradients of those in the row that are flagged, in its order."
function row_gradients(call::RowCall, reverse, ȳ, moved)
    asked = NeedsGrad(any(moved[call.count+1:end]), any(moved[1:call.count]))
    p̄s, x̄s = gradients(reverse, cotangents(reverse, ȳ), asked)
    return (x̄s..., p̄s...)
end
