# What users of Lux and Flux expect of a layer, with the packages themselves.

const MISSING = filter(name -> Base.identify_package(name) === nothing, ("Flux", "Lux"))

if isempty(MISSING)
    include("with_lux_flux.jl")
else
    why = "skipped: " * join(MISSING, " and ") * " not in this environment"
    println("nets/lux_flux ", why)
    @testset "$why" begin
        @test_skip isempty(MISSING)
    end
end
