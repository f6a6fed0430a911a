"""Run lowered.jl with the Julia on the PATH and this Python: ``make bench-lowered``."""

import subprocess
from pathlib import Path

from paddle_chainrules import julia


def main() -> None:
    found = julia.environment("Zygote")
    script = Path(__file__).resolve().with_suffix(".jl")
    subprocess.run(found.command(script), env=found.variables(), check=True)


if __name__ == "__main__":
    main()
