"""A process that judges cases until its input ends: a crash ends it alone.

Reads a table's and a case's name a line; writes ``? question`` before each question,
and ``= [[question, verdict, why], ...]`` after the case.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what Paddle prints

import paddle  # noqa: E402

from . import programs  # noqa: E402
from .tables import CALLED, TABLES  # noqa: E402


def main() -> None:
    paddle.set_default_dtype("float64")
    if "PROGRAMS" in os.environ:
        programs.install()
    for line in sys.stdin:
        table, name = json.loads(line)
        paddle.seed(0)
        judge = (TABLES | CALLED)[table].judge
        found = judge(name, lambda asked: answers.write(f"? {asked}\n"))
        answers.write(f"= {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
