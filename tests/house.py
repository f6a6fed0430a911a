"""Count what a maintainer has to read, beside the goals: ``make house`` prints it."""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "paddle_chainrules"

LINES, TEST_LINES, UNNAMED = 45_000, 37_000, 0
WORDS = {
    **{"found": 200, "part": 150, "given": 150, "place": 150, "made": 60, "kept": 60},
    **{"asked": 60, "how": 60, "there": 60},
}
"""Goals: lines with these words as identifiers, which say little; plurals count."""

DEFINITIONS = {"put": 10, "back": 10}
"""Goals: functions of these names."""

KNOWN_IN = {"tanh": 5, "conv2d": 4, "matmul": 6}
"""Goals: lines, functions called ``_``, and files that know an operator by name."""


def python_files(folder):
    """Return the files of Python in a folder, in their order."""
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def count_lines(folder):
    """Return how many lines of Python a folder has."""
    return sum(len(p.read_text().splitlines()) for p in python_files(folder))


def unnamed(folder):
    """Return where functions are called ``_``, as ``file:line``."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "_"
    ]


def words_of(path):
    """Return the names in a file, and the words of its strings that are no prose."""
    text = path.read_text()
    prose = {
        node.value.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            found.add(token.string)
        elif token.type == tokenize.STRING and token.start[0] not in prose:
            found.update(token.string.strip("\"'rbf").split())
    return found


def knowing(operator):
    """Return the files that would have to change if the operator were renamed."""
    return [p for p in python_files(PACKAGE) if operator in words_of(p)]


def lines_naming(word):
    """Return on how many lines of the package the word is an identifier."""
    count = 0
    for path in python_files(PACKAGE):
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        names = {word, f"{word}s"}
        count += len({t.start[0] for t in tokens if t.string in names})
    return count


def definitions_of(name):
    """Return how many functions of the package have this name."""
    return sum(
        isinstance(node, ast.FunctionDef) and node.name == name
        for path in python_files(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
    )


def main():
    """Print one row for each figure."""
    rows = [
        ("lines of Python in the package", count_lines(PACKAGE), LINES),
        ("files of Python in the package", len(python_files(PACKAGE)), ""),
        *(
            (f"files that know {name}", len(knowing(name)), goal)
            for name, goal in KNOWN_IN.items()
        ),
        ("functions called _", len(unnamed(PACKAGE)), UNNAMED),
        *((f"lines that say {w}", lines_naming(w), goal) for w, goal in WORDS.items()),
        *(
            (f"functions called {name}", definitions_of(name), goal)
            for name, goal in DEFINITIONS.items()
        ),
        ("lines of tests", count_lines(ROOT / "tests"), TEST_LINES),
    ]
    print(f"{'':34}{'now':>9}{'goal':>9}")
    for label, now, goal in rows:
        print(f"{label:34}{now:>9,}" + (f"{goal:>9,}" if goal != "" else ""))


if __name__ == "__main__":
    main()
