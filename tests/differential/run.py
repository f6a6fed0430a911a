"""Judge all cases of both tables, print the counts, and write docs/refusals.md.

``make differential``; with arguments, only cases with one of these in their names, and
nothing is written, nor with PROGRAMS=1, where all is asked of programs.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from .pool import Case, judged
from .tables import CALLED, TABLES

LIMITS = Path(__file__).parents[2] / "docs" / "refusals.md"
Verdicts = dict[Case, list[list[str]]]

HEAD = """# What is refused

This page lists the derivatives that nets and transforms refuse. A refusal is a
`NotImplementedError` or a `TypeError` that names the operator.

`make differential` makes the page. It asks for derivatives of {cases} functions, layers
and small programs, and compares each with central differences in float64, element by
element. {exact} of {questions} questions were exact, {refused} refused, none wrong, and
no process crashed. A question names all floating arguments, one, or those of `wrt`;
all outputs or one; and `vjp`, `jvp`, `pullback` or `value_and_grad`.

Each is also called fifty times with other values, in float32 and float64: functions in
`jit` and as losses, layers with and without `jit`. {called} calls (the first, second,
sixth and fiftieth) had the values and gradients of a new net's first call in float64,
and the slopes of central differences.

Functions that are one operator are tested elsewhere: every operator has samples in
`tests/programs/samples`, and `tests/programs/test_table.py` asks the same of them.
`tests/programs/wrong_on_the_tape.py` names the samples that Paddle's tape gets wrong.

![How many derivatives of each kind were exact, and how many refused](differential.png)

## No gradient

| function or layer | asked | reason |
| --- | --- | --- |
{first}

## First derivatives only

Gradients are right. `jvp`, `hvp` and gradients of gradients are refused, since
they have no rule.

| reason | seen in |
| --- | --- |
{second}
"""


def run(cases: Iterable[Case]) -> Verdicts:
    """The verdicts of cases, with a progress bar."""
    chosen = [*cases]
    workers = max(1, min(8, os.cpu_count() or 1))
    bar = tqdm(judged(chosen, workers), total=len(chosen), unit="case")
    return dict(bar)


def counts(verdicts: Verdicts) -> Counter[str]:
    return Counter(v for rows in verdicts.values() for _, v, _ in rows)


def faults(verdicts: Verdicts) -> list[str]:
    """What is neither exact nor refused, a line each."""
    return [
        f"{name}: {asked}: {verdict}: {why}"
        for (_, name), rows in sorted(verdicts.items())
        for asked, verdict, why in rows
        if verdict not in ("exact", "refused")
    ]


def limits(verdicts: Verdicts, called: int) -> str:
    """The text of docs/refusals.md; called: how many calls were exact besides."""
    once: dict[str, list[str]] = {}
    never: dict[tuple[str, str], list[str]] = {}
    for (_, name), rows in sorted(verdicts.items()):
        for asked, verdict, why in rows:
            if verdict != "refused":
                continue
            said = " ".join(why.partition(": ")[2].split())
            again = re.match(r"Paddle can't differentiate (\w+) once more", said)
            if again or asked.startswith("jvp"):
                kernel = again[1] if again else re.split(r"[.;:] ", said)[0]
                once.setdefault(kernel, []).append(name)
            else:
                said = re.split(r"[.;,:] ", said)[0]
                never.setdefault((name, said), []).append(asked)
    first = [
        f"| {name} | {', '.join(asked)} | {said} |"
        for (name, said), asked in sorted(never.items())
    ]
    second = [
        f"| {kernel} | {', '.join(dict.fromkeys(names))} |"
        for kernel, names in sorted(once.items())
    ]
    found = counts(verdicts)
    return HEAD.format(
        cases=len(verdicts),
        questions=sum(found.values()),
        exact=found["exact"],
        refused=found["refused"],
        called=called,
        first="\n".join(first),
        second="\n".join(second),
    )


def picture(verdicts: Verdicts, path: Path) -> None:
    """How many questions of each kind were answered, and how."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found: dict[str, Counter[str]] = {}
    for rows in verdicts.values():
        for asked, verdict, _ in rows:
            kind = re.sub(r"[\d\[\]'\"].*", "", asked).strip(" ,=")
            found.setdefault(kind, Counter())[verdict] += 1
    kinds = sorted(found, key=lambda kind: sum(found[kind].values()))
    figure, axes = plt.subplots(
        figsize=(8, 1 + 0.32 * len(kinds)), layout="constrained"
    )
    exact, refused = ([found[k][v] for k in kinds] for v in ("exact", "refused"))
    axes.barh(kinds, exact, color="#4477aa", label=f"exact ({sum(exact)})")
    axes.barh(
        kinds, refused, left=exact, color="#ee8866", label=f"refused ({sum(refused)})"
    )
    for i, (one, two) in enumerate(zip(exact, refused, strict=True)):
        axes.text(one + two, i, f" {one + two}", va="center", size=8)
    axes.set_xlabel("derivatives asked for, each beside central differences")
    axes.set_title(f"{len(verdicts)} functions, layers and small programs, none wrong")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(parts: list[str]) -> int:
    tables = TABLES if "PROGRAMS" in os.environ else TABLES | CALLED
    cases = [(t, n) for t, table in tables.items() for n in table.cases]
    chosen = [c for c in cases if not parts or any(part in c[1] for part in parts)]
    verdicts = run(chosen)
    print(*faults(verdicts), sep="\n")
    for table in tables:
        part = {case: rows for case, rows in verdicts.items() if case[0] == table}
        print(f"{len(part)} {table}: {dict(counts(part))}")
    wrong = bool(faults(verdicts))
    if not parts and not wrong and "PROGRAMS" not in os.environ:
        asked = {case: rows for case, rows in verdicts.items() if case[0] in TABLES}
        rest = {case: rows for case, rows in verdicts.items() if case[0] in CALLED}
        LIMITS.write_text(limits(asked, counts(rest)["exact"]), encoding="utf-8")
        picture(asked, LIMITS.with_name("differential.png"))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
