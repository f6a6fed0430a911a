# Nets by way of DifferentiationInterface.

const MISSING = filter(name -> Base.identify_package(name) === nothing, ("DifferentiationInterface",))

if isempty(MISSING)
    include("with_interface.jl")
else
    why = "skipped: " * join(MISSING, " and ") * " not in this environment"
    println("nets/interface ", why)
    @testset "$why" begin
        @test_skip isempty(MISSING)
    end
end
