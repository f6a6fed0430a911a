# Files by name, as standard input asks for them, a line each: what is loaded and compiled for one serves
# those after it. "test nets/net" runs a file of tests, "run /a/path.jl" any other in a module of its own.
# Behind what each prints stands a line that begins with END.

include("files.jl")

const END = "~~ end of "

for line in eachline(stdin)
    what, name = split(line, ' '; limit = 2)
    passed = true
    try
        if what == "test"
            @testset verbose = true "$name" begin
                run_file(name)
            end
        else
            cd(() -> run_alone(name), dirname(name))
        end
    catch err # the tests that failed are printed; what else there is, is said
        passed = false
        err isa Test.TestSetException || showerror(stderr, err, catch_backtrace())
    end
    flush(stderr) # before the line that has it read
    print(stdout, "\n", END, line, passed ? " passed\n" : " failed\n")
    flush(stdout)
end
