"""Parse every Julia file with tree-sitter, which needs no Julia: exit 1 on an error."""

import sys
from pathlib import Path

import tree_sitter
import tree_sitter_julia

ROOT = Path(__file__).resolve().parents[1]


def errors(node):
    """The nodes that did not parse."""
    if node.type == "ERROR" or node.is_missing:
        yield node
    for child in node.children:
        if child.has_error or child.is_missing:
            yield from errors(child)


def main():
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_julia.language()))
    files = sorted(
        path
        for folder in ("julia", "examples", "benchmarks", "src", "tests")
        for path in (ROOT / folder).rglob("*.jl")
    )
    bad = 0
    for path in files:
        for node in errors(parser.parse(path.read_bytes()).root_node):
            row, column = node.start_point
            print(f"{path.relative_to(ROOT)}:{row + 1}:{column + 1}: does not parse")
            bad += 1
    print(f"{len(files)} Julia files parsed, {bad} errors")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
