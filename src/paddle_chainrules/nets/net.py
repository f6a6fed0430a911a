"""The base of every stateless net: forward, vjp, pullback, flatten."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.autograd.partial_gradients import leaves_behind
from ..paddle_side.devices import ON_CPU_ALONE
from ..paddle_side.near_names import METHODS, instead_of
from ..paddle_side.patching.write_counts import writes_counted
from ..paddle_side.process.random_state import (
    drawing_from,
    random_state_restored_on_error,
)
from ..paddle_side.process.random_state import (
    restore_random_state as restore_random_state,
)
from ..paddle_side.rules.in_place import refuse_other_uses
from ..paddle_side.rules.operators import TapeContext
from ..paddle_side.static_graphs import need_tensors, sot
from ..paddle_side.watch import is_traced, recordings, watched
from ..settings import programs_are_on
from ..transforms.containers.tree import Tree, flatten_tree
from ..transforms.derivatives.typed import X
from ..transforms.recordings.dispatch import record
from ..transforms.recordings.eager import run_by_rules
from ..transforms.recordings.effects import (
    Effects,
    copied,
    flags,
    is_refused_write,
    restore_flags,
    tensors_among,
    versions,
)
from ..transforms.recordings.outputs import detached, unaliased
from ..transforms.recordings.recording import both_reasons, records_graph
from .calls.inputs import CallInputs
from .calls.places import check_places
from .calls.programs import NetPrograms
from .calls.pullback import NetPullback, RecordedPullback
from .description import Description, chain_formula
from .parameters.params import P, Params, ParamSpec
from .parameters.state_dicts import copies_by_names, names_in

if TYPE_CHECKING:
    from .chain import Chain


class Net(abc.ABC):
    """A net without state: parameters come in with every call.

    ``params`` is a dict ``{name: tensor}`` in forward order, or the flat vector theta;
    gradients have the form of ``params``. A call records a graph on the caller's
    tensors only if one of them asks for it (``stop_gradient=False``, with gradients
    on), and changes none of them.
    """

    if not TYPE_CHECKING:  # type checkers would take any name to be here

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            raise AttributeError(
                f"{kind!r} object has no attribute {name!r}; "
                f"{instead_of(name, self._elsewhere)}"
            )

    _elsewhere: Mapping[str, str] = METHODS
    """Names from other libraries, and what is here in their place."""

    @property
    @abc.abstractmethod
    def spec(self) -> ParamSpec:
        """Names, shapes and dtypes of the parameters."""

    @abc.abstractmethod
    def _apply(self, params: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tree:
        """Return the net's formula on checked parameters."""

    @abc.abstractmethod
    def in_dtype(self, dtype: str) -> Net:
        """Return the same net for parameters of another floating dtype.

        Floating-point buffers get that dtype too.
        """

    def _check(self, params: Params, args: tuple[Any, ...]) -> None:  # noqa: B027
        """Refuse bad arguments in the caller's own terms."""

    def describe(self) -> Description:
        """Return a table of the formula, and each parameter's name, shape and dtype."""
        spec = self.spec
        shapes = [str(list(shape)) for shape in spec.shapes]
        rows = zip(spec.names, shapes, spec.dtypes, strict=True)
        tensor_rows = tuple(("", *row) for row in rows)
        return Description(
            repr(self), self._formula(), tensor_rows, spec.size, self._describe_runs()
        )

    def _describe_runs(self) -> str:
        """Say in a sentence how its calls run."""
        if self._programs is not None:
            return self._programs.describe()
        if not programs_are_on():
            return "It runs as Paddle runs it, since programs are off."
        return "It runs as Paddle runs it."

    def _formula(self) -> str:
        """Return the net's formula in a line."""
        if self.chain is None:
            return f"y = {type(self).__name__}(...)"
        return chain_formula(self.chain.activation, len(self.spec.names) // 2)

    def flatten(self, params: Mapping[str, Tensor]) -> Tensor:
        """Return the flat 1-D theta of a parameter dict; see :meth:`unflatten`."""
        return self.spec.flatten(params)

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the parameter dict of a flat 1-D theta; inverse of :meth:`flatten`."""
        return self.spec.unflatten(theta)

    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Any:
        """Return the output at ``args`` with the given parameters.

        Raises:
            TypeError: a wrong type or dtype.
            ValueError: a wrong name, shape or device.
        """
        need_tensors(sot.fallback(True))
        if (programs := self._programs) is not None:
            outputs = programs.values.result(params, args, kwargs)
            if outputs is not None:
                return outputs[0]
        self._check(params, args)
        return self._forward(params, args, kwargs, {})

    def _inputs(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CallInputs:
        """Return the checked inputs of a call that no program has served."""
        inputs = CallInputs(self.spec, params, args, kwargs)
        if not ON_CPU_ALONE:
            check_places(self, inputs)
        return inputs

    def __call__(self, params: Params, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`forward`: ``net(params, x)`` is ``net.forward(params, x)``."""
        return self.forward(params, *args, **kwargs)

    def _forward(
        self,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: dict[str, Any],
    ) -> Tree:
        effects = self._effects
        if effects.asks:
            return self._recorded(params, args, kwargs, constants)[0]
        programs = self._programs
        inputs = self._inputs(params, args, kwargs)
        if programs and (result := programs.forward(inputs, constants)):
            return result[0]
        leaves = call_leaves = inputs.leaves
        copies = effects.copies
        if copies:
            call_leaves = [*map(copied, leaves)]
        tensors = tensors_among(call_leaves)
        versions_before = 0 if copies else versions(tensors)

        def apply(call_leaves: list[Any]) -> Tree:
            values, args, kwargs = inputs.with_leaves(call_leaves)
            return self._apply(values, *args, **kwargs, **constants)

        connects = paddle.is_grad_enabled()
        nested = connects and watched()
        by_caller = not nested and records_graph(leaves, bool(effects.reaches))
        if by_caller and effects.refused:
            return _by_rules(apply, leaves)
        first_call = not effects.is_known and (connects or self._derives)
        enabled = nested or by_caller or first_call
        context = (
            TapeContext((), by_caller=by_caller) if enabled and not nested else None
        )
        with (
            grad_mode(enabled),
            writes_counted(),
            random_state_restored_on_error() as drawing,
        ):
            stop_flags = flags(tensors)
            try:
                output = (
                    context.call(apply, call_leaves) if context else apply(call_leaves)
                )
            except NotImplementedError as refusal:
                if not by_caller:
                    raise
                if drawing.state is not None:
                    restore_random_state(drawing.state)
                return self._after_refusal(apply, leaves, refusal)
            except Exception as error:
                refused = is_refused_write(error) and not copies
                if flags(tensors) == stop_flags and not refused:
                    raise
                if refused:
                    effects.writes = True
            if flags(tensors) != stop_flags:
                restore_flags(tensors, stop_flags)
                effects.asks = True
                return self._forward(params, args, kwargs, constants)
            if effects.writes and not copies:
                return self._forward(params, args, kwargs, constants)
            if copies:
                effects.note_writes(call_leaves, leaves)
            else:
                effects.check(tensors, versions_before)
            outputs, out_spec = flatten_tree(output)
            if context and context.writes:
                refuse_other_uses(outputs, context.writes)
            if first_call:
                arguments = [t for t in tensors_among(leaves) if not t.stop_gradient]
                free = leaves_behind(filter(is_traced, outputs), arguments)
                traced_constants = (context or recordings()[-1]).constants
                free -= traced_constants.keys()
                effects.note_free(free, is_exact=not (nested or by_caller))
                if not connects:
                    return out_spec.unflatten(detached(outputs, leaves))
            protected = [*leaves, *self._shared()]
            if constants:
                protected += flatten_tree(constants)[0]
            return out_spec.unflatten(unaliased(outputs, protected))

    def _after_refusal(
        self,
        apply: Callable[[list[Any]], Tree],
        leaves: Sequence[Any],
        refusal: NotImplementedError,
    ) -> Tree:
        """Apply the net by rules, since Paddle's tape has refused, now and later.

        Raises:
            NotImplementedError: there is no rule either.
        """
        try:
            result = _by_rules(apply, leaves)
        except NotImplementedError as error:
            raise both_reasons(refusal, error) from error
        self._effects.refused = True
        return result

    @property
    def _programs(self) -> NetPrograms | None:
        """The net's programs; None if its calls are no programs."""
        return None

    _derives = False
    """True if the net holds tensors computed from parameters."""

    def _shared(self) -> Sequence[Tensor]:
        """Return the net's own tensors, which must not be handed out."""
        return ()

    @property
    def _effects(self) -> Effects:
        """The effects that calls have shown of the net's formula."""
        return Effects(writes=False, reaches=False)

    @property
    def chain(self) -> Chain | None:
        """The net as a chain, if it is one."""
        return None

    def pullback(
        self, params: P, *args: Any, **kwargs: Any
    ) -> tuple[Any, NetPullback[P]]:
        """Return ``(output, pullback)``: one forward, then any number of pullbacks.

        Keyword arguments are passed on; the pullback differentiates with respect to
        them if it is asked to.

        A net with programs uses these, others use ``paddle.grad``. If gradients are to
        be differentiated once more (a tensor with ``stop_gradient=False`` while
        gradients are on), it uses rules of its own.
        """
        need_tensors(sot.fallback(True))
        if (programs := self._programs) is not None:
            result = programs.pullbacks.result(params, args, kwargs)
            if result is not None:
                return result
        self._check(params, args)
        return self._unchecked_pullback(params, args, kwargs)

    def _unchecked_pullback(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Do as :meth:`pullback`, on a recorded graph, without checks of arguments."""
        return self._recorded(params, args, kwargs, {})

    def _recorded(
        self,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: dict[str, Any],
        has_aux: bool = False,
    ) -> tuple[Any, ...]:
        """Do as :meth:`_unchecked_pullback`, with constants for :meth:`_apply` alone.

        With ``has_aux`` the third result is what the formula gives beside the output.
        """
        programs = self._programs
        inputs = self._inputs(params, args, kwargs)
        if programs and (result := programs.record(inputs, constants)):
            value, aux, out_spec, taped = result
            pullback = RecordedPullback(taped, inputs.form(out_spec))
            return (value, pullback, aux) if has_aux else (value, pullback)
        out_spec, aux = inputs.args_spec, None

        def flat(stand_ins: list[Any]) -> list[Any]:
            nonlocal out_spec, aux
            values, args, kwargs = inputs.with_leaves(stand_ins)
            output = self._apply(values, *args, **kwargs, **constants)
            if has_aux:
                output, aux = output
            outputs, out_spec = flatten_tree(output)
            return outputs

        with drawing_from(constants.get("_seed")):
            values, recording = record(flat, inputs.leaves, self._effects)
        if not recording.connected and (shared := self._shared()):
            values = unaliased(values, shared)
        pullback = RecordedPullback(recording, inputs.form(out_spec))
        value = out_spec.unflatten(values)
        if not has_aux:
            return value, pullback
        aux_leaves, aux_spec = flatten_tree(aux)
        protected = [*inputs.leaves, *flatten_tree(constants)[0], *self._shared()]
        return value, pullback, aux_spec.unflatten(detached(aux_leaves, protected))

    def vjp(self, params: P, args: X, cotangent: Tree, **kwargs: Any) -> tuple[P, X]:
        """Return ``(grad_params, grad_args)``, nested as the inputs: the gradients.

        Args:
            params: dict or theta.
            args: the tuple of positional arguments, or the one argument itself.
            cotangent: nested as the output, with its shapes and dtypes.

        Examples:
            >>> import paddle
            >>> from paddle_chainrules import FCNet
            >>> net = FCNet((3, 5, 2), "tanh")
            >>> params, x = net.init(0), paddle.ones([4, 3])
            >>> grad_params, grad_x = net.vjp(params, x, paddle.ones([4, 2]))
            >>> list(grad_params), list(grad_x.shape)
            (['0.weight', '0.bias', '1.weight', '1.bias'], [4, 3])
        """
        positional = args if isinstance(args, tuple) else (args,)
        grads, programs = None, self._programs
        if programs is not None:
            grads = programs.vjps.result(params, positional, kwargs, cotangent)
        if grads is None:
            _, pullback, *_ = self.pullback(params, *positional, **kwargs)
            grads = pullback(cotangent)
        grad_params, grad_args = grads
        result: Any = grad_args if isinstance(args, tuple) else grad_args[0]
        return grad_params, result

    def from_state_dict(
        self, state_dict: Mapping[str, Tensor], names: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Return parameters from a layer's ``state_dict()``, copied.

        Args:
            state_dict: tensors by name. If both number their layers in order, the
                numbers may differ (``"2.weight"`` of a Sequential is ``"1.weight"`` of
                an FCNet).
            names: the names in the state dict, in the order of ``spec.names``, if
                neither holds.

        Raises:
            ValueError: a name is missing, or a shape differs.
            TypeError: a dtype differs.
        """
        other_names = names_in(self.spec.names, state_dict, names)
        pairs = zip(self.spec.names, other_names, strict=True)
        values = {name: state_dict[other] for name, other in pairs}
        results = self.spec.as_dict(values, "state_dict")
        return {name: value.detach().clone() for name, value in results.items()}

    def to_state_dict(
        self,
        params: Params,
        like: Mapping[str, Tensor] | paddle.nn.Layer | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """Return a state dict that ``layer.set_state_dict`` takes, copied.

        Args:
            params: dict or theta.
            like: a layer or its state dict whose names to use, as
                :meth:`from_state_dict` finds them; the net's own names when None.
            names: as for :meth:`from_state_dict`.

        Raises:
            ValueError: ``like`` has other names, or another shape.
        """
        values = self.spec.as_dict(params)
        if like is None:
            return {name: value.detach().clone() for name, value in values.items()}
        target = like.state_dict() if isinstance(like, paddle.nn.Layer) else like
        return copies_by_names(values, target, names)


def _by_rules(apply: Callable[[list[Any]], Tree], leaves: Sequence[Any]) -> Tree:
    """Apply a net, with derivatives by rules and results on the caller's graph."""
    out_spec: Any = None

    def flat(flat_leaves: list[Any]) -> list[Any]:
        nonlocal out_spec
        outputs, out_spec = flatten_tree(apply(flat_leaves))
        return outputs

    flat_outputs = run_by_rules(flat, leaves)
    result: Tree = out_spec.unflatten(flat_outputs)
    return result
