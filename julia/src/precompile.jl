# Compile what every program calls, ahead of time and without Python: nets of one to three layers on
# matrices, and one of many, with their parameters as a flat vector or a tuple of arrays.

"""
    precompile_rule(rule, types...)

A rule and the pullback that it returns, for a matrix as cotangent.
"""
function precompile_rule(rule, types...)
    precompile(rule, types)
    made = Base.promote_op(rule, types...)
    back = made <: Tuple ? fieldtype(made, 2) : Any
    isconcretetype(back) && precompile(Tuple{back,Matrix{Float32}})
    isconcretetype(back) && precompile(Tuple{back,Matrix{Float64}})
    return back
end

for T in (Float32, Float64)
    X = Matrix{T}
    precompile(Tuple{PaddleNet,X,Vector{T}})
    for how in (Lazy, Eager)
        precompile_rule(net_rule, how, PaddleNet, X, Vector{T})
    end
    for layers in (1, 2, 3, MANY)
        P = Tuple{ntuple(i -> isodd(i) ? Matrix{T} : Vector{T}, 2layers)...}
        precompile(Tuple{PaddleNet,X,P})
        precompile(Tuple{PaddleModuleWrapper{P,nothing,false},X})
        for how in (Lazy, Eager)
            precompile_rule(net_rule, how, PaddleNet, X, P)
            precompile_rule(wrapper_rule, how, PaddleModuleWrapper{P,nothing,false}, X)
        end
    end
    for N in 0:4
        precompile(copy_out, (Type{T}, NTuple{N,Int}, DLTensor))
    end
end
precompile(start_paddle, ())
precompile(wrapper, (Py,))
for options in ((:seed,), (:activation, :seed), (:activation, :dtype, :seed))
    types = Tuple{map(name -> name === :seed ? Int : String, options)...}
    precompile(Core.kwcall, (NamedTuple{options,types}, typeof(PaddleFCNet), Int, Int, Int, Int))
end
precompile(PaddleFCNet, (Int, Int, Int, Int))
