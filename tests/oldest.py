"""The oldest allowed version of every dependency, as pip takes them.

``pip install $(python tests/oldest.py)`` into an environment of its own, then pytest
there.
"""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "pyproject.toml").read_text()
_, BUILD, REST = re.split(r"\nrequires = |\ndependencies = ", "\n" + TEXT)
BOUNDS = re.findall(r'"([\w-]+)>=([\d.]+)', BUILD + REST)

if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in BOUNDS if name != "juliacall"))
