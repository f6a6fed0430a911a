"""The tests of what changed since a commit, nearest first, within two minutes.

``python tests/quick.py [COMMIT] [pytest's options]``. What changed since COMMIT (HEAD)
is looked up in the graph of imports, of the package and of the tests: a test file is as
near as its shortest way of imports to a file that changed. The nearest run until their
seconds, as ``seconds.json`` has them, are used up; what did not fit is named. Changes
of Julia's source choose Julia's tests of the same folder and those that name the file.
"""

import ast
import os
import subprocess
import sys
from collections import deque
from functools import cache
from pathlib import Path

import grimp
import pytest

import julia_lane
import lanes

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PACKAGE = "paddle_chainrules"
BUDGET = 70.0
"""Seconds for each core, so that with the start it stays under two minutes."""
JULIA_LOADS = 15.0
JULIAS_TESTS = "tests/bridge/test_julia.py::"
OWN_TESTS = f"{JULIAS_TESTS}test_the_julia_package_passes_its_own_tests"
COMPILED_TESTS = f"{JULIAS_TESTS}test_what_counts_memory_or_takes_long"


def changed(commit):
    """Files changed, added or renamed since a commit, tracked or not."""

    def git(*args):
        command = ["git", "-C", str(ROOT), *args]
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.split("\n")

    found = git("diff", "--name-only", commit)
    found += git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in found if name})


def module_of(path):
    """The module's name of a Python file of the package or of the tests, or None."""
    for folder in (ROOT / "src", TESTS):
        if path.suffix == ".py" and path.is_relative_to(folder):
            parts = path.relative_to(folder).with_suffix("").parts
            return ".".join(parts[: -1 if parts[-1] == "__init__" else None])
    return None


def reexports():
    """Where each public name of the package is defined."""
    found = {}
    init = ROOT / "src" / PACKAGE / "__init__.py"
    for node in ast.walk(ast.parse(init.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{PACKAGE}.{node.module}"
    return found


def imports_of(path, public):
    """The modules that a Python file of the tests imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [alias.name for alias in node.names]
            if node.module == PACKAGE:
                found |= {public.get(name, f"{PACKAGE}.{name}") for name in names}
            else:
                found |= {node.module, *(f"{node.module}.{name}" for name in names)}
    return found


@cache
def importers():
    """Which modules import each module, of the package and of the tests."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    found = {  # the package itself imports all, for its names
        name: graph.find_modules_that_directly_import(name) - {PACKAGE}
        for name in graph.modules
    }
    public = reexports()
    for path in TESTS.rglob("*.py"):
        for imported in imports_of(path, public):
            found.setdefault(imported, set()).add(module_of(path))
    return found


def distances(sources):
    """How many imports each test file is away from the nearest of some modules."""
    away = dict.fromkeys(sources, 0)
    waiting = deque(sources)
    while waiting:
        name = waiting.popleft()
        for importer in importers().get(name, ()):
            if importer not in away:
                away[importer] = away[name] + 1
                waiting.append(importer)
    return {
        str(path.relative_to(ROOT)): away[name]
        for path in TESTS.rglob("test_*.py")
        if (name := module_of(path)) in away
    }


def of_julia(path):
    """Julia's test files for one that changed: itself, its folder's, its users'."""
    julia = ROOT / "julia"
    files = [n for n in julia_lane.names("FILES") if n not in julia_lane.names("LONG")]
    if path.is_relative_to(julia / "test"):
        name = str(path.relative_to(julia / "test").with_suffix(""))
        return [name] if name in files else []
    if not path.is_relative_to(julia):
        return []
    word = path.stem.removeprefix("PaddleChainRules").removesuffix("Ext")
    texts = {name: (julia / "test" / f"{name}.jl").read_text() for name in files}
    return [
        name
        for name, text in texts.items()
        if name.split("/")[0] == path.parent.name or f"using {word}" in text
    ]


def candidates(paths):
    """Pairs of distance and test, a file or one of Julia's, for files that changed.

    Of those that are equally near the ones in a folder of the same name come first.
    """
    found = distances([name for path in paths if (name := module_of(path))])
    compiled = julia_lane.names("COMPILED")
    for path in paths:
        for name in of_julia(path):
            tests = COMPILED_TESTS if name in compiled else OWN_TESTS
            found[f"{tests}[{name}]"] = 0
        if path.suffix == ".md" or path.is_relative_to(ROOT / "docs"):
            found |= {"tests/test_readme.py": 1, "tests/test_site.py": 1}
        if path.is_relative_to(ROOT / "examples"):
            found["tests/test_examples.py"] = 0
    rooms = {path.parent.name for path in paths}

    def order(pair):
        away, test = pair
        return away, Path(test).parent.name not in rooms, test

    return sorted(((away, test) for test, away in found.items()), key=order)


def chosen(tests, budget):
    """The tests that fit into a number of seconds, nearest first, and the others."""
    fit, rest, julia = [], [], False
    for away, test in tests:
        seconds = lanes.SECONDS.get(test, 1.0)
        if test.startswith(JULIAS_TESTS) and not julia:
            seconds += JULIA_LOADS
        if fit and seconds > budget:
            rest.append((away, test))
            continue
        budget -= seconds
        julia |= test.startswith(JULIAS_TESTS)
        fit.append(test)
    return fit, rest


if __name__ == "__main__":
    options = sys.argv[1:]
    commit = options.pop(0) if options and not options[0].startswith("-") else "HEAD"
    paths = [ROOT / name for name in changed(commit)]
    if not paths:
        print(
            f"Nothing changed since {commit}; make quick SINCE=HEAD~1 goes further back"
        )
        sys.exit()
    cores = len(os.sched_getaffinity(0))
    fit, rest = chosen(candidates(paths), BUDGET * cores)
    print(f"{len(paths)} files changed since {commit}: {len(fit)} test files run")
    for away, test in rest:
        print(f"  left to make test, {away} imports away: {test}")
    if not fit:
        print("No test imports what changed; make test runs all")
        sys.exit()
    long = [name for name in lanes.SECONDS if "::" in name and name not in fit]
    skip = [f"--deselect={name}" for name in long if lanes.SECONDS[name] > BUDGET]
    os.chdir(ROOT)
    sys.exit(pytest.main(["-n", "auto", *skip, *options, *fit]))
