"""Derivatives by the input as programs, which are kept with the net."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import listener
from ...paddle_side.static_graphs import need_tensors, sot
from ...transforms.as_programs.guarded_calls import GuardedCalls
from ...transforms.as_programs.guards import GuardBuilder, GuardedCall
from ...transforms.as_programs.jitted import Jitted, run_strictly
from ...transforms.as_programs.outer_state import OuterState
from ...transforms.as_programs.program_cache import CompiledFunction
from ...transforms.containers.tree import Tree, flatten_tree
from ...transforms.recordings.recording import records_graph
from ..net import Net

F = TypeVar("F", bound=Callable[..., Any])


def run_as_program(
    net: Any, key: Any, fn: Callable[..., Any], params: Any, *inputs: Any
) -> Any:
    """Run ``fn(params, *inputs)`` as a program, cached if the net has programs."""
    args = params, *inputs
    if any(x.size == 0 for x in _tensors(inputs)):
        return _connected_to(fn(*args), _tensors(args))
    if listener() is not None:
        return fn(*args)
    net_programs = net._programs if isinstance(net, Net) else None
    if net_programs is None:
        return run_strictly(Jitted(fn, strict=True, empty=True), fn, *args)
    program = net_programs.derivatives.get(key)
    if program is None:
        program = Jitted(fn, strict=True, empty=True, state=net_programs.state)
        program = net_programs.derivatives.setdefault(key, program)
    result = run_strictly(program, fn, *args, reused=True)
    _thread.last_run = program, args, result
    return result


class _LastRun(threading.local):
    """The last run of a kept program on this thread: it, its arguments, its result."""

    last_run: tuple[Jitted, tuple[Any, ...], Any] | None = None


_thread = _LastRun()


def with_guards(function: F) -> F:
    """Decorate a derivative of a net to serve repeated calls by guarded functions.

    Where its result is that of one kept program, whose tensors are those of the call
    and others that follow from the rest of it, such as directions.
    """

    @functools.wraps(function)
    def call(net: Any, *args: Any, **kwargs: Any) -> Any:
        need_tensors(sot.fallback(True))
        net_programs = net._programs if isinstance(net, Net) else None
        if net_programs is None:
            return function(net, *args, **kwargs)
        guarded = net_programs.guarded_derivatives[function.__name__]
        outputs = guarded.result(args, kwargs)
        if outputs is not None:
            return outputs[0]
        try:
            result = function(net, *args, **kwargs)
            last_run = _thread.last_run
        finally:
            _thread.last_run = None  # which holds tensors
        if last_run is not None and last_run[2] is result:
            _note(guarded, net_programs.state, last_run, args, kwargs)
        return result

    return call  # type: ignore[return-value]


def _note(
    guarded: GuardedCalls,
    state: OuterState | None,
    last_run: tuple[Jitted, tuple[Any, ...], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Note a call that one program has served, for the functions of its kind."""
    program, inputs, _ = last_run
    leaves = _tensors((args, kwargs))
    if listener() is not None or records_graph(leaves):
        return
    with suppress(CaptureError):
        compiled = program._compiled(*inputs)
        if True not in compiled.captured.requires:
            guarded.note(
                compiled,
                lambda: _write(compiled, state, _tensors(inputs), args, kwargs),
            )


def _write(
    compiled: CompiledFunction,
    state: OuterState | None,
    inputs: list[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> GuardedCall | None:
    """Return a function for calls like this one, where guards can see all.

    Args:
        inputs: the tensors that the program takes.
    """
    builder, samples = GuardBuilder("args, kwargs"), compiled.captured.program.samples
    leaves = _tensors((args, kwargs))
    builder.require_ordinary()
    builder.require_modes()
    try:
        names = builder.leaves_of(args, "args") + builder.leaves_of(kwargs, "kwargs")
    except (CaptureError, TypeError):  # an argument that has no key
        return None
    name_of = dict(zip(map(id, leaves), names, strict=True))
    if len(name_of) < len(leaves) or not name_of.keys() <= {*map(id, inputs)}:
        return None  # tensors by whose values something was decided
    varying = samples.varying if samples is not None else ()
    others = [x for x in inputs if id(x) not in name_of]
    if any(size in varying for x in others for size in x.shape):
        return None
    builder.require_off_graph(names)
    builder.require_distinct(names)
    input_names = [name_of.get(id(x)) or builder.bind(x) for x in inputs]
    return builder.build_value(compiled, state, input_names, inputs)


def _tensors(tree: Tree) -> list[Tensor]:
    return [x for x in flatten_tree(tree)[0] if isinstance(x, Tensor)]


def _connected_to(tree: Tree, leaves: Sequence[Tensor]) -> Tree:
    """Make results without elements depend on leaves, with zero gradients.

    Paddle's tape has none of a slice of such a tensor.
    """
    is_traced = listener() is not None
    sums = [x.sum() for x in leaves if not x.stop_gradient and is_differentiable(x)]
    results, spec = flatten_tree(tree)
    for i, y in enumerate(results):
        if isinstance(y, Tensor) and y.size == 0:
            start = y if is_traced else y.detach()
            results[i] = sum((x.astype(y.dtype) for x in sums), start)
    return spec.unflatten(results)
