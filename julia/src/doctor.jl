# What works between the languages, a line each.

"""
    PaddleChainRules.doctor(io = stdout)

Say how Julia, Python and Paddle work together here, a line for each, with remedies.

It looks at versions, threads, whose handler of SIGSEGV is in place, how tensors cross, and
a net's call and gradients that cross once. `python -m paddle_chainrules doctor` looks at
Python's side too.

# Arguments

- `io`: where to print.

# Returns

`true` if nothing is amiss.

# Examples

```jldoctest
julia> PaddleChainRules.doctor(devnull) isa Bool
true
```
"""
function doctor(io::IO = stdout)
    fine = Ref(true)
    function say(is_fine, subject, fact, remedy = "")
        fine[] &= is_fine
        println(
            io, rpad(is_fine ? "ok" : "FAULT", 5), "  ", subject, ": ", fact,
            is_fine || isempty(remedy) ? "" : "; $remedy",
        )
    end
    version = pkgversion(PythonCall)
    exe = PythonCall.python_executable_path()
    say(true, "Julia", "$VERSION, PythonCall $version, $exe")
    bridge()
    gpu = IS_GPU_BUILD[] ? "for CUDA" : "for the CPU"
    say(true, "Paddle", "$(PADDLE.__version__), built $gpu")
    count = Threads.maxthreadid()
    handles = julia_handles_segv()
    say(
        handles || count == 1, "Threads",
        "$count of Julia's; the handler of SIGSEGV is " * (handles ? "Julia's" : "Python's") *
        (handles || count > 1 ? "" : ", as one thread allows, and Ctrl-C is Python's"),
        "set PYTHON_JULIACALL_HANDLE_SIGNALS=yes before juliacall is imported",
    )
    way = HAS_TABLE[] ? "DLPack's exchange table" : "capsules of DLPack"
    net = PaddleFCNet(3, 2, 2, 5; activation = "tanh", seed = 0)
    x = Float32[0.1 0.4; -0.2 0.5; 0.3 -0.6]
    y, back = pullback(net, x)
    _, x̄ = back(one.(y))
    slope = (sum(net(x .+ 0.01f0 .* x̄)) - sum(net(x .- 0.01f0 .* x̄))) / 0.02f0
    agree = isapprox(slope, sum(abs2, x̄); rtol = 1e-2)
    say(
        agree, "A net", "tensors cross by $way; its gradients " *
        (agree ? "agree" : "do NOT agree") * " with differences",
        "please tell us, with these lines",
    )
    return fine[]
end
