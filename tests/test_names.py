"""Names in the package: no class twice, and none that needs a dictionary."""

import ast
import re
from collections import defaultdict
from functools import cache

from house import PACKAGE, python_files

PREPOSITIONS = {
    *("about", "above", "after", "along", "among", "around", "at", "before", "behind"),
    *("below", "beneath", "beside", "between", "beyond", "by", "from", "in", "inside"),
    *("into", "near", "of", "off", "onto", "outside", "over", "per", "through", "to"),
    *("toward", "under", "until", "upon", "with", "within", "without"),
}
ADVERBS = {
    *("again", "ago", "alike", "alone", "already", "also", "always", "anywhere"),
    *("apart", "away", "back", "else", "elsewhere", "ever", "everywhere", "here"),
    *("how", "later", "like", "never", "not", "now", "nowhere", "often", "once"),
    *("only", "plain", "quite", "soon", "still", "then", "there", "thus", "together"),
    *("usual", "way", "what", "when", "where", "whether", "which", "who", "why", "yet"),
}
VERBS = {
    *("asked", "begun", "came", "did", "does", "found", "gave", "given", "goes"),
    *("gone", "kept", "lies", "looked", "made", "meant", "put", "ran", "said", "seen"),
    *("taken", "took", "went", "whole", "written", "wrote"),
}
PROTOCOLS = {"grad", "jvp", "linearize", "value_and_grad", "vjp"}
"""Functions that several modules have since they mean the same in each."""

MOST_MODULES = 3
"""Modules that may have a function of one name."""


@cache
def trees():
    """Return the syntax tree of each module, by its path."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text())
        for path in python_files(PACKAGE)
    }


def test_no_class_name_stands_twice():
    found = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    assert {name: at for name, at in found.items() if len(at) > 1} == {}


def test_classes_are_nouns():
    wrong = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", node.name)
                words = [word.lower() for word in words]
                alone = len(words) == 1 and words[0] in ADVERBS | VERBS
                if alone or words[0] in PREPOSITIONS:
                    wrong.append(f"{path}: {node.name}")
    assert wrong == []


def test_functions_of_one_name_are_few():
    found = defaultdict(set)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found[node.name].add(path)
    many = {name: at for name, at in found.items() if len(at) > MOST_MODULES}
    assert {name: at for name, at in many.items() if name not in PROTOCOLS} == {}
