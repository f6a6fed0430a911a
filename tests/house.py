"""Count what a maintainer has to read, beside the goals: ``make house`` prints it."""

import ast
import importlib.util
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "paddle_chainrules"

CODE_LINES, TEST_LINES, UNNAMED = 35_000, 42_000, 0
FUNCTIONS_OF_A_CALL = {"net.pullback": 12, "jit(f)(x)": 12, "grad(grad(f))(x)": 20}
FUNCTIONS_OF_A_CALL |= {"vmap(f)(x)": 20, "laplacian": 20}
"""Goals: functions of the package that a repeated call runs."""

REPEATED = 110
"""The call that is looked at: by then all of it is compiled."""

DISPATCH = "nets/calls/", "nets/net.py", "transforms/as_programs/"
"""Where calls are looked up and decided on."""

WRITTEN = "<a kind of call>"
"""The file of functions that the package writes for kinds of calls."""

WORDS = {
    **{"found": 200, "part": 150, "given": 150, "place": 150, "made": 60, "kept": 60},
    **{"asked": 60, "how": 60, "there": 60},
}
"""Goals: lines with these words as identifiers, which say little; plurals count."""

DEFINITIONS = {"put": 10, "back": 10}
"""Goals: functions of these names."""

KNOWN_IN = {"tanh": 5, "conv2d": 4, "matmul": 6}
"""Goals: files that know an operator by name."""


def python_files(folder):
    """Return the files of Python in a folder, in their order."""
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def count_lines(folder):
    """Return how many lines of Python a folder has."""
    return sum(len(p.read_text().splitlines()) for p in python_files(folder))


def docstrings_of(tree):
    """Return the lines of the docstrings in a syntax tree."""
    lines = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def code_and_docstrings(folder):
    """Return how many lines of code, and of docstrings, a folder has.

    Blank lines and comments are neither.
    """
    code = docs = 0
    nothing = {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
        *(tokenize.DEDENT, tokenize.ENDMARKER),
    }
    for path in python_files(folder):
        text = path.read_text()
        own = docstrings_of(ast.parse(text))
        lines = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in nothing:
                lines.update(range(token.start[0], token.end[0] + 1))
        code += len(lines - own)
        docs += len(own)
    return code, docs


def catching(name):
    """Return how many handlers of the package catch an exception of this name."""
    return sum(
        isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and name in {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        for path in python_files(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
    )


def functions_of_calls():
    """Return the functions that repeated calls run, and how many of them decide."""
    import paddle

    from paddle_chainrules import FCNet, grad, jit, laplacian, vmap

    net = FCNet((3, 5, 2), "tanh")
    params, x = net.init(0), paddle.ones([4, 3])
    cotangent = paddle.ones([4, 2])

    def cubes(x):
        return (x.tanh() ** 3).sum()

    compiled, second, many = (
        jit(cubes),
        grad(lambda x: grad(cubes)(x).sum()),
        vmap(cubes),
    )
    calls = {
        "net.pullback": lambda: net.pullback(params, x)[1](cotangent),
        "jit(f)(x)": lambda: compiled(x),
        "grad(grad(f))(x)": lambda: second(x),
        "vmap(f)(x)": lambda: many(x),
        "laplacian": lambda: laplacian(net, params, x),
    }
    return {name: functions_run(call) for name, call in calls.items()}


def functions_run(call):
    """Return how many functions of the package a repeated call runs, and decide."""
    for _ in range(REPEATED - 1):
        call()
    run = set()

    def note(frame, event, arg):
        file = frame.f_code.co_filename
        if event == "call" and (file.startswith(str(PACKAGE)) or file == WRITTEN):
            run.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    names = [code.co_filename.removeprefix(f"{PACKAGE}/") for code in run]
    return len(names), sum(name.startswith((*DISPATCH, WRITTEN)) for name in names)


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


def functions_rows():
    """Return a row for the functions of each call, where the package is installed."""
    if importlib.util.find_spec("paddle_chainrules") is None:
        return []
    rows = []
    for name, (count, deciding) in functions_of_calls().items():
        goal = FUNCTIONS_OF_A_CALL[name]
        rows += [
            (f"functions of {name}", count, goal),
            ("  of these decide", deciding, ""),
        ]
    return rows


def main():
    """Print one row for each figure."""
    code, docs = code_and_docstrings(PACKAGE)
    rows = [
        ("lines of code in the package", code, CODE_LINES),
        ("lines of docstrings", docs, ""),
        ("lines of Python in the package", count_lines(PACKAGE), ""),
        ("files of Python in the package", len(python_files(PACKAGE)), ""),
        ("places that catch CaptureError", catching("CaptureError"), ""),
        *functions_rows(),
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
