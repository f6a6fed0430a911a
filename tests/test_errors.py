"""Every error that this package raises says the rule and the remedy."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "paddle_chainrules"
MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if "_julia" not in path.parts[:-1]
)

REMEDIES = (
    *("; ", ". ", "convert", "give", "use", "pass", "write", "move", "load", "call"),
    *("such as", "install", "import", "make", "take", "put", "keep", "detach"),
)
"""What comes before a remedy, or is one."""

BY_OTHERS = {
    "self._refusal": "what leave_out_changed says of a method, or why a context does "
    "not serve a call, as found before",
    "formula": "why an optimizer has none that programs take",
    "completed.stderr.strip()": "environment.jl says what is missing",
    "str(error)": "as Julia says it",
    "SHARED": "why there is no Jacobian by rows, and what to use",
    "result.reason": "what a layer refuses, as nets/layers/refusals.py says it",
    "failure.reason": "of a record: what was said where it failed",
    "ctx.why": "as refused where the operator was called",
    "why": "likewise",
    "reason": "likewise",
    "self.refusal": "likewise, where it was met",
    "self.why": "why a net's calls run without programs, as found before",
    "report": "a table of what differs",
    "error": "of a corrupt file: what was wrong with it",
    "compiled.explain_machine()": "which operators of a program have no rule",
    "entry.why": "why there is no program, as said when it was captured",
}
"""Messages that are made elsewhere."""


def text(node):
    """A message with {} for what is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return text(node.left) + text(node.right)
    if isinstance(node, ast.IfExp):
        return text(node.orelse)
    return None


def raised(path):
    """Line, and message, of every exception made in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.lineno, node.exc


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_messages(path):
    for line, call in raised(path):
        where = f"{path.name}:{line}"
        assert call.args, where
        if ast.unparse(call.func) in (
            "UnknownArgument",
            "_mismatch_error",
        ):  # told elsewhere
            continue
        message = text(call.args[-1])
        if message is None or message.strip("{}") == "":
            assert ast.unparse(call.args[-1]) in BY_OTHERS, where
            continue
        kind = ast.unparse(call.func)
        if kind in ("_corrupt", "Corrupt", "CacheUnusable", "AssertionError"):
            continue
        assert len(message) > 30, (where, message)
        assert any(word in message for word in REMEDIES), (where, message)


def test_there_are_many():
    assert sum(len([*raised(path)]) for path in MODULES) > 100
