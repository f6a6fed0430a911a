"""Loops of steps, and choices, in the semantics of ``jax.lax``.

A loop that is called by itself makes a program of its step. Where that is one function
of machine code, steps follow one another without a tensor of Paddle's in between: two
sets of memory take turns. Within another program or derivative a loop is its steps, one
after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import dtype_name
from ..paddle_side.listener import is_plain
from ..programs.capture_error import CaptureError
from ..programs.switch import loops_are_on, programs_are_on
from .jit import Jitted
from .recording import records_graph
from .repeated_steps import NotOne, RepeatedStep
from .tree import Tree, flatten_tree, nesting

FEW = 16
"""Steps, for fewer of which no machine code is made."""

Report = Callable[[int, Tree, Tree], Any]
"""Is given how many steps there were, the carry, and what the last step gave."""


def scan(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    carry: Tree,
    xs: Tree = None,
    length: int | None = None,
    *,
    on_step: Report | None = None,
    every: int = 1,
) -> tuple[Tree, Tree]:
    """The carry after many steps, and what each of them gave, as ``jax.lax.scan``.

    Args:
        step: from a carry and a part of ``xs`` to the next carry, of the same nesting,
            shapes and dtypes, and a tree of tensors; as :func:`.jit.jit` takes it.
        carry: a tree of tensors and numbers, which become tensors.
        xs: a tree of tensors, each of which has a part for each step along its first
            axis; None where a step is given None.
        length: how many steps; that of ``xs`` where None.
        on_step: called after each ``every`` steps, and after the last, with the number
            of steps so far, the carry, and what the last step gave, all of them the
            caller's. An error or an interrupt ends the loop; what was reported stays.
        every: how many steps there are between two reports.

    Returns:
        The last carry; and what the steps gave, tensors with an axis of steps first.

    Raises:
        ValueError: the carry of a step is nested or shaped otherwise, or the numbers of
            steps differ.
        NotImplementedError: ``on_step`` within another program or derivative, of which
            each call would have to report.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import scan
        >>> total, sums = scan(lambda t, x: (t + x, t + x), 0.0, paddle.arange(4.0))
        >>> float(total), sums.tolist()
        (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    xs_leaves, xs_spec = flatten_tree(xs)
    count = _length(xs_leaves, length)
    if every < 1:
        raise ValueError(f"every is {every}; give a number of steps from 1 on")
    leaves, spec = flatten_tree(carry)
    leaves = _apart([*map(_tensor, leaves)])
    inside = is_plain() or records_graph([*leaves, *xs_leaves])
    if inside and on_step is not None:
        raise NotImplementedError(
            "on_step within another program or derivative, which would run without it; "
            "call scan by itself, or leave on_step out"
        )
    run = None if inside or not programs_are_on() else _program_of(step)
    loop = _Loop(step, run, (leaves, spec), (xs_leaves, xs_spec), count)
    return loop.result(on_step, every)


def fori_loop(
    lower: int, upper: int, body: Callable[[Tensor, Tree], Tree], init: Tree
) -> Tree:
    """``init`` after ``body(i, value)`` for each ``i`` from lower to below upper.

    Args:
        body: from an integer, a tensor, and a value to the next, of the same nesting,
            shapes and dtypes.

    Raises:
        ValueError: as :func:`scan`.
    """
    places = paddle.arange(lower, max(lower, upper), dtype="int64")

    def step(value: Tree, i: Tensor) -> tuple[Tree, None]:
        return body(i, value), None

    return scan(step, init, places)[0]


def while_loop(
    condition: Callable[[Tree], Any], body: Callable[[Tree], Tree], init: Tree
) -> Tree:
    """``init`` after ``body(value)`` for as long as ``condition(value)``.

    Raises:
        CaptureError: within another program, which is a straight line.
        ValueError: as :func:`scan`.
    """
    leaves, spec = flatten_tree(init)
    leaves = _apart([*map(_tensor, leaves)])
    inside = is_plain() or records_graph(leaves)
    goes_on, move = (
        fn if inside or not programs_are_on() else _program_of(fn)
        for fn in (condition, body)
    )
    value = spec.unflatten(leaves)
    while bool(goes_on(value)):
        found, its = flatten_tree(move(value))
        found = [*map(_tensor, found)]
        _check_alike(leaves, spec, found, its)
        leaves = found
        value = spec.unflatten(leaves)
    return value


def cond(
    predicate: Any,
    true_fn: Callable[..., Tree],
    false_fn: Callable[..., Tree],
    *operands: Tree,
) -> Tree:
    """``true_fn(*operands)`` or ``false_fn(*operands)``, by a truth.

    Within another program or derivative both are computed, and one is chosen element by
    element; what the other gives, numbers that are none among it, does not matter for
    values, and may for derivatives, as that of ``paddle.where``.

    Raises:
        ValueError: the two give other nestings, shapes or dtypes.
    """
    if not is_plain() and not isinstance(predicate, Tensor):
        return (true_fn if predicate else false_fn)(*operands)
    if not is_plain() and not records_graph([predicate]):
        return (true_fn if bool(predicate) else false_fn)(*operands)
    one, spec = flatten_tree(true_fn(*operands))
    other, its = flatten_tree(false_fn(*operands))
    one, other = ([*map(_tensor, row)] for row in (one, other))
    _check_alike(one, spec, other, its)
    chosen = [
        a if a is None else paddle.where(predicate, a, b)
        for a, b in zip(one, other, strict=True)
    ]
    return spec.unflatten(chosen)


class _Loop:
    """One call of :func:`scan`.

    Args:
        step: the function.
        run: the same as a program, where there may be one.
        carry: leaves, and how they are nested.
        xs: likewise.
        count: of steps.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        run: Jitted | None,
        carry: tuple[list[Any], optree.PyTreeSpec],
        xs: tuple[list[Any], optree.PyTreeSpec],
        count: int,
    ) -> None:
        self._step, self._run, self._count = step, run, count
        self._leaves, self._spec = carry
        self._xs, self._xs_spec = xs
        self._given: list[list[Any]] = []
        """What each step gave, tensors by step."""
        self._of_step: optree.PyTreeSpec | None = None

    def result(self, on_step: Report | None, every: int) -> tuple[Tree, Tree]:
        if not self._count:
            return self._of_none()
        self._have_program()
        for t in range(self._count):
            if t == 1 and self._count > FEW and self._run is not None:
                found = self._by_code(on_step, every)
                if found is not None:
                    return found
            self._one(t)
            self._report(t, on_step, every)
        ys = [
            part[0] if part[0] is None else paddle.stack([*part])
            for part in zip(*self._given, strict=True)
        ]
        return self._nested(self._leaves), self._nested_ys(ys)

    def _have_program(self) -> None:
        """See whether there is one."""
        try:
            if self._run is not None:
                self._run.found(self._nested(self._leaves), self._x(0))
        except CaptureError:
            self._run = None

    def _one(self, t: int) -> None:
        """A step, and what it gives."""
        x = self._x(t)
        if self._run is not None:
            found = self._run(self._nested(self._leaves), x)
        else:
            found = _unwritten(self._step, self._nested(self._leaves), x, t == 0)
        if type(found) is not tuple or len(found) != 2:
            raise ValueError(
                f"a step of scan gives a {type(found).__name__}, and must give a pair "
                "of the next carry and a tree of tensors; give None for nothing"
            )
        leaves, spec = flatten_tree(found[0])
        leaves = [*map(_tensor, leaves)]
        _check_alike(self._leaves, self._spec, leaves, spec)
        ys, its = flatten_tree(found[1])
        ys = [*map(_tensor, ys)]
        if self._of_step is not None and its != self._of_step:
            raise ValueError(
                f"a step of scan gives {nesting(its)} after {nesting(self._of_step)}; "
                "give the same at every step"
            )
        self._leaves, self._of_step = leaves, its
        self._given.append(ys)

    def _by_code(self, on_step: Report | None, every: int) -> tuple[Tree, Tree] | None:
        """All steps but the first, which was made, as machine code; None where they
        are not."""
        if not loops_are_on():
            return None
        assert self._run is not None
        self._leaves = _apart(self._leaves)
        try:
            carry = self._nested(self._leaves)
            found = self._run.found(carry, self._x(1))
            rows = self._leaves, self._xs, self._given[0]
            made = RepeatedStep(found, *map(_tensors, rows))
        except (CaptureError, NotOne):
            return None
        steps = made.steps(self._count)
        for t in steps:
            if on_step is not None and self._is_due(t, every):
                own, ys = self._filled(*made.copies())
                on_step(t + 1, self._nested(own), self._nested_ys(ys))
        own, ys = self._filled(*made.result())
        return self._nested(own), self._nested_ys(ys)

    def _filled(self, carry: Sequence[Tensor], ys: Sequence[Tensor]) -> list[list[Any]]:
        """Both with what is no tensor in its place, which is the same at each step."""
        rows = ((self._leaves, iter(carry)), (self._given[0], iter(ys)))
        return [
            [next(own) if isinstance(x, Tensor) else x for x in row]
            for row, own in rows
        ]

    def _report(self, t: int, on_step: Report | None, every: int) -> None:
        if on_step is not None and self._is_due(t, every):
            ys = self._nested_ys([*map(_copy, self._given[-1])])
            on_step(t + 1, self._nested([*map(_copy, self._leaves)]), ys)

    def _is_due(self, t: int, every: int) -> bool:
        return (t + 1) % every == 0 or t + 1 == self._count

    def _of_none(self) -> tuple[Tree, Tree]:
        """No steps; what each would give tells a step on zeros."""
        zeros = [
            x if x is None else paddle.zeros(x.shape[1:], x.dtype) for x in self._xs
        ]
        carry = self._nested([*map(_copy, self._leaves)])
        x = self._xs_spec.unflatten(zeros)
        found = _unwritten(self._step, carry, x, True)
        ys, self._of_step = flatten_tree(found[1])
        none = [
            y if y is None else paddle.zeros([0, *y.shape], y.dtype)
            for y in map(_tensor, ys)
        ]
        return carry, self._nested_ys(none)

    def _nested(self, leaves: Sequence[Any]) -> Tree:
        return self._spec.unflatten(leaves)

    def _nested_ys(self, ys: Sequence[Any]) -> Tree:
        assert self._of_step is not None
        return self._of_step.unflatten(ys)

    def _x(self, t: int) -> Tree:
        return self._xs_spec.unflatten([x if x is None else x[t] for x in self._xs])


def _program_of(step: Callable[..., Any]) -> Jitted:
    """A function as a program, for this loop alone where nobody has asked for one:
    who has may know that nothing of Python's changes that it depends on."""
    return step if isinstance(step, Jitted) else Jitted(step)


def _tensor(leaf: Any) -> Any:
    """A tensor of a number, and anything else as it is."""
    return paddle.to_tensor(leaf) if isinstance(leaf, bool | int | float) else leaf


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _unwritten(step: Callable[..., Any], carry: Tree, x: Tree, is_first: bool) -> Any:
    """A step that is no program, which writes into nothing that it is given.

    Args:
        is_first: whether the carry is the caller's, who keeps it as it is.

    Raises:
        NotImplementedError: it writes.
    """
    carry = optree.tree_map(_copy, carry, none_is_leaf=True) if is_first else carry
    x = optree.tree_map(_copy, x, none_is_leaf=True)
    given = _tensors([*flatten_tree(carry)[0], *flatten_tree(x)[0]])
    before = [tensor._inplace_version() for tensor in given]
    found = step(carry, x)
    if before != [tensor._inplace_version() for tensor in given]:
        raise NotImplementedError(
            "a step of scan writes in place into the carry or a part of xs, which "
            "others read; give new tensors, as c + x for c.add_(x)"
        )
    return found


def _tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _apart(leaves: Sequence[Any]) -> list[Any]:
    """Each tensor once: copies of those that are there again."""
    seen: set[int] = set()
    found = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            leaf = leaf.clone() if id(leaf) in seen else leaf
            seen.add(id(leaf))
        found.append(leaf)
    return found


def _length(xs: Sequence[Any], length: int | None) -> int:
    sizes = {x.shape[0] if x.ndim else None for x in xs if isinstance(x, Tensor)}
    if length is not None:
        sizes.add(length)
    if len(sizes) != 1 or None in sizes:
        found = ", ".join(sorted(map(str, sizes))) or "none"
        raise ValueError(
            "scan has one number of steps, the length or the first axis of all xs, and "
            f"is given {found}; give tensors with a part for each step, or length"
        )
    (count,) = sizes
    if count is None or count < 0:
        raise ValueError(f"scan is given {count} steps; give a number from 0 on")
    return int(count)


def _check_alike(
    before: Sequence[Any],
    spec: optree.PyTreeSpec,
    after: Sequence[Any],
    its: optree.PyTreeSpec,
) -> None:
    """Refuse another nesting, or other shapes and dtypes.

    Raises:
        ValueError: they differ.
    """
    if its != spec:
        raise ValueError(
            f"a step goes from {nesting(spec)} to {nesting(its)}, and these must be "
            "nested alike; give back what it was given, moved"
        )
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        if _kind(a) != _kind(b):
            raise ValueError(
                f"a step goes from {_kind(a)} to {_kind(b)} at leaf {k}; have "
                "the same shape and dtype, by astype or a start of what it gives"
            )


def _kind(leaf: Any) -> str:
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    return f"{dtype_name(leaf.dtype)}{list(leaf.shape)}"
