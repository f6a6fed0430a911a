# Compile what every program calls, ahead of time and without Python: nets of one to three layers on
# matrices, and one of many, with their parameters as a flat vector or a tuple of arrays.

"""
    precompile_rule(rule, types...)

A rule and the pullbacks that it may return, for a matrix as cotangent; gives their types.
"""
function precompile_rule(rule, types...)
    precompile(rule, types)
    # By code, and the general way.
    backs = [back for made in Base.uniontypes(Base.promote_op(rule, types...)) for back in Base.uniontypes(made <: Tuple ? fieldtype(made, 2) : Any)]
    for back in filter(isconcretetype, backs)
        precompile(Tuple{back,Matrix{Float32}})
        precompile(Tuple{back,Matrix{Float64}})
    end
    return backs
end

for T in (Float32, Float64), N in (PaddleNet{true}, PaddleNet{false})
    X = Matrix{T}
    precompile(Tuple{N,X,Vector{T}})
    for how in (Lazy, Eager)
        precompile_rule(net_rule, how, N, X, Vector{T})
    end
    for layers in (1, 2, 3, MAX_TUPLE_LENGTH)
        P = Tuple{ntuple(i -> isodd(i) ? Matrix{T} : Vector{T}, 2layers)...}
        W = PaddleModuleWrapper{P,nothing,false,N}
        precompile(Tuple{N,X,P})
        precompile(Tuple{W,X})
        for how in (Lazy, Eager)
            precompile_rule(net_rule, how, N, X, P)
            precompile_rule(wrapper_rule, how, W, X)
        end
    end
end
for T in (Float32, Float64), N in 0:4
    precompile(copy_out, (Type{T}, NTuple{N,Int}, DLTensor))
end
precompile(start_paddle, ())
precompile(wrapper, (Py,))
for options in ((:seed,), (:activation, :seed), (:activation, :dtype, :seed))
    types = Tuple{map(name -> name === :seed ? Int : String, options)...}
    precompile(Core.kwcall, (NamedTuple{options,types}, typeof(PaddleFCNet), Int, Int, Int, Int))
end
precompile(PaddleFCNet, (Int, Int, Int, Int))

"""
    stand_in(T, sizes...)

A wrapper with parameters of these sizes that can be called and differentiated without Python, for what extensions
compile by running it: its machine code computes nothing, and what it gives holds anything.
"""
function stand_in(T::Type, sizes::Dims...)
    params, features, outputs = map(size -> zeros(T, size), sizes), sizes[1][2], sizes[end][1]
    names = [Symbol(i ÷ 2, isodd(i) ? ".bias" : ".weight") for i in 0:length(sizes)-1]
    layout(size, samples = ()) = Layout(
        Array{T,length(size) + length(samples)}, sizeof(T), [map(d -> Extent(d, 0), [size...]); samples...],
    )
    batch(rows) = layout((rows,), (Extent(1, 1),))
    inputs, y = [map(layout, [sizes...]); batch(features)], batch(outputs)
    code(inputs, k, results) = Code(
        C_NULL, false, (k, 2, 1, typemax(Int)), inputs, Place[], Extent[],
        [Output(Place(RESULT, i), result) for (i, result) in enumerate(results)], collect(eachindex(results)), NONE,
    )
    there, count = code(inputs, length(inputs), [y]), length(inputs)
    back = PullbackCode((true, true, [true]), code([y], 1, inputs), collect(1:count), count - 1, 1)
    codes = Codes()
    @atomic codes.values = [ForwardCode(there, 1, (nothing,))]
    @atomic codes.ways = [VJPCode(there, 1, (nothing,), 1, [1], NONE, [back])]
    handle = PaddleHandle(
        NONE, "tanh", WeakRef[], Ptr{Cvoid}[], false, NONE, NONE, NONE, Dict{Any,Any}(), (;), codes, nothing, false,
    )
    net = PaddleNet{true}(handle, "FCNet", names, [sizes...], map(Returns(T), names), T, sum(prod, sizes), features)
    return PaddleModuleWrapper(net, params)
end
