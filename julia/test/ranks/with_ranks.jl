using MPI: mpiexec
using Optimisers # for what is read
using PaddleChainRules
using Serialization: deserialize
using Test

# UCX, where MPI stands on it, would take over the signal of Julia's garbage collector.
const SIGNALS = "UCX_ERROR_SIGNALS" => "SIGILL,SIGBUS,SIGFPE"

"Run a script on some ranks; whether it ended well, what it said, and in how many seconds."
function on_ranks(n, script, args...)
    said = IOBuffer()
    julia = `$(Base.julia_cmd()) -O1 --project=$(Base.active_project())`
    file = joinpath(@__DIR__, script)
    command = mpiexec(exe -> `$exe -n $n $julia $file $args`)
    command = addenv(ignorestatus(command), SIGNALS, "OMP_NUM_THREADS" => "1")
    seconds = @elapsed done = run(pipeline(command; stdout = said, stderr = said))
    return (; well = success(done), said = String(take!(said)), seconds)
end

@testset "$n processes equal one" for n in (1, 2, 4)
    done = on_ranks(n, "equal.jl")
    done.well || println(last(done.said, 3000))
    @test done.well
    # Each rank of each case says how far it is from one process.
    cases = [split(m[1], ' ') for m in eachmatch(r"^case (.*)$"m, done.said)]
    @test length(cases) == 9n
    for (name, difference, bound) in cases
        @test parse(Float64, difference) <= parse(Float64, bound)
    end
    @test length(unique(m[1] for m in eachmatch(r"^bits (.*)$"m, done.said))) == 1
end

@testset "faults: $fault" for (fault, expected) in (
    "sizes" => r"ranks disagree at leaf 2: rank 0 has 3×2 numbers of Float64, rank 1 has 3×3 numbers of Float64",
    "types" => r"rank 0 has 3 numbers of Float64, rank 1 has 3 numbers of Float32",
    "names" => r"ranks disagree.*rank 0 has nested as.*a.*rank 1 has nested as.*b"s,
    "missing" => r"rank 0 has nothing, rank 1 has a Float64",
    "fails" => r"rank 1 of 2 failed \(of mine\); mend the cause there",
    "kind" => r"rank_average takes arrays and numbers of floating point, got",
    "weight" => r"a rank's weight must be positive, got 0",
    "outside" => r"of mine, outside",
    "killed" => r"KILLED BY SIGNAL|EXIT CODE: 9|signal 9"i,
)
    done = on_ranks(2, "faults.jl", fault)
    @test !done.well
    @test done.seconds < 60
    @test occursin(expected, done.said)
    @test !occursin("went on", done.said)
end

@testset "a run that is started again has the same bits" begin
    mktempdir() do folder
        example = joinpath(@__DIR__, "..", "..", "..", "examples", "many_digits.jl")
        paths = whole, parts = joinpath(folder, "whole.jls"), joinpath(folder, "parts.jls")
        # The layer draws its own start, which the first run hands to the others.
        @test on_ranks(2, example, parts, "100").well
        cp(parts, whole)
        killed = on_ranks(2, "resumed.jl", parts, "300", "150")
        @test !killed.well
        @test deserialize(parts).step == 200
        @test on_ranks(2, example, parts, "300").well
        @test on_ranks(2, example, whole, "300").well
        one, other = deserialize.(paths)
        @test one.step == other.step == 300
        @test all(map(==, one.ps, other.ps))
        @test repr(one.optimizer) == repr(other.optimizer)
    end
end

@testset "a call without MPI.Init" begin
    @test_throws "MPI.Init() first" rank_average([1.0])
end
