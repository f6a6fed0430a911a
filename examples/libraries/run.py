"""Save, build, run and draw the examples of libraries: python run.py FOLDER."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = ("cc", "c++", "gfortran", "cmake", "ctest")


def missing():
    """Return the tools that this system lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def run(folder):
    """Run everything in this folder."""
    build = folder / "build"
    python = (sys.executable, "-W", "ignore")
    for command in (
        (*python, HERE / "save.py", folder),
        ("cmake", "-S", HERE, "-B", build, f"-DLIBRARIES={folder}"),
        ("cmake", "--build", build),
        ("ctest", "--test-dir", build, "--output-on-failure"),
        (*python, HERE / "plot.py", folder),
    ):
        subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give a folder: python examples/libraries/run.py FOLDER")
    if tools := missing():
        print(f"libraries: skipped. There is no {', '.join(tools)}; install them")
    else:
        run(Path(sys.argv[1]).resolve())
