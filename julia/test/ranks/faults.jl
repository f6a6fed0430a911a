# What goes wrong on one of two ranks; the argument says what.

using MPI, PaddleChainRules

MPI.Init()
const fault, other = ARGS[1], MPI.Comm_rank(MPI.COMM_WORLD) == 1
rank_average(1.0)
if fault == "sizes"
    rank_average((1.0, ones(3, other ? 3 : 2)))
elseif fault == "types"
    rank_average(ones(other ? Float32 : Float64, 3))
elseif fault == "names"
    rank_average(other ? (; b = 1.0) : (; a = 1.0))
elseif fault == "missing"
    rank_average(other ? (1.0,) : (nothing,))
elseif fault == "fails"
    try
        rank_average(() -> other ? error("of mine") : 1.0)
    catch error
        println(stderr, sprint(showerror, error))
        MPI.Barrier(MPI.COMM_WORLD) # both have said it before one ends the other
        rethrow()
    end
elseif fault == "kind"
    rank_average((1.0, "text"))
elseif fault == "weight"
    rank_average(1.0; weight = other ? 0 : 1)
elseif fault == "outside"
    other && error("of mine, outside")
    rank_average(1.0)
elseif fault == "killed"
    other && ccall(:kill, Cint, (Cint, Cint), getpid(), 9)
    rank_average(1.0)
end
println("went on")
