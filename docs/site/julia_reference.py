"""The reference of the Julia package, from the docstrings of its source.

Read by tree-sitter, so that the site is built where there is no Julia.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path

import tree_sitter
import tree_sitter_julia

SOURCE = Path(__file__).resolve().parents[2] / "julia" / "src"
MAIN = SOURCE / "PaddleChainRules.jl"
HEAD = """# Reference of the Julia package

What `using PaddleChainRules` brings; after it what is said as
`PaddleChainRules.pullback`, since other packages export such names too. At
Julia's prompt `?PaddleFCNet` shows the same.
"""


def included() -> list[Path]:
    """The source files, in the order of the main file."""
    names = re.findall(r'^include\("(.+)"\)', MAIN.read_text(), re.MULTILINE)
    return [SOURCE / name for name in names]


def exported() -> list[str]:
    """The names that ``using`` brings."""
    lines = re.findall(r"^export (.+)$", MAIN.read_text(), re.MULTILINE)
    return sorted({name for line in lines for name in line.split(", ")})


def public() -> list[str]:
    """The names that are public and not exported."""
    names = re.search(r":public,(.*?)\)", MAIN.read_text(), re.DOTALL)
    assert names is not None
    return sorted(set(re.findall(r":([\w!]+)", names.group(1))))


def docstrings() -> dict[str, list[str]]:
    """Every documented name's docstrings, methods' after each other."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_julia.language()))
    found: dict[str, list[str]] = {}
    for path in included():
        nodes = parser.parse(path.read_bytes()).root_node.children
        for node, after in itertools.pairwise(nodes):
            if node.type == "string_literal":
                name = _name(after.text.decode())
                found.setdefault(name, []).append(_content(node.text.decode()))
    return found


def page() -> str:
    """The reference in Markdown."""
    documented = docstrings()
    parts = [HEAD]
    for names, title in ((exported(), "Exported"), (public(), "Public")):
        parts.append(f"## {title}\n")
        for name in names:
            texts = documented[name]
            parts += [f"### `{name}`\n", *(f"{_markdown(text)}\n" for text in texts)]
    return "\n".join(parts)


def _name(definition: str) -> str:
    kinds = r"(?:function|struct|mutable struct|abstract type|const|macro)"
    found = re.match(rf"(?:@\w+ )*(?:{kinds} )?([\w!]+)", definition)
    assert found is not None, definition
    return found.group(1)


def _content(literal: str) -> str:
    marks = '"""' if literal.startswith('"""') else '"'
    return textwrap.dedent(literal[len(marks) : -len(marks)]).strip("\n")


def _markdown(text: str) -> str:
    """With signatures as code, references as links, and headings as bold lines."""
    signature = re.match(r"((?:    .*\n|    .*$)+)", text)
    if signature:
        code = textwrap.dedent(signature.group(1)).rstrip()
        text = f"```julia\n{code}\n```\n{text[signature.end() :]}"
    text = re.sub(r"^```jldoctest.*$", "```jlcon", text, flags=re.MULTILINE)
    text = re.sub(r"^#+ (.+)$", r"**\1**", text, flags=re.MULTILINE)
    return re.sub(
        r"\[`([\w!.]+)`\]\(@ref(?: ([\w!.]+))?\)",
        lambda found: f"[`{found.group(1)}`](#{_anchor(found)})",
        text,
    )


def _anchor(reference: re.Match[str]) -> str:
    name = reference.group(2) or reference.group(1)
    return name.rpartition(".")[2].lower().rstrip("!")
