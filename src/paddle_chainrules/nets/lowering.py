"""Calls of nets as functions for Julia."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..errors import CaptureError, NoRule
from ..paddle_side.listener import undecomposed_operators
from ..programs import JuliaFunction
from ..transforms.as_programs.program_cache import ProgramCache
from ..transforms.as_programs.program_recording import CompiledVJP
from ..transforms.containers.tree import flatten_tree
from .layers.stateless import StatelessLayer
from .net import Net

TRIED_COUNTS = (3, 4, 6, 7, 9, 11, 13, 17, 19, 23, 29)
"""Numbers of samples of which two are tried."""

TRIED_BOUNDS = (509, 503, 127, 113, 61, 59, 37, 31)
"""Numbers of which one is, by which what is bounded by a size is seen."""

BYTES = 1 << 22
"""Most bytes of the tried samples, if one of ``TRIED_BOUNDS`` is that small."""


class Lowered(NamedTuple):
    """A call as Julia functions.

    Attributes:
        value: a function of ``(inputs, ps, constants)``, three tuples; gives the
            output.
        forward: a function of the same; gives the output, a tuple of its tensors with
            gradients, and the residuals. None if an operator's gradient has no
            expression.
        backward: a function of ``(saved, cotangents, constants)``; gives a tuple of the
            gradients of inputs and parameters, ``nothing`` where there is none.
        samples: how many there must be; 0 if any number will do.
        why: the reason why there is no backward pass.
    """

    value: JuliaFunction
    forward: JuliaFunction | None
    backward: JuliaFunction | None
    samples: int
    why: str


Arguments = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Function from leaves in a row to arguments and keyword arguments."""


def lower_call(
    net: Net, params: dict[str, Tensor], leaves: Sequence[Any], arguments: Arguments
) -> Lowered:
    """Return a net's call as Julia's functions, for these dtypes and shapes.

    Args:
        leaves: leaves of the arguments, in the order of Julia's inputs.

    Raises:
        NoRule: an operator has no expression in Julia.
        CaptureError: the call is no program.
    """
    call = _LoweredCall(net, params, leaves, arguments)
    try:
        return call.for_any_samples() or call.for_these_samples()
    except NoRule as error:
        error.args = (f"there is no expression for {error}",)
        raise


class _LoweredCall:
    """A call, whose arguments may be made for other numbers of samples."""

    def __init__(
        self,
        net: Net,
        params: dict[str, Tensor],
        leaves: Sequence[Any],
        arguments: Arguments,
    ) -> None:
        self._net, self._params = net, params
        self._leaves, self._arguments = leaves, arguments
        buffers = arguments(leaves)[1].get("buffers") or {}
        self._held = {id(buffer) for buffer in buffers.values()}
        first = next((t for t in leaves if _has_samples(t)), None)
        self._count = 0 if first is None else first.shape[0]

    def for_any_samples(self) -> Lowered | None:
        """Return functions for any number of samples, or None."""
        counts = self._tried_counts() if self._count else []
        if len(counts) < 3:
            return None
        try:
            calls = [self._lower([*self._resized(n)], n) for n in counts]
        except (CaptureError, NoRule, ValueError, TypeError):
            return None
        value = JuliaFunction.joined([call.value for call in calls], counts)
        forward = JuliaFunction.joined([call.forward for call in calls], counts)
        backward = JuliaFunction.joined([call.backward for call in calls], counts)
        if value is None:
            return None
        if forward is None or backward is None:
            forward = backward = None
        return Lowered(value, forward, backward, 0, calls[0].why)

    def _tried_counts(self) -> list[int]:
        """Return three numbers of samples that are no sizes of the call, if any are."""
        tensors = [t for t in self._leaves if isinstance(t, Tensor)]
        used_sizes = {n for t in (*tensors, *self._params.values()) for n in t.shape}
        small_counts, bounds = (
            [n for n in candidates if n not in used_sizes]
            for candidates in (TRIED_COUNTS, TRIED_BOUNDS)
        )
        sizes = (t.size * t.element_size() for t in tensors if _has_samples(t))
        fitting = BYTES * self._count // max(1, sum(sizes))
        return [
            *small_counts[:2],
            *([n for n in bounds if n <= fitting] or bounds[-1:])[:1],
        ]

    def for_these_samples(self) -> Lowered:
        """Return functions for the number of samples that there are."""
        return self._lower(self._leaves, 0)._replace(samples=self._count)

    def _resized(self, count: int) -> Iterator[Any]:
        """Yield the leaves with more or fewer samples, along their first axis."""
        rows = paddle.arange(count) % self._count
        for leaf in self._leaves:
            is_resized = _has_samples(leaf) and id(leaf) not in self._held
            if is_resized and self._count in leaf.shape:
                axis = leaf.shape.index(self._count)
                yield paddle.index_select(leaf, rows, axis)
            else:
                yield leaf

    def _lower(self, leaves: Sequence[Any], count: int) -> Lowered:
        names, leaf_count, net = tuple(self._params), len(leaves), self._net

        def flat(all_leaves: list[Any]) -> tuple[list[Any], Any]:
            args, kwargs = self._arguments(all_leaves[:leaf_count])
            constants: dict[str, Any] = {}
            if isinstance(net, StatelessLayer):
                constants, kwargs = net._split_keywords(kwargs)
                constants.pop("_seed", None)
            params = dict(zip(names, all_leaves[leaf_count:], strict=True))
            return flatten_tree(net._apply(params, *args, **kwargs, **constants))

        all_leaves = [*leaves, *self._params.values()]
        programs = ProgramCache(flat, net._effects)
        with undecomposed_operators():
            result = programs.compile_value(all_leaves)
        inputs = [_label(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        params = [f"{n}: {_label(p)}" for n, p in self._params.items()]
        parameters = {"inputs": inputs, "ps": params}
        value = JuliaFunction.of(
            "value",
            result.captured.program,
            parameters,
            lambda names: result.structure.unflatten(result.captured.filled(names)),
            count,
        )
        try:
            with undecomposed_operators():
                vjp = programs.compile_vjp(all_leaves)
            forward, backward = _with_gradients(vjp, parameters, count, all_leaves)
        except (CaptureError, NoRule) as error:
            return Lowered(value, None, None, 0, str(error))
        return Lowered(value, forward, backward, 0, "")


def _with_gradients(
    vjp: CompiledVJP,
    parameters: Mapping[str, Sequence[str]],
    count: int,
    leaves: Sequence[Any],
) -> tuple[JuliaFunction, JuliaFunction]:
    """Return the functions of the forward and backward pass."""
    outputs = vjp.forward_backward.count
    forward_backward = JuliaFunction.inlining(vjp.forward_backward)

    def forward_result(names: list[str]) -> Any:
        all_outputs = vjp.captured.filled(names[:outputs])
        seeded = tuple(all_outputs[i] for i in vjp.seeds)
        return vjp.structure.unflatten(all_outputs), seeded, tuple(names[outputs:])

    forward = JuliaFunction.of(
        "there", forward_backward.forward, parameters, forward_result, count
    )
    all_outputs = (True,) * len(vjp.grad_leaves)
    program, has_grad = forward_backward.backward_program(
        all_outputs, (True,) * len(vjp.seeds)
    )
    grad_leaves = [
        p for p, exists in zip(vjp.grad_leaves, has_grad, strict=True) if exists
    ]

    def backward_result(names: list[str]) -> Any:
        results = dict(zip(grad_leaves, names, strict=True))
        return tuple(
            results.get(i) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)
        )

    cotangents = len(vjp.seeds)
    saved = len(program.inputs) - cotangents
    groups = {"saved": [""] * saved, "cotangents": [""] * cotangents}
    return forward, JuliaFunction.of("back", program, groups, backward_result, count)


def _has_samples(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def _label(tensor: Tensor) -> str:
    return " x ".join(map(str, reversed(tensor.shape)))
