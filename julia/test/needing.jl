# What tests need of an environment, and may find missing.

"""
    skip_test(what, why)

Count a test as skipped, and print a line from which the summary of a run takes the reason.
"""
function skip_test(what, why)
    println(what, " skipped: ", why)
    @testset "$what skipped: $why" begin
        @test_skip false
    end
    return nothing
end

"""
    run_where(packages, name)

Run `with_name.jl`, beside the file that asks, where the packages are; skip it elsewhere.
"""
function run_where(packages, name)
    missing_ones = filter(package -> Base.identify_package(package) === nothing, packages)
    isempty(missing_ones) && return include("with_$name.jl")
    return skip_test(name, join(missing_ones, " and ") * " not in Julia's environment")
end
