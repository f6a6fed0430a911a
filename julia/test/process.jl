# A program in a Julia of its own, which may die without taking the tests along.

"""
    run_julia(code; threads = 4, env = (), seconds = 240) -> exit code, signal, output, errors

What takes longer is killed, as a program that waits for ever should be.
"""
function run_julia(code; threads = 4, env = (), seconds = 240)
    command = `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project())
               --threads=$threads -e $code`
    out, err = IOBuffer(), IOBuffer()
    task = run(pipeline(addenv(command, env...); stdout = out, stderr = err); wait = false)
    watch = Timer(_ -> process_running(task) && kill(task, Base.SIGKILL), seconds)
    wait(task)
    Base.close(watch) # other tests have a `close` of their own
    return task.exitcode, task.termsignal, String(take!(out)), String(take!(err))
end
