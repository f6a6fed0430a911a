# Files of tests that need packages which an environment may lack.

"""
    run_where(packages, name)

Run `with_name.jl`, beside the file that asks, where the packages are; say elsewhere that it is skipped.
"""
function run_where(packages, name)
    missing_ones = filter(package -> Base.identify_package(package) === nothing, packages)
    isempty(missing_ones) && return include("with_$name.jl")
    why = "skipped: " * join(missing_ones, " and ") * " not in Julia's environment"
    println(name, " ", why)
    @testset "$why" begin
        @test_skip isempty(missing_ones)
    end
end
