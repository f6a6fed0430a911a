"""Functions for one kind of call, written as text: guards, and then the program.

The text names each leaf of the arguments, and looks at all that decides which program
serves. The function returns None where a guard fails, having done nothing.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import optree
from paddle import Tensor, is_grad_enabled

from ...errors import CaptureError
from ...paddle_side.devices import are_on_cpu
from ...paddle_side.listener import local
from ...paddle_side.traced_numbers import number_to_tensor
from ...programs import CapturedFunction, Program
from ..containers.tree import ONE_LEAF, Tree, flatten_tree
from .changing_numbers import NO_INPUTS, NumberInputs
from .keys import MODES, exactly, kinds_of_leaves
from .outer_state import OuterState
from .program_cache import CompiledFunction
from .program_recording import run

GuardedCall = Callable[..., Any]
"""A function that serves one kind of call, and returns None for others."""


class GuardBuilder:
    """The lines of such a function, and the objects that they name.

    Args:
        parameters: the names of the function's arguments, separated by commas.
        numbers: the leaves that are numbers, and inputs of the program.
    """

    def __init__(self, parameters: str, numbers: NumberInputs = NO_INPUTS) -> None:
        self._parameters, self._numbers, self._leaf_count = parameters, numbers, 0
        self._lines: list[str] = []
        self._names: dict[str, Any] = {}
        self._name_count = 0

    def copy(self) -> GuardBuilder:
        """Return a builder that goes on from here by itself."""
        result = copy.copy(self)
        result._lines, result._names = [*self._lines], {**self._names}
        return result

    def build(self, result: str) -> GuardedCall:
        """Return the function, which gives the value of an expression."""
        lines = "".join(f"    {line}\n" for line in self._lines)
        text = f"def call({self._parameters}):\n{lines}    return {result}\n"
        exec(compile(text, "<a kind of call>", "exec"), self._names)
        call: GuardedCall = self._names["call"]
        return call

    def bind(self, value: Any) -> str:
        """Return a name for an object."""
        name = self._new_name()
        self._names[name] = value
        return name

    def require(self, condition: str) -> None:
        """Emit a guard: the function returns None unless the condition holds."""
        self._lines.append(f"if not ({condition}): return None")

    def assign(self, value: str) -> str:
        """Emit an assignment of an expression; return the name."""
        name = self._new_name()
        self._lines.append(f"{name} = {value}")
        return name

    def require_modes(self) -> None:
        """Emit the guard that gradients, dtypes and devices are as they are now."""
        for mode in MODES:
            value = mode()
            test = f"is {value}" if isinstance(value, bool) else f"== {value!r}"
            self.require(f"{self.bind(mode)}() {test}")

    def require_no_listener(self) -> None:
        """Emit the guard that no tracer listens to this thread."""
        self.require(f"{self.bind(local)}.listener is None")

    def require_ordinary(self) -> None:
        """Emit the guard that nobody listens to this thread, or records it."""
        modes = self.bind(local)
        nobody = f"{modes}.listener is None and not {modes}.plain"
        self.require(f"{nobody} and not {modes}.recordings")

    def require_first_sizes(
        self, leaves: Sequence[str], tensors: Sequence[Tensor]
    ) -> None:
        """Emit the guard that arguments have as many samples as these.

        It comes early where machine code would look at it last.
        """
        sizes = {
            leaf: x.shape[0] for leaf, x in zip(leaves, tensors, strict=True) if x.ndim
        }
        self._require_of_tensors(
            [f"{leaf}.shape[:1] == [{n}]" for leaf, n in sizes.items()]
        )

    def require_off_graph(self, leaves: Sequence[str]) -> None:
        """Emit the guard that leaves require no gradients, as tensors of all kinds.

        Without gradients it is left out.
        """
        if is_grad_enabled():
            self._require_of_tensors([f"{leaf}.stop_gradient" for leaf in leaves])

    def _require_of_tensors(self, conditions: Sequence[str]) -> None:
        """Emit a guard that also fails where an argument is no tensor."""
        if conditions:
            self._lines += [
                "try:",
                f"    if not ({' and '.join(conditions)}): return None",
                "except AttributeError: return None",
            ]

    def require_distinct(self, leaves: Sequence[str]) -> None:
        """Emit the guard that no tensor is given twice."""
        if len(leaves) == 2:
            self.require(f"{leaves[0]} is not {leaves[1]}")
        elif len(leaves) > 2:
            self.require(f"len({{*map(id, ({', '.join(leaves)}))}}) == {len(leaves)}")

    def require_unchanged(
        self, captured: CapturedFunction, state: OuterState | None
    ) -> None:
        """Emit the guards that a program's constants, and outer state, are as now."""
        if captured.outside_constants:
            self.require(f"not {self.bind(captured.is_stale)}()")
        if state is not None:
            self.require(f"{self.bind(state.is_number)}({state.number()})")

    def enter(
        self, program: Program, leaves: Sequence[str], tensors: Sequence[Tensor]
    ) -> list[str]:
        """Emit a call of a program on leaves; return the names of its results.

        Machine code looks at dtypes, shapes and devices itself. Before there is any,
        they have to be those of these tensors; then the function is left, for one that
        enters the code. On other devices than the CPU there is never any.
        """
        row = ", ".join(leaves)
        if are_on_cpu(tensors):
            if program.entered is not None:
                return self.enter_code(program.entered, leaves)
            self.require(f"{self.bind(program.function)}.entered is None")
        kinds = self.bind(kinds_of_leaves(tensors))
        self.require(f"{self.bind(_have_kinds)}([{row}], {kinds})")
        run_program, name = self.bind(run), self.bind(program)
        results = self.assign(f"{run_program}({name}, [{row}], True)")
        return self.items_of(results, len(program.outputs))

    def enter_code(self, entered: Any, leaves: Sequence[str]) -> list[str]:
        """Emit a call of machine code on leaves; return the names of its results.

        Args:
            entered: :attr:`.Program.entered`, or an entry made so.
        """
        entry = entered.entry
        names = dict(zip(entry.program.inputs, leaves, strict=True))
        result = self._new_name()
        lines, outputs = entry.lines(result, names.__getitem__, self.bind)
        self._lines += lines
        return outputs

    def nested(
        self, captured: CapturedFunction, structure: Any, results: Sequence[str]
    ) -> str:
        """Return an expression of a function's result, nested.

        Args:
            structure: nests the results.
        """
        outputs = self.filled(captured, results)
        if structure == ONE_LEAF or getattr(structure, "is_one_leaf", False):
            return outputs[0]
        return f"{self.bind(structure.unflatten)}([{', '.join(outputs)}])"

    def build_value(
        self,
        compiled: CompiledFunction,
        state: OuterState | None,
        inputs: Sequence[str],
        tensors: Sequence[Tensor],
    ) -> GuardedCall:
        """Return the function, which gives a program's result, alone in a tuple.

        Args:
            state: the outer state that it serves in, if there is any.
            inputs: names of what the program takes.
            tensors: these in the call at hand.
        """
        captured = compiled.captured
        self.require_unchanged(captured, state)
        results = self.enter(captured.program, inputs, tensors)
        return self.build(f"({self.nested(captured, compiled.structure, results)},)")

    def filled(self, captured: CapturedFunction, results: Sequence[str]) -> list[str]:
        """Return names of all results of a function, of which tensors are given."""
        names = dict(zip(captured.tensor_outputs, results, strict=False))
        return [
            names[i] if i in names else self.bind(output)
            for i, output in enumerate(captured.outputs)
        ]

    def _new_name(self) -> str:
        self._name_count += 1
        return f"v{self._name_count}"

    def tensor(self, name: str) -> str:
        """Emit the guard that a name is a tensor; return it."""
        self.require(f"isinstance({name}, {self.bind(Tensor)})")
        return name

    def leaves_of(self, subtree: Tree, name: str) -> list[str]:
        """Emit lines that take a subtree apart; return the names of its tensors.

        Dicts with names, lists, tuples and named tuples are taken apart here, other
        containers by :func:`flatten_tree`. Leaves that are no tensors have to be
        equal. What stands where a tensor stood is not looked at.

        Raises:
            TypeError: a leaf has no hash.
            CaptureError: it is equal to itself alone.
        """
        kind = type(subtree)
        if isinstance(subtree, Tensor):
            self.skip_leaf()
            return [name]
        if subtree is None:
            self.skip_leaf()
            self.require(f"{name} is None")
            return []
        if kind is dict and all(type(key) is str for key in subtree):
            return self._leaves_of_dict(subtree, name)
        if kind in (tuple, list) or _has_fields(subtree):
            is_kind = f"type({name}) is {self.bind(kind)}"
            self.require(f"{is_kind} and len({name}) == {len(subtree)}")
            return self._leaves_of_all(subtree, self.items_of(name, len(subtree)))
        return self._leaves_of_other(subtree, name)

    def skip_leaf(self) -> None:
        """Count a leaf."""
        self._leaf_count += 1

    def require_key(
        self, name: str, key: Any, key_of: Callable[[Any], Any] = exactly
    ) -> None:
        """Emit the guard that an argument that is no tensor has a key.

        Raises:
            TypeError: the key has no hash, such as that of an array.
        """
        hash(key)
        has_key, arguments = self.bind(_has_key), (name, self.bind(key))
        self.require(f"{has_key}({', '.join(arguments)}, {self.bind(key_of)})")

    def _tensor_of_number(self, index: int, number: Any, name: str) -> str:
        """Emit the tensor of a number that is an input, and the guard of its type."""
        self.require(f"type({name}) is {self.bind(type(number))}")
        if not isinstance(number, float):
            limit = self._numbers.max_value(index)
            self.require(f"-{limit} < {name} < {limit}")
        return self.assign(f"{self.bind(number_to_tensor)}({name})")

    def items_of(self, name: str, number: int) -> list[str]:
        """Emit lines that take a row of this length apart; return its items' names."""
        leaf_names = [self._new_name() for _ in range(number)]
        if leaf_names:
            self._lines.append(f"{''.join(f'{leaf}, ' for leaf in leaf_names)}= {name}")
        return leaf_names

    def values_of(self, subtree: dict[str, Any], name: str) -> list[str]:
        """Emit lines that take the values out of a dict; return their names."""
        key_order = self.bind((*subtree,))
        self.require(f"type({name}) is dict and (*{name},) == {key_order}")
        return self.items_of(f"{name}.values()", len(subtree))

    def _leaves_of_dict(self, subtree: dict[str, Any], name: str) -> list[str]:
        names = dict(zip(subtree, self.values_of(subtree, name), strict=True))
        keys = sorted(subtree)
        return self._leaves_of_all([subtree[k] for k in keys], [names[k] for k in keys])

    def _leaves_of_other(self, subtree: Tree, name: str) -> list[str]:
        leaves, spec = flatten_tree(subtree)
        if spec.is_leaf():
            index = self._leaf_count
            self.skip_leaf()
            if index in self._numbers.positions:
                return [self._tensor_of_number(index, subtree, name)]
            self.require_key(name, exactly(subtree))
            return []
        leaves_name, structure = self._new_name(), self._new_name()
        self._lines.append(
            f"{leaves_name}, *{structure} = {self.bind(_nesting_of)}({name})"
        )
        self.require(f"{structure} == {self.bind([spec, key_orders(subtree)])}")
        return self._leaves_of_all(leaves, self.items_of(leaves_name, len(leaves)))

    def _leaves_of_all(
        self, subtrees: Iterable[Tree], names: Iterable[str]
    ) -> list[str]:
        results = map(self.leaves_of, subtrees, names)
        return [leaf for leaves in results for leaf in leaves]


def _has_key(value: Any, key: Any, key_of: Callable[[Any], Any]) -> bool:
    """Tell whether an argument that is no tensor has this key."""
    try:
        return bool(key_of(value) == key)
    except Exception:  # of an object of the user's; the general way says more
        return False


def _have_kinds(leaves: Sequence[Any], kinds: tuple[Any, ...]) -> bool:
    """Tell whether these are tensors of these dtypes, shapes and devices."""
    try:
        return kinds_of_leaves(leaves) == kinds
    except (CaptureError, TypeError):  # of what is no tensor
        return False


def _nesting_of(tree: Tree) -> tuple[Any, ...]:
    """Return a tree's leaves, its structure, and the orders of its dicts."""
    return *flatten_tree(tree), key_orders(tree)


def _has_fields(value: Tree) -> bool:
    """Tell whether it is a named tuple, which has no way of its own to be iterated."""
    kind = type(value)
    if not optree.is_namedtuple_class(kind) or kind.__iter__ is not tuple.__iter__:
        return False
    spec = optree.tree_structure(value, none_is_leaf=True)
    return spec.kind == optree.PyTreeKind.NAMEDTUPLE


def key_orders(tree: Tree) -> Any:
    """Return the orders of all dicts' keys, which the structure does not tell."""
    kind = type(tree)
    if kind is dict or (kind not in (tuple, list) and isinstance(tree, Mapping)):
        keys = [key if type(key) is str else exactly(key) for key in tree]
        return tuple(keys), _orders_of(tree.values())
    if isinstance(tree, tuple | list | deque):
        results = _orders_of(tree)
        return results if any(results) else ()
    return ()


def _orders_of(subtrees: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([() if isinstance(x, Tensor) else key_orders(x) for x in subtrees])
