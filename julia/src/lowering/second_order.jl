# First and second derivatives by the input, carried through a lowered net, with their reverse
# pass, in Julia alone.

using LinearAlgebra: mul!

"""
    Plan(directions, seconds, outputs)

What is carried: the value, first derivatives by the inputs `directions`, and sums of second
ones, each given by its terms as pairs of carried first ones; and which of these, by position,
are asked for.
"""
struct Plan
    directions::Vector{Int}
    seconds::Vector{Vector{NTuple{2,Int}}}
    outputs::Vector{Int}
end

Base.length(plan::Plan) = 1 + length(plan.directions) + length(plan.seconds)
firsts(plan::Plan) = 1 .+ (1:length(plan.directions))
seconds(plan::Plan) = zip((1+length(plan.directions)) .+ eachindex(plan.seconds), plan.seconds)

laplacian_plan(d) = Plan(1:d, [[(1 + i, 1 + i) for i in 1:d]], [2 + d])

"Of derivatives of order 0 to 2, each once."
function plan_of(indices)
    inputs = [[i for (i, m) in enumerate(index) for _ in 1:m] for index in indices]
    directions = sort!(unique(Iterators.flatten(inputs)))
    place(i) = 1 + searchsortedfirst(directions, i)
    pairs = [(place(used[1]), place(used[2])) for used in inputs if length(used) == 2]
    outputs = map(inputs) do used
        isempty(used) && return 1
        length(used) == 1 && return place(only(used))
        return 1 + length(directions) + findfirst(==((place(used[1]), place(used[2]))), pairs)
    end
    return Plan(directions, [[pair] for pair in pairs], outputs)
end

"What the reverse pass needs of one hidden layer: `(width, n, parts)` each."
struct Step{T}
    z::Array{T,3}
    f::Array{T,3} # the activation's derivatives at the value of z
    products::Array{T,3} # of each sum of second derivatives the sum of z_i z_j
    h::Array{T,3}
    parts::Vector{Int} # that h has
end

part(parts::Array{T,3}, i) where {T} = view(parts, :, :, i)
columns(parts::Array{T,3}) where {T} = reshape(parts, size(parts, 1), :)

"""
    carry(plan, activation, weights, x) -> y, steps

`y` has the size `(out, n, outputs)`. `weights` holds matrix and bias of each layer.
"""
function carry(plan::Plan, activation, weights, x::AbstractMatrix)
    T = promote_type(eltype(x), map(eltype, Iterators.flatten(weights))...)
    (w, b), c = weights[1], length(plan)
    z = zeros(T, size(w, 1), size(x, 2), c)
    mul!(part(z, 1), w, x)
    part(z, 1) .+= b
    for (i, direction) in zip(firsts(plan), plan.directions)
        part(z, i) .= view(w, :, direction)
    end
    steps = Step{T}[]
    for (l, (w, b)) in enumerate(weights[2:end])
        parts = l == length(weights) - 1 ? plan.outputs : collect(1:c)
        push!(steps, activate(plan, activation, z, parts))
        z = reshape(w * columns(steps[end].h), size(w, 1), size(x, 2), length(parts))
        for (slot, i) in enumerate(parts)
            i == 1 && (part(z, slot) .+= b)
        end
    end
    return isempty(steps) ? z[:, :, plan.outputs] : z, steps
end

function activate(plan::Plan, activation, z::Array{T,3}, parts) where {T}
    width, n, _ = size(z)
    values, f = Array{T}(undef, width, n), Array{T}(undef, width, n, 3)
    fill_activation!(values, f, activation, z)
    products = zeros(T, width, n, length(plan.seconds))
    for (m, pairs) in enumerate(plan.seconds), (i, j) in pairs
        part(products, m) .+= part(z, i) .* part(z, j)
    end
    h = Array{T}(undef, width, n, length(parts))
    for (slot, i) in enumerate(parts)
        m = i - 1 - length(plan.directions)
        if i == 1
            part(h, slot) .= values
        elseif m <= 0
            part(h, slot) .= part(f, 1) .* part(z, i)
        else
            part(h, slot) .= part(f, 2) .* part(products, m) .+ part(f, 1) .* part(z, i)
        end
    end
    return Step{T}(z, f, products, h, parts)
end

function fill_activation!(values, f, activation, z)
    n = length(values)
    for k in 1:n
        values[k] = activation(z[k])
        f[k], f[n+k], f[2n+k] = slopes(activation, z[k], values[k])
    end
    return nothing
end

"""
    carry_back(plan, weights, x, steps, ȳ) -> weights_grads, x̄

Of `ȳ` with the size of `y`. The gradients are pairs as `weights`.
"""
function carry_back(plan::Plan, weights, x, steps, ȳ::Array{T,3}) where {T}
    grads = Vector{NTuple{2,Array{T}}}(undef, length(weights))
    bars, parts = ȳ, plan.outputs
    for l in length(weights):-1:2
        w, step = weights[l][1], steps[l-1]
        grads[l] = (columns(bars) * columns(step.h)', bias_gradient(bars, parts))
        below = reshape(w' * columns(bars), size(w, 2), size(x, 2), length(parts))
        bars = activate_back(plan, step, below)
        parts = 1:length(plan)
    end
    w = weights[1][1]
    slot = findfirst(==(1), parts)
    z̄ = slot === nothing ? zeros(T, size(w, 1), size(x, 2)) : part(bars, slot)
    w̄ = z̄ * x'
    for (slot, i) in enumerate(parts)
        i in firsts(plan) && (view(w̄, :, plan.directions[i-1]) .+= vec(sum(part(bars, slot); dims = 2)))
    end
    grads[1] = (w̄, bias_gradient(bars, parts))
    return grads, w' * z̄
end

function bias_gradient(bars::Array{T,3}, parts) where {T}
    slot = findfirst(==(1), parts)
    return slot === nothing ? zeros(T, size(bars, 1)) : vec(sum(part(bars, slot); dims = 2))
end

function activate_back(plan::Plan, step::Step{T}, bars::Array{T,3}) where {T}
    z, (f1, f2, f3) = step.z, (part(step.f, k) for k in 1:3)
    found = zeros(T, size(z))
    slots = Dict(zip(step.parts, axes(bars, 3)))
    if haskey(slots, 1)
        part(found, 1) .+= f1 .* part(bars, slots[1])
    end
    for i in firsts(plan)
        haskey(slots, i) || continue
        bar = part(bars, slots[i])
        part(found, 1) .+= f2 .* part(z, i) .* bar
        part(found, i) .+= f1 .* bar
    end
    for (m, (i, pairs)) in enumerate(seconds(plan))
        haskey(slots, i) || continue
        bar = part(bars, slots[i])
        part(found, 1) .+= (f3 .* part(step.products, m) .+ f2 .* part(z, i)) .* bar
        part(found, i) .+= f1 .* bar
        for (j, k) in pairs
            part(found, j) .+= f2 .* bar .* part(z, k)
            part(found, k) .+= f2 .* bar .* part(z, j)
        end
    end
    return found
end

# Entries of the matrices that are worked on at a time: what stays in the cache.
const BLOCK_ENTRIES = 2^15

"Ranges of columns, one of all where they are few."
function blocks(weights, x)
    n, columns = size(x, 2), max(256, BLOCK_ENTRIES ÷ maximum(size(w, 1) for (w, _) in weights))
    n <= 2columns && return [1:n]
    return [i:min(i + columns - 1, n) for i in 1:columns:n]
end

"""
    carry_blocks(plan, activation, weights, x) -> y, steps

As [`carry`](@ref), but of many points block by block, which is faster, and without steps.
"""
function carry_blocks(plan::Plan, activation, weights, x)
    ranges = blocks(weights, x)
    length(ranges) == 1 && return carry(plan, activation, weights, x)
    found = [first(carry(plan, activation, weights, x[:, r])) for r in ranges]
    return reduce(hcat, found), nothing
end

"""
    carry_back_blocks(plan, activation, weights, x, steps, ȳ) -> weights_grads, x̄

As [`carry_back`](@ref), of what [`carry_blocks`](@ref) gave.
"""
carry_back_blocks(plan::Plan, _, weights, x, steps, ȳ) = carry_back(plan, weights, x, steps, ȳ)
function carry_back_blocks(plan::Plan, activation, weights, x, ::Nothing, ȳ)
    found = map(blocks(weights, x)) do r
        columns = x[:, r]
        _, steps = carry(plan, activation, weights, columns)
        carry_back(plan, weights, columns, steps, ȳ[:, r, :])
    end
    grads = reduce((a, b) -> map((p, q) -> p .+ q, a, b), map(first, found))
    return grads, reduce(hcat, map(last, found))
end

function second_order(plan::Plan, l::Lowered, x, ps)
    y, _ = carry_blocks(plan, l.activation, layers(l, ps), columns_of(x))
    return with_trailing_of(x, y)
end

layers(l::Lowered, ps) = pairs_of(in_order(l, ps))
pairs_of(arrays) = collect(zip(arrays[1:2:end], arrays[2:2:end]))
columns_of(x) = reshape(x, size(x, 1), :)

"Each output in the shape of `x` but for its first dimension."
with_trailing_of(x, y) =
    ntuple(i -> reshape(y[:, :, i], size(y, 1), size(x)[2:end]...), size(y, 3))

function checked(l::Lowered, x)
    features = l.sizes[1][2]
    ndims(x) > 0 && size(x, 1) == features || throw(
        DimensionMismatch(
            "the input has size $(size(x)), the net needs ($features, n): $features features " *
            "first, the batch last",
        ),
    )
    return features
end

function checked_index(l::Lowered, x, index)
    found = checked_index(checked(l, x), index)
    sum(found) <= 2 || throw(
        ArgumentError(
            "multi_index $found is of order $(sum(found)), of a lowered net the highest is 2; " *
            "use the net itself, or ForwardDiff on a lower derivative",
        ),
    )
    return found
end

laplacian(l::Lowered, x, ps) = only(second_order(laplacian_plan(checked(l, x)), l, x, ps))
derivative(l::Lowered, x, ps, index) = only(derivatives(l, x, ps, (index,)))
derivatives(l::Lowered, x, ps, indices) =
    second_order(plan_of(checked_indices(index -> checked_index(l, x, index), indices)), l, x, ps)

laplacian(m::LoweredModule, x) = laplacian(m.net, x, m.params)
derivative(m::LoweredModule, x, index) = derivative(m.net, x, m.params, index)
derivatives(m::LoweredModule, x, indices) = derivatives(m.net, x, m.params, indices)
