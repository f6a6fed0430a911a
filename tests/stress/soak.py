"""Run constants.jl, then code.jl, on four Julia threads: make soak.

What is freed is overwritten meanwhile, so that its later use shows in a number.
"""

import os
import subprocess
import sys
from pathlib import Path

from paddle_chainrules import julia
from run import FREED_OVERWRITTEN

HERE = Path(__file__).parent
PROGRAMS = {
    "constants.jl": os.environ.get("MINUTES", "10"),
    "code.jl": os.environ.get("CALLS", "10000000"),
}
environment = julia.environment("Zygote")
status = 0
for name, much in PROGRAMS.items():
    command = environment.command(HERE / name)
    done = subprocess.run(
        [command[0], "--threads=4", *command[1:], much],
        env={**environment.variables(), **FREED_OVERWRITTEN},
        check=False,
    )
    status = status or done.returncode
sys.exit(status)
