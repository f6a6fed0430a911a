# Print the path of a Julia environment in which this checkout of PaddleChainRules loads, and
# on a second line its version of PythonCall, which juliacall's must equal.
#
#     julia [--project=...] environment.jl [Package ...]
#
# It is the active environment (the default one unless --project says otherwise) with this
# package added by path, written without Pkg, so that it needs no registry and changes
# nothing of the user's. Packages named as arguments must be there too, those with a question
# mark behind (Flux?) need not. Where something is missing, exit with status 3 and say on stderr
# what to run.

using TOML

const SOURCE = @__DIR__
const PACKAGE = TOML.parsefile(joinpath(SOURCE, "Project.toml"))

active_dir() = dirname(something(Base.active_project(), joinpath(Base.load_path_expand("@v#.#"))))

function find(dir, names)
    i = findfirst(name -> isfile(joinpath(dir, name)), names)
    return i === nothing ? Dict{String,Any}() : TOML.parsefile(joinpath(dir, names[i]))
end

function absolute_paths!(manifest, dir)
    for entries in values(get(manifest, "deps", Dict())), entry in entries
        haskey(entry, "path") && (entry["path"] = normpath(joinpath(dir, entry["path"])))
    end
    return manifest
end

function package_entry()
    strong = filter(name -> !haskey(get(PACKAGE, "weakdeps", Dict()), name), keys(PACKAGE["deps"]))
    entry = Dict{String,Any}(
        "uuid" => PACKAGE["uuid"],
        "version" => PACKAGE["version"],
        "path" => SOURCE,
        "deps" => sort!(collect(strong)),
    )
    for key in ("weakdeps", "extensions")
        haskey(PACKAGE, key) && (entry[key] = PACKAGE[key])
    end
    return entry
end

# Dependencies listed by name alone mean that the name is unique in the manifest.
function add_stdlibs!(deps, names)
    for name in names
        haskey(deps, name) && continue
        file = joinpath(Sys.STDLIB, name, "Project.toml")
        isfile(file) || continue
        project = TOML.parsefile(file)
        needs = sort!(collect(keys(get(project, "deps", Dict()))))
        deps[name] = [Dict{String,Any}("uuid" => project["uuid"], "deps" => needs)]
        add_stdlibs!(deps, needs)
    end
    return deps
end

function main(names)
    optional = [chop(name) for name in names if endswith(name, '?')]
    extra = filter(name -> !endswith(name, '?'), names)
    dir = active_dir()
    project = find(dir, ("JuliaProject.toml", "Project.toml"))
    manifest = absolute_paths!(find(dir, ("JuliaManifest.toml", "Manifest.toml")), dir)
    deps = get!(Dict{String,Any}, manifest, "deps")
    entry = package_entry()
    wanted = union(entry["deps"], extra, filter(name -> haskey(deps, name), optional))
    add_stdlibs!(deps, wanted)
    missing_names = filter(name -> !haskey(deps, name), wanted)
    if !isempty(missing_names)
        println(
            stderr,
            "The Julia environment $dir lacks $(join(sort(missing_names), ", ")). Add them:\n\n",
            "    julia -e 'using Pkg; Pkg.add([$(join(repr.(sort(missing_names)), ", "))])'\n",
        )
        exit(3)
    end
    deps[PACKAGE["name"]] = [entry]
    direct = get!(Dict{String,Any}, project, "deps")
    direct[PACKAGE["name"]] = PACKAGE["uuid"]
    for name in wanted
        direct[name] = only(deps[name])["uuid"]
    end
    # The project is an environment here, whatever package it may have belonged to.
    preferences = find(dir, ("JuliaLocalPreferences.toml", "LocalPreferences.toml"))
    kept = filter(pair -> first(pair) in ("extras", "preferences"), project)
    project = Dict{String,Any}(kept..., "deps" => direct)
    get!(manifest, "manifest_format", "2.0")
    manifest["julia_version"] = string(VERSION)

    files = ("Project.toml", "LocalPreferences.toml", "Manifest.toml")
    texts = map((project, preferences, manifest)) do table
        sprint(io -> TOML.print(io, table; sorted = true))
    end
    key = string(hash((SOURCE, texts)); base = 62)
    target = joinpath(first(DEPOT_PATH), "environments", "PaddleChainRules-$key")
    if !isfile(joinpath(target, "Manifest.toml"))
        mkpath(target)
        for (name, text) in zip(files, texts)
            part = tempname(target)
            write(part, text)
            mv(part, joinpath(target, name); force = true)
        end
    end
    print(target * "\n" * only(deps["PythonCall"])["version"] * "\n") # at once, for a pipe
    return nothing
end

main(ARGS)
