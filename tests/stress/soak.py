"""Run constants.jl on four Julia threads: make soak."""

import os
import subprocess
import sys
from pathlib import Path

from paddle_chainrules import julia

environment = julia.environment("Zygote")
program = Path(__file__).with_name("constants.jl")
command = environment.command(program)
minutes = os.environ.get("MINUTES", "10")
done = subprocess.run(
    [command[0], "--threads=4", *command[1:], minutes],
    env=environment.variables(),
    check=False,
)
sys.exit(done.returncode)
