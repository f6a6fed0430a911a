"""Paddle's operators while a graph is recorded: those that need more than Paddle gives.

Some kernels give wrong gradients, none, or crash where one of their inputs is constant
or is not asked for, and some can't be differentiated twice (docs/paddle-notes.md).
Which of their inputs are constant is known where the operator is called, so that is
where it is mended: while a :class:`Watch` is on, the operators of :data:`RULES` go
through their rules on its thread. A rule makes leaves of constants, notes what has to
be asked for with the rest, or writes the operator in others that Paddle differentiates
right and as often as one likes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import paddle
from paddle import Tensor

from . import _closed as closed
from ._places import Pair, Places
from ._random import in_turn

_REAL = frozenset((paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16))
_NUMBERS = _REAL | {paddle.complex64, paddle.complex128}

_watching = threading.local()
_lock = threading.RLock()
_deep: set[Watch] = set()
"""The recordings under way with nested derivatives."""


class Watch:
    """What the operators of one recording have to know of it, and what they leave.

    Args:
        leaves: what the recording differentiates by.
        again: whether gradients may be differentiated once more.
        by_caller: whether the graph is one that the caller differentiates by Paddle's
            own means, so that nothing can be asked for beside what the caller asks for.
    """

    def __init__(
        self, leaves: Sequence[Any], again: bool = False, by_caller: bool = False
    ) -> None:
        self._leaves = leaves
        self.again = again
        self.by_caller = by_caller
        self.deep = False
        """Whether derivatives are known to be nested."""
        self.asked: dict[int, Tensor] = {}
        """To be differentiated by too, for the sake of the other gradients."""
        self.made: list[Tensor] = []
        """Leaves made of constants."""
        self.nested: list[tuple[list[Tensor], list[Tensor]]] = []
        """Of each gradient taken meanwhile what it was made of, and it itself."""
        self.sparse = False
        """Whether a gradient may have rows alone."""

    @cached_property
    def leaves(self) -> frozenset[int]:
        """What the recording differentiates by, by address."""
        return frozenset(map(id, self._leaves))

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """``fn(*args)``, the operators of this thread watched."""
        try:
            self._begin()
            found = fn(*args)
        finally:
            try:
                self._end()
            except BaseException:  # an interrupt
                self._end()
                raise
        return found

    def _begin(self) -> None:
        stack = _stack()
        self.deep = self.again or bool(stack)
        if self.deep or not _placed[0]:
            with _lock:
                if self.deep:
                    _deep.add(self)
                _put()
        stack.append(self)

    def _end(self) -> None:
        stack = _stack()
        while self in stack:
            stack.pop()
        if self.deep and self in _deep:
            with _lock:
                _deep.discard(self)
                _put()


def watched() -> bool:
    """Whether a recording is under way on this thread."""
    return bool(_stack())


def as_leaf(constant: Tensor) -> Tensor:
    """A leaf on the memory of a constant, known to every recording under way."""
    made: Tensor = constant.detach()
    made.stop_gradient = False
    for watch in _stack():
        watch.made.append(made)
    return made


def note_gradients(of: Sequence[Tensor], found: Sequence[Tensor | None]) -> None:
    """Have every recording under way know of differentiable gradients."""
    stack = _stack()
    if stack:
        pair = [*of], [grad for grad in found if grad is not None]
        for watch in stack:
            watch.nested.append(pair)


def _stack() -> list[Watch]:
    try:
        found: list[Watch] = _watching.stack
    except AttributeError:
        found = _watching.stack = []
    return found


class Context:
    """The recordings under way on a thread, the innermost last."""

    def __init__(self, stack: list[Watch]) -> None:
        self._stack = stack

    def again(self, inputs: Sequence[Any]) -> bool:
        """Whether what is made of these may be differentiated twice."""
        stack = self._stack
        if len(stack) > 1 or stack[0].again or stack[0].by_caller:
            return True
        for given in inputs:
            if _is_traced(given) and given.is_leaf and not self.is_leaf(given):
                return True  # by somebody else, who has a leaf there
        return False

    @property
    def by_caller(self) -> bool:
        """Whether constants can't be asked for."""
        return any(watch.by_caller for watch in self._stack)

    def ask(self, tensors: Sequence[Tensor]) -> None:
        """Have every recording differentiate by these too."""
        for watch in self._stack:
            for tensor in tensors:
                if id(tensor) not in watch.leaves:
                    watch.asked[id(tensor)] = tensor

    def note_sparse(self) -> None:
        """A gradient of the innermost recording may have rows alone."""
        self._stack[-1].sparse = True

    def is_leaf(self, tensor: Tensor) -> bool:
        """Whether the innermost recording differentiates by just this tensor."""
        watch = self._stack[-1]
        return id(tensor) in watch.leaves or any(tensor is t for t in watch.made)


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _NUMBERS


def _is_traced(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.stop_gradient


# Rules: rule(operator, context, *args, **kwargs).


def _whole(name: str, always: bool = True) -> Callable[..., Any]:
    """All inputs are differentiated, constants too.

    Where it is not always needed, it is where second derivatives may come.
    """

    def rule(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        inputs = _tensors(args)
        if kwargs:
            inputs += _tensors(kwargs.values())
        if not (always or context.again(inputs)) or not any(map(_is_traced, inputs)):
            return operator(*args, **kwargs)

        def given(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [given(part) for part in value]
            if not _is_number(value):
                return value
            if value.stop_gradient:
                if always and context.by_caller:
                    raise NotImplementedError(
                        f"Paddle crashes in the gradient of {name} where one of its "
                        "inputs is constant, and here gradients are taken by Paddle "
                        "itself, since a tensor given has stop_gradient=False. Use "
                        "net.pullback, vjp or value_and_grad, which can do it"
                    )
                value = as_leaf(value)
            context.ask([value])
            return value

        return operator(*map(given, args), **{n: given(v) for n, v in kwargs.items()})

    return rule


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Those among the values and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [part for part in value if isinstance(part, Tensor)]
    return found


def _affine(
    y: Tensor, scale: Tensor | None, bias: Tensor | None, shape: Sequence[int]
) -> Tensor:
    if scale is not None:
        y = y * scale.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _normalized(x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon)`` over the axes, by primitives.

    Source: Ioffe and Szegedy, "Batch normalization", ICML 2015, algorithm 1.
    """
    centred = x - x.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    # Of all functions that give this, pow can be differentiated most often.
    return centred * paddle.pow(variance + epsilon, -0.5)


def _channels_first(x: Tensor) -> list[int]:
    return [1, x.shape[1], *(1,) * (x.ndim - 2)]


def _norm(
    context: Context,
    inputs: tuple[Tensor, Tensor | None, Tensor | None],
    fused: Callable[..., Any],
    primitives: Callable[[], Any],
    size: Sequence[int],
) -> Any:
    """A norm, whole by its own kernel or, where that is not enough, by primitives."""
    x, scale, bias = inputs
    traced = [*map(_is_traced, inputs)]
    if True not in traced:
        return fused(x, scale, bias)
    if context.again(inputs):
        return primitives()
    if False not in traced:
        context.ask([t for t in (scale, bias) if t is not None])
        return fused(x, scale, bias)
    if scale is None:
        scale = paddle.ones(size, x.dtype)
    if bias is None:
        bias = paddle.zeros(size, x.dtype)
    given = [as_leaf(t) if t.stop_gradient else t for t in (x, scale, bias)]
    context.ask([t for t in given if t is not x])
    return fused(*given)


def _layer_norm(
    operator: Any,
    context: Context,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> Any:
    shape = x.shape[begin_norm_axis:]
    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon, begin_norm_axis),
        lambda: _affine(
            _normalized(x, [*range(begin_norm_axis, x.ndim)], epsilon),
            *(scale, bias, shape),
        ),
        [math.prod(shape)],
    )


def _group_norm(
    operator: Any,
    context: Context,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    groups: int = -1,
    data_format: str = "NCHW",
) -> Any:
    last = x.ndim > 2 and not data_format.startswith("NC")

    def primitives() -> Tensor:
        first = x.moveaxis(-1, 1) if last else x
        grouped = first.reshape([first.shape[0], groups, -1])
        y = _normalized(grouped, [2], epsilon).reshape(first.shape)
        y = _affine(y, scale, bias, _channels_first(first))
        return y.moveaxis(1, -1) if last else y

    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon, groups, data_format),
        primitives,
        [x.shape[-1 if last else 1]],
    )


def _instance_norm(
    operator: Any,
    context: Context,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Any:
    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon),
        lambda: _affine(
            _normalized(x, [*range(2, x.ndim)], epsilon),
            *(scale, bias, _channels_first(x)),
        ),
        [x.shape[1]],
    )


def _batch_norm(
    operator: Any,
    context: Context,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool,
    trainable_statistics: bool,
) -> Any:
    last = x.ndim > 2 and not data_format.startswith("NC")
    rest = is_test, momentum, epsilon, data_format, use_global_stats
    stored = use_global_stats or (is_test and not trainable_statistics)
    shape = [1] * (x.ndim - 1) + [x.shape[-1]] if last else _channels_first(x)

    def primitives() -> Any:
        stored_mean, stored_variance = mean.clone(), variance.clone()
        with paddle.no_grad():  # the statistics move on as they do
            parts = [None if t is None else t.detach() for t in (x, scale, bias)]
            found = operator(
                parts[0], mean, variance, *parts[1:], *rest, trainable_statistics
            )
        if stored:
            centred = x - stored_mean.reshape(shape)
            y = centred * paddle.pow(stored_variance.reshape(shape) + epsilon, -0.5)
        else:
            channel = x.ndim - 1 if last else 1
            y = _normalized(x, [i for i in range(x.ndim) if i != channel], epsilon)
        return (_affine(y, scale, bias, shape), *found[1:])

    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, mean, variance, w, b, *rest, trainable_statistics),
        primitives,
        [x.shape[-1 if last else 1]],
    )


def _embedding(
    operator: Any,
    context: Context,
    x: Tensor,
    weight: Tensor,
    padding_idx: int = -1,
    sparse: bool = False,
) -> Any:
    """Sparse gradients only of what is differentiated by itself, and once."""
    sparse = sparse and context.is_leaf(weight) and not context.again([weight])
    if sparse:
        context.note_sparse()
    return operator(x, weight, padding_idx, sparse)


def _again(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula with derivatives of every order, where they may be nested."""

    def rule(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        while args and args[-1] is None:  # an optional argument not given
            args = args[:-1]
        tensors = _tensors(args)
        if (
            kwargs.keys() <= {"x", "name", "out"}
            and not any(v is not None for k, v in kwargs.items() if k != "x")
            and all(t.dtype in _REAL for t in tensors)
            and len({t.dtype for t in tensors}) == 1
            and any(map(_is_traced, tensors))
            and context.again(tensors)
        ):
            found = formula(*args, **{k: v for k, v in kwargs.items() if k == "x"})
            if found is not None:
                return found
        return operator(*args, **kwargs)

    return rule


def _power(x: Tensor, exponent: Any) -> Tensor | None:
    number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    return closed.power(x, exponent) if number else None


def _divide(x: Tensor, y: Any) -> Tensor | None:
    return closed.divide(x, y) if isinstance(y, Tensor) else None


def _quotient(x: Tensor, numerator: Any) -> Tensor | None:
    """``numerator / x``"""
    if not isinstance(numerator, int | float | Tensor):
        return None
    return numerator * closed.power(x, -1)


def _split(x: Tensor, sizes: Any, axis: Any) -> list[Tensor] | None:
    if not isinstance(axis, int) or not isinstance(sizes, list | tuple):
        return None
    if not all(isinstance(n, int) for n in sizes) or sizes.count(-1) > 1:
        return None
    axis %= x.ndim
    rest = x.shape[axis] - sum(n for n in sizes if n != -1)
    return closed.split(x, [rest if n == -1 else n for n in sizes], axis)


def _split_evenly(x: Tensor, count: Any, axis: Any) -> list[Tensor] | None:
    if not isinstance(axis, int) or not isinstance(count, int):
        return None
    axis %= x.ndim
    return closed.split(x, [x.shape[axis] // count] * count, axis)


def _concat(parts: Any, axis: Any = 0) -> Tensor | None:
    return closed.concat(parts, axis) if isinstance(axis, int) else None


_FORMULAS: dict[str, Callable[..., Any]] = {
    "concat": _concat,
    "divide": _divide,
    "elu": closed.elu,
    "erf": closed.erf,
    "gelu": closed.gelu,
    "log": closed.log,
    "pow": _power,
    "reciprocal": closed.reciprocal,
    "rsqrt": closed.rsqrt,
    "sigmoid": closed.sigmoid,
    "silu": closed.silu,
    "sin": closed.sin,
    "cos": closed.cos,
    "softmax": closed.softmax,
    "softplus": closed.softplus,
    "split": _split,
    "split_with_num": _split_evenly,
    "sqrt": closed.sqrt,
    "square": closed.square,
    "stack": closed.stack,
    "unbind": closed.unbind,
    "atan": closed.atan,
    "cosh": closed.cosh,
    "sinh": closed.sinh,
    "expm1": closed.expm1,
    "flatten": closed.flatten,
    "log_softmax": closed.log_softmax,
    "logsigmoid": closed.log_sigmoid,
    "swish": closed.swish,
}


def _rnn(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
    with in_turn():  # it draws, where it has dropout
        found = _whole("rnn")(operator, context, *args, **kwargs)
    return found


RULES: dict[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    **{name: _whole(name) for name in ("solve", "cross", "grid_sample", "prelu")},
    "rnn": _rnn,
    "conv2d": _whole("conv2d", always=False),
}
"""By the names of ``paddle._C_ops``."""

DEEP_RULES = {name: _again(formula) for name, formula in _FORMULAS.items()}
"""The same, needed only where derivatives are nested."""

METHODS: dict[str, Callable[..., Any]] = {
    "__pow__": _again(_power),
    "__truediv__": _again(_divide),
    "__rtruediv__": _again(_quotient),
}
"""By the names of ``paddle.Tensor``, whose operators do not go through the others."""


def _through(rule: Callable[..., Any], operator: Any) -> Callable[..., Any]:
    """The operator as it is called while a recording is under way somewhere."""

    def call(*args: Any, **kwargs: Any) -> Any:
        stack = _stack()
        if not stack or not paddle.is_grad_enabled():
            return operator(*args, **kwargs)
        return rule(operator, Context(stack), *args, **kwargs)

    return call


def _pairs(rules: dict[str, Callable[..., Any]], owner: Any) -> dict[str, Pair]:
    return {
        name: (operator, _through(rule, operator))
        for name, rule in rules.items()
        if (operator := getattr(owner, name, None)) is not None
    }


@cache
def _places() -> Places:
    return Places(_pairs(RULES, paddle._C_ops))


@cache
def _deep_places() -> Places:
    return Places(_pairs(DEEP_RULES, paddle._C_ops))


@cache
def _methods() -> dict[str, Pair]:
    return _pairs(METHODS, paddle.Tensor)


_placed = [0, 0]
"""Whether the rules, and those for nested derivatives, are in their places."""


def _put() -> None:
    """The rules in the operators' places, those for nested derivatives while needed.

    The others stay, since to place them costs more than what they cost: outside of
    recordings they ask whether there is one, and pass on.
    """
    if not _placed[0]:
        _places().put(1)
        _placed[0] = 1
    wanted = int(bool(_deep))
    if wanted != _placed[1]:
        _placed[1] = wanted
        _deep_places().put(wanted)
        # A change of the type makes Python forget what it knows of its attributes.
        for name, pair in _methods().items():
            setattr(paddle.Tensor, name, pair[wanted])
