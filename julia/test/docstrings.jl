# Every name for users has a docstring as Julia's users know them, whose examples run.

using PaddleChainRules: PaddleChainRules

const SOURCE = read(joinpath(pkgdir(PaddleChainRules), "src", "PaddleChainRules.jl"), String)

"Return the names for users: exported, or public and written with the module's name."
function names_for_users()
    list = match(r":public,(.*?)\)"s, SOURCE).captures[1]
    others = [Symbol(found.captures[1]) for found in eachmatch(r":([\w!]+)", list)]
    exported = filter(name -> Base.isexported(PaddleChainRules, name), names(PaddleChainRules))
    return sort!(unique!([setdiff(exported, (:PaddleChainRules,)); others]))
end

"Join a name's docstrings as they are written; empty if there are none."
function docstring(name)
    binding = Base.Docs.Binding(PaddleChainRules, name)
    found = get(Base.Docs.meta(PaddleChainRules), binding, nothing)
    found === nothing && return ""
    return join((join(found.docs[signature].text) for signature in found.order), "\n")
end

"List the code blocks of a docstring with a language behind the fence."
blocks(text, word) = [found.captures[1] for found in eachmatch(Regex("^```$word\n(.*?)^```", "ms"), text)]

"Split a session at Julia's prompt into inputs, each with what is printed after it."
function inputs(block)
    parts = split(block, r"^julia> "m; keepempty = false)
    return map(parts) do part
        lines = split(chomp(part), '\n')
        last = something(findfirst(line -> !startswith(line, "       "), lines[2:end]), length(lines))
        (join(lines[1:last], '\n'), strip(join(lines[last+1:end], '\n')))
    end
end

"Return what Julia's prompt prints for an input, in a module."
function printed(input, own)
    value = Base.include_string(own, input)
    silent = value === nothing || endswith(rstrip(replace(input, r"#[^\n]*$" => "")), ';')
    return silent ? "" : repr(MIME("text/plain"), value)
end

const NAMES = names_for_users()
@test length(NAMES) > 30

@testset "$name has a docstring in Julia's style" for name in NAMES
    text = docstring(name)
    paragraphs = split(strip(text, '\n'), "\n\n")
    @test startswith(paragraphs[1], Regex("    (PaddleChainRules\\.)?\\Q$name\\E"))
    @test length(paragraphs) > 2 && endswith(paragraphs[2], '.')
    @test occursin(r"^# Examples$"m, text)
    @test !isempty([blocks(text, "jldoctest"); blocks(text, "julia")])
    for block in blocks(text, "julia") # needs what is not there, such as other ranks
        @test !any(part -> Meta.isexpr(part, (:error, :incomplete)), Meta.parseall(block).args)
    end
end

@testset "$name prints what its docstring says" for name in NAMES
    for block in blocks(docstring(name), "jldoctest")
        own = Module(:Session)
        Core.eval(own, :(include(path) = Base.include($own, path)))
        Core.eval(own, :(using PaddleChainRules))
        found = inputs(block)
        @test any(pair -> !isempty(pair[2]), found)
        for (input, expected) in found
            @test (input, printed(input, own)) == (input, expected)
        end
    end
end
