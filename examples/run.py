"""Run the longer examples one after another: make examples."""

import subprocess
import sys
from pathlib import Path

from paddle_chainrules import julia

HERE = Path(__file__).resolve().parent
SCRIPTS = ("euler_beam.py", "poisson_2d.py", "burgers_1d.py", "gan_2d.py")

if __name__ == "__main__":
    for script in SCRIPTS:
        print(script, flush=True)
        subprocess.run([sys.executable, "-W", "ignore", HERE / script], check=True)
    try:
        found = julia.environment("Zygote")
    except FileNotFoundError as why:
        print(f"poisson_2d.jl: skipped. {why}")
    else:
        print("poisson_2d.jl", flush=True)
        command = found.command(HERE / "poisson_2d.jl")
        subprocess.run(command, env=found.variables(), check=True)
