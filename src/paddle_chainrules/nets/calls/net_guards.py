"""Functions for one kind of a net's calls: its value, its pullback, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import paddle
from paddle import Tensor

from ... import settings
from ...paddle_side.devices import are_on_cpu
from ...programs import Program
from ...transforms.as_programs.guarded_calls import GuardedCalls
from ...transforms.as_programs.guards import GuardBuilder, GuardedCall
from ...transforms.as_programs.outer_state import OuterState, holders_of_state
from ...transforms.as_programs.program_cache import CompiledFunction, ProgramCache
from ...transforms.as_programs.program_recording import (
    CompiledVJP,
    ProgramRecording,
    run,
)
from ...transforms.containers.tree import Tree
from ...transforms.recordings.effects import tensors_among
from ..parameters.param_trees import ParamTree
from .inputs import CallInputs
from .pullback import RecordedPullback
from .wrt import Flags


def write_value(
    inputs: CallInputs, compiled: CompiledFunction, state: OuterState | None
) -> GuardedCall | None:
    """Return a function ``call(params, args, kwargs)`` for calls like this one.

    It gives the output at the start of a sequence. None if there can be no function.
    """
    builder = GuardBuilder("params, args, kwargs")
    leaves = _begin(builder, inputs, compiled, state)
    if leaves is None:
        return None
    tensors = tensors_among(inputs.leaves)
    return builder.build_value(compiled, state, leaves, tensors)


def write_pullback(
    inputs: CallInputs,
    programs: ProgramCache,
    vjp: NetVJP,
    state: OuterState | None,
) -> GuardedCall | None:
    """Return a function that gives output and pullback of calls like this one.

    It is ``call(params, args, kwargs)``. None if there can be no function.
    """
    builder = GuardBuilder("params, args, kwargs")
    leaves = _begin(builder, inputs, vjp.compiled, state)
    if leaves is None or len(leaves) < len(inputs.leaves):
        return None  # what is no tensor may change in place
    compiled, tensors = vjp.compiled, tensors_among(inputs.leaves)
    captured, forward_backward = compiled.captured, compiled.forward_backward
    builder.require_unchanged(captured, state)
    results = builder.enter(forward_backward.forward, leaves, tensors)
    count = forward_backward.count
    value = builder.nested(captured, compiled.structure, results[:count])
    row = f"[{', '.join(leaves)}]"
    args = [
        *(builder.bind(programs.call_fn), row, row),
        f"[{', '.join(builder.filled(captured, results[:count]))}]",
        *(builder.bind(compiled), f"[{', '.join(results[count:])}]"),
    ]
    recording = f"{builder.bind(ProgramRecording)}({', '.join(args)})"
    pullback = f"{builder.bind(GuardedPullback)}({builder.bind(vjp)}, {recording})"
    return builder.build(f"({value}, {pullback})")


def add_vjp(
    inputs: CallInputs, vjp: NetVJP, calls: GuardedCalls, state: OuterState | None
) -> None:
    """Add a function ``call(params, args, kwargs, cotangent)`` for all gradients.

    At first it runs two programs, later one, where that is possible.
    """
    builder = GuardBuilder("params, args, kwargs, cotangent")
    if vjp.backward is None or vjp.draws or inputs.call_args[2]:
        return
    if not are_on_cpu(tensors_among(inputs.leaves)):  # where machine code is
        return
    leaves = _begin(builder, inputs, vjp.compiled, state, ["cotangent"])
    if leaves is None:
        return
    builder.require_unchanged(vjp.compiled.captured, state)
    order, args_spec = inputs.order, inputs.args_spec  # without tensors
    with_joint, row = builder.copy(), [*leaves, "cotangent"]

    def add_with_joint(joint: Any) -> None:
        grads = with_joint.enter_code(joint, row)[1:]
        call = with_joint.build(_gradients(with_joint, grads, order, args_spec))
        calls.add(vjp.compiled, call, by_two_programs)

    vjp.on_joint = add_with_joint
    results = builder.assign(
        f"{builder.bind(vjp.value_and_gradients)}({', '.join(row)})"
    )
    builder.require(f"{results} is not None")
    grads = builder.items_of(f"{results}[1:]", len(leaves))
    by_two_programs = builder.build(_gradients(builder, grads, order, args_spec))
    calls.add(vjp.compiled, by_two_programs)


def _gradients(
    builder: GuardBuilder,
    grads: Sequence[str],
    order: tuple[str, ...] | None,
    args_spec: Any,
) -> str:
    """Return an expression of gradients, nested as parameters and arguments."""
    if order is None:
        params, args = grads[0], grads[1:]
    else:
        items = zip(order, grads, strict=False)
        params = f"{{{', '.join(f'{name!r}: {grad}' for name, grad in items)}}}"
        args = grads[len(order) :]
    grad_args = f"({''.join(f'{grad}, ' for grad in args)})"
    if not all(child.is_leaf() for child in args_spec.children()):
        grad_args = f"{builder.bind(args_spec.unflatten)}({grad_args})"
    return f"{params}, {grad_args}"


def _begin(
    builder: GuardBuilder,
    inputs: CallInputs,
    compiled: CompiledFunction | CompiledVJP,
    state: OuterState | None,
    more: Sequence[str] = (),
) -> list[str] | None:
    """Emit the guards of a kind of call; return the names of its tensors.

    None if the parameters are nested otherwise than in a dict in the net's order.

    Args:
        state: of the net's code.
        more: names of arguments that have to be off the graph, too.
    """
    params, args, kwargs = inputs.call_args
    if isinstance(inputs.order, ParamTree) or inputs.order not in (
        None,
        inputs.spec.names,
    ):
        return None
    if state is not None and holders_of_state(inputs.leaves):
        return None
    builder.require_ordinary()
    if inputs.order is None:
        leaves = [builder.tensor("params")]
    else:
        leaves = builder.values_of(params, "params")
    count = len(leaves)
    leaves += builder.leaves_of(args, "args")
    if kwargs:
        leaves += builder.leaves_of(kwargs, "kwargs")
    else:
        builder.require("not kwargs")
    if not compiled.most:
        tensors = tensors_among(inputs.leaves)
        builder.require_first_sizes(leaves[count:], tensors[count:])
    builder.require_modes()
    builder.require_off_graph([*leaves, *more])
    return leaves


class NetVJP:
    """The programs of value and gradients of a kind of calls.

    Attributes:
        compiled: the programs.
        form: the nesting of arguments and output.
        draws: whether a call draws random numbers.
        on_joint: called with the machine code of value and gradients in one program,
            after some calls.
        retained_bytes: the bytes that a call keeps for the backward pass.
        backward: the program of the gradients of all parameters and arguments, if the
            output is one tensor, of this ``shape`` and ``dtype``; otherwise None.
    """

    backward: Program | None = None
    on_joint: Callable[[Any], None] | None = None

    def __init__(self, inputs: CallInputs, recording: ProgramRecording) -> None:
        compiled, output = recording.compiled, recording.outputs[0]
        self.compiled = compiled
        self.form = inputs.form(compiled.structure.output)
        self._param_leaves = self.form.param_leaves
        self.draws = compiled.forward_backward.forward.draws
        self.retained_bytes = recording.retained_bytes()
        self._calls = 0
        leaf_count = len(inputs.leaves)
        if (
            compiled.structure.is_one_leaf
            and compiled.seeds == [0]
            and compiled.grad_leaves == [*range(leaf_count)]
        ):
            self.shape, self.dtype = output.shape, output.dtype
            program, has_grad = compiled.forward_backward.backward_program(
                (True,) * leaf_count, (True,)
            )
            self.backward = program if all(has_grad) else None

    def value_and_gradients(self, *leaves_and_cotangent: Tensor) -> list[Tensor] | None:
        """Return the output and all gradients, by two programs.

        None if there is no machine code, or a dtype or shape differs.
        """
        forward = self.compiled.forward_backward.forward
        enter_backward = self.backward and self.backward.entered
        if forward.entered is None or not enter_backward:
            return None
        results = forward.entered(*leaves_and_cotangent[:-1])
        if results is None:
            return None
        gradients = enter_backward(*results[1:], leaves_and_cotangent[-1])
        if gradients is None:
            return None
        self._prepare_joint()
        return [results[0], *gradients]

    def _prepare_joint(self) -> None:
        """Compile value and gradients to one program, after some calls."""
        joint = self.compiled.forward_backward.joint
        with suppress(Exception):  # of LLVM: two programs serve as well
            if self._calls == settings.CALLS_BEFORE_CODE // 2:
                joint.begin_code()
            if self._calls == settings.CALLS_BEFORE_CODE:
                entry, on_joint = joint.entry, self.on_joint
                if entry is not None and on_joint is not None:
                    on_joint(entry)
        self._calls += 1

    def nested(self, results: Sequence[Tensor]) -> tuple[Any, Any]:
        """Return gradients of parameters, nested as these, and of the arguments."""
        form, count = self.form, self._param_leaves
        args = form.args.unflatten(results[count : count + form.args.num_leaves])
        if form.order is None:
            return results[0], args
        return dict(zip(form.spec.names, results, strict=False)), args


class GuardedPullback(RecordedPullback):
    """The pullback of a call by a guarded function, fast for all gradients at once."""

    _recording: ProgramRecording

    def __init__(self, vjp: NetVJP, recording: ProgramRecording) -> None:
        self._form, self._vjp, self._recording = vjp.form, vjp, recording

    @property
    def retained_bytes(self) -> int:
        """The bytes that the call keeps for the backward pass."""
        return self._vjp.retained_bytes

    def _flat_gradients(
        self, cotangents: Sequence[Tensor | None], params: Flags, args: bool
    ) -> list[Tensor | None]:
        vjp, count = self._vjp, self._form.param_leaves
        is_simple = isinstance(params, bool) and (params or args)
        if vjp.backward is None or not is_simple or cotangents[0] is None:
            return super()._flat_gradients(cotangents, params, args)
        requested = (bool(params),) * count + (args,) * self._form.args.num_leaves
        forward_backward = vjp.compiled.forward_backward
        program, _ = forward_backward.backward_program(requested, (True,))
        results = iter(run(program, [*self._recording.saved(), cotangents[0]]))
        return [next(results) if flag else None for flag in requested]

    def __call__(self, cotangent: Tree, **options: Any) -> Any:
        vjp, backward = self._vjp, self._vjp.backward
        if backward is None or options or not isinstance(cotangent, Tensor):
            return super().__call__(cotangent, **options)
        if not cotangent.stop_gradient and paddle.is_grad_enabled():
            return super().__call__(cotangent)
        saved = self._recording.saved()
        enter = backward.function.entered  # type: ignore[attr-defined]
        results = None if enter is None else enter(*saved, cotangent)
        if results is None:
            if cotangent.shape != vjp.shape or cotangent.dtype is not vjp.dtype:
                return super().__call__(cotangent)
            results = run(backward, [*saved, cotangent])
        return vjp.nested(results)
