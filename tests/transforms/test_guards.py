"""Functions that take one nesting apart give what a general one gives, or None."""

from collections import OrderedDict, namedtuple

import pytest
from paddle import Tensor

from conftest import randn
from paddle_chainrules.transforms.as_programs.guards import GuardBuilder
from trees import tensors_of

Pair = namedtuple("Pair", "first second")
A, B, C = randn([2]), randn([3], seed=1), randn([4], seed=2)

TREES = {
    "a tensor": lambda a, b: a,
    "two": lambda a, b: (a, b),
    "a list": lambda a, b: [a, b],
    "a tuple in a tuple": lambda a, b: ((a,), b),
    "a list in a tuple": lambda a, b: ([a], b),
    "none": lambda a, b: (),
    "a dict": lambda a, b: {"a": a, "b": b},
    "in another order": lambda a, b: {"b": b, "a": a},
    "other keys": lambda a, b: {"a": a, "c": b},
    "more keys": lambda a, b: {"a": a, "b": b, "c": C},
    "numbers as keys": lambda a, b: {2: a, 1: b},
    "these in another order": lambda a, b: {1: b, 2: a},
    "a flag as a key": lambda a, b: {2: a, True: b},
    "an ordered dict": lambda a, b: OrderedDict(b=b, a=a),
    "ordered otherwise": lambda a, b: OrderedDict(a=a, b=b),
    "a named tuple": lambda a, b: Pair(a, b),
    "dicts in one": lambda a, b: Pair({"b": b, "a": a}, [C]),
    "ordered otherwise in one": lambda a, b: Pair({"a": a, "b": b}, [C]),
    "deep": lambda a, b: ({"z": [a, {"y": (b,)}], "c": {}}, {"k": C}),
    "deep, of a list": lambda a, b: ({"z": [a, {"y": [b]}], "c": {}}, {"k": C}),
    "a number": lambda a, b: (a, 1.5),
    "another number": lambda a, b: (a, 2.5),
    "nothing": lambda a, b: (a, None),
}


def make_unpack(tree):
    """Return a function that gives the tensors of trees nested like this one."""
    builder = GuardBuilder("tree")
    leaves = builder.leaves_of(tree, "tree")
    return builder.build(f"({''.join(f'{leaf}, ' for leaf in leaves)})")


@pytest.mark.parametrize("kind", TREES)
def test_of_all_nestings_it_takes_its_own_apart(kind):
    unpack = make_unpack(TREES[kind](A, B))
    for other, tree in TREES.items():
        for given in (tree(A, B), tree(B, A)):
            found = unpack(given)
            if other == kind:
                assert [*map(id, found)] == [*map(id, tensors_of(given))]
            else:  # but for what stands in a tensor's place
                assert found is None or not all(isinstance(x, Tensor) for x in found)


@pytest.mark.parametrize(
    "value", [0, 0.0, -0.0, False, None, "", "text", (), 2, 2.0, True, 1, float("nan")]
)
def test_leaves_that_are_no_tensors_have_their_values(value):
    unpack = make_unpack({"x": A, "y": [B, value]})
    others = [0, 0.0, -0.0, False, None, "", "text", (), 2, 2.0, True, 1, float("nan")]
    for other in others:
        found = unpack({"x": B, "y": [A, other]})
        is_same = (type(other), repr(other)) == (type(value), repr(value))
        assert (found is not None) == is_same
        if is_same:
            assert found[0] is B
            assert found[1] is A


def test_what_is_no_tensor_passes_in_the_place_of_one():
    assert make_unpack((A, B))((A, "text")) == (A, "text")
    assert make_unpack(A)(None) == (None,)
