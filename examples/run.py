"""Run the longer examples one after another: make examples."""

import subprocess
import sys
import tempfile
from pathlib import Path

from paddle_chainrules import julia

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    *("euler_beam.py", "poisson_2d.py", "burgers_1d.py"),
    *("shared_encoder.py", "gauss_newton.py", "sparse_words.py"),
    "many_steps.py",
    *(f"gallery/{n}.py" for n in ("maml", "ensemble", "neural_ode", "inverse", "flow")),
    *(f"gallery/{n}.py" for n in ("per_sample", "gan", "burgers")),
)
MANY = "many_processes.py"
LIBRARIES = "libraries/run.py"
IN_JULIA = ("poisson_2d.jl", "attention.jl")

if __name__ == "__main__":
    for script in SCRIPTS:
        print(script, flush=True)
        subprocess.run([sys.executable, "-W", "ignore", HERE / script], check=True)
    print(MANY, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]
        command += ["--nproc_per_node", "2", "--log_dir", f"{folder}/log"]
        state = f"{folder}/digits.safetensors"
        subprocess.run([*command, HERE / MANY, state], check=True)
    print(LIBRARIES, flush=True)
    folder = HERE.parent / "output" / "libraries"
    subprocess.run([sys.executable, HERE / LIBRARIES, folder], check=True)
    for script in IN_JULIA:
        try:
            found = julia.environment("Optimisers", "Zygote")
        except FileNotFoundError as why:
            print(f"{script}: skipped. {why}")
            continue
        print(script, flush=True)
        command = found.command(HERE / script)
        subprocess.run(command, env=found.variables(), check=True)
