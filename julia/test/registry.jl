# What AutoMerge of the General registry asks of a package, as far as the package alone tells: its name, identifier and
# version, bounds for what it depends on, its licence, and names of files that any file system takes. Whether the
# registry has the name or the identifier, and whether it can be added from there, only the registry tells.

using Pkg: Pkg
using TOML
using UUIDs: UUID, uuid_version

const FOLDER = dirname(@__DIR__)
const PROJECT = TOML.parsefile(joinpath(FOLDER, "Project.toml"))
const COMPAT = PROJECT["compat"]

"Whether a bound takes a finite number of breaking releases."
is_bounded(text) = all(Pkg.Types.semver_spec(text).ranges) do range
    range.upper.n >= 1 && range.upper != Pkg.Types.VersionBound("0")
end

stdlib_projects() = filter(isfile, joinpath.(readdir(Sys.STDLIB; join = true), "Project.toml"))

@testset "name, identifier and version" begin
    (; name, uuid, version) = (; (Symbol(key) => PROJECT[key] for key in ("name", "uuid", "version"))...)
    @test occursin(r"^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*[0-9]?$", name) && length(name) >= 5
    @test !occursin("julia", lowercase(name)) && !startswith(name, "Ju") && !endswith(lowercase(name), "jl")
    @test isfile(joinpath(FOLDER, "src", "$name.jl"))
    id = UUID(uuid)
    @test uuid_version(id) == 4 && (id.value >> 62) & 3 == 2
    installed = [UUID(TOML.parsefile(file)["uuid"]) for file in stdlib_projects()]
    @test length(installed) > 20 && !(id in installed)
    number = VersionNumber(version)
    @test isempty(number.prerelease) && isempty(number.build)
end

@testset "bounds" begin
    asked = union((keys(get(PROJECT, part, Dict())) for part in ("deps", "weakdeps", "extras"))...)
    @test sort!(collect(keys(COMPAT))) == sort!([collect(asked); "julia"]) # those of the standard library too
    @test filter(name -> !is_bounded(COMPAT[name]), collect(keys(COMPAT))) == []
    @test map(is_bounded, ["1.2", "0.5, 1", "1.2 - 3", ">= 1.2", "0"]) == [true, true, true, false, false]
    julia = Pkg.Types.semver_spec(COMPAT["julia"])
    @test VERSION in julia && !(v"2" in julia)
end

@testset "names of what it has" begin
    identifiers(part) = [name => uuid for (name, uuid) in get(PROJECT, part, Dict())]
    rows = union(identifiers("deps"), identifiers("weakdeps"), identifiers("extras"))
    @test allunique(first.(rows)) && allunique(last.(rows)) # one identifier for a name, in all three
    @test issubset(PROJECT["targets"]["test"], first.(rows))
    for (extension, of) in PROJECT["extensions"]
        @test isfile(joinpath(FOLDER, "ext", "$extension.jl"))
        @test issubset(of isa String ? [of] : of, keys(PROJECT["weakdeps"]))
    end
end

@testset "licence, readme and files" begin
    # A registry has the folder alone, so what stands above it is not enough.
    license = read(joinpath(FOLDER, "LICENSE"), String)
    @test startswith(license, "MIT License") && !islink(joinpath(FOLDER, "LICENSE"))
    whole = joinpath(dirname(FOLDER), "LICENSE")
    isfile(whole) && @test read(whole, String) == license
    @test filesize(joinpath(FOLDER, "README.md")) > 100
    for (_, folders, files) in walkdir(joinpath(FOLDER, "src"))
        found = [folders; files]
        @test allunique(lowercase.(found)) && all(isascii, found) && !any(name -> occursin(r"[<>:\"\\|?*]|[.\s]$", name), found)
    end
end
