"""Limits of Paddle's kernels: errors that say so, and what to do."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ..process import log_level
from .grad_mode import grad_mode

MISSING = r"The Op (\w+) doesn't have any grad op|kernel `(\w+)` is not registered"


class Overwritten(NotImplementedError):
    """A gradient needs a value of which the memory holds another one now."""


class kernels_named:
    """Raise one error in place of those that Paddle's engine raises about kernels.

    That is a ``NotImplementedError`` that says what to do. Errors that this package has
    raised in the backward pass come out unchanged, interrupts too. Paddle's log is
    silent.
    """

    def __init__(self) -> None:
        self._enabled = paddle.is_grad_enabled()

    def __enter__(self) -> None:
        _thread.raised, self._level = None, log_level.silence()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        log_level.restore(self._level)
        raised, _thread.raised = _thread.raised, None
        if error is not None:
            paddle.set_grad_enabled(self._enabled)  # Paddle forgets to
            if raised is not None and _is_made_of(error, raised):
                raise raised from None
            if isinstance(error, OSError) and re.search(INTERRUPTED, str(error)):
                raise KeyboardInterrupt from None
        if isinstance(error, ValueError) and "nullptr" in str(error):
            raise NotImplementedError(
                "one of Paddle's kernels gives the gradients of all its inputs or none "
                "(those of recurrent layers do, and that of products of tensors "
                "without elements), and only some are asked for; make all of them "
                "arguments of the function, parameters and input, for example "
                "vjp(net.forward, params, x), or use net.pullback"
            ) from error
        if isinstance(error, ValueError) and "`is_test = True` CANNOT" in str(error):
            raise NotImplementedError(
                "Paddle can't differentiate batch_norm in evaluation mode once more: "
                "batch_norm_grad has no gradient there; it has one in training mode"
            ) from error
        if isinstance(error, RuntimeError) and OVERWRITTEN in str(error):
            raise Overwritten(
                f"a gradient needs a tensor that has been {OVERWRITTEN} since, such as "
                "y.add_(v) or y[i] = v after a use of y; write it out of place, y = y "
                "+ v, or into a copy, y = y.clone()"
            ) from error
        if not isinstance(error, RuntimeError | ValueError | SystemError):
            return
        result = re.search(MISSING, str(error))
        if result is None:
            if "(at /paddle/" in str(error) and "inplace" not in str(error):
                message = " ".join(str(error).split("[Hint")[0].split())[:300]
                raise NotImplementedError(
                    f"Paddle fails in this gradient: {message}. Another way to write "
                    "the function may have one, or one that is differentiated less "
                    "often"
                ) from error
            return
        kernel = result[1] or result[2].removesuffix("_double_grad") + "_grad"
        name = re.sub(r"(_double|_triple)?_grad$", "", kernel)
        raise NotImplementedError(
            f"Paddle can't differentiate {name} once more: its kernel {kernel} has no "
            "gradient. Inside value_and_grad, vjp, jvp, hvp and their like linear "
            "maps, products, norms, softmax and smooth activations can be, as often "
            "as one likes; derivatives by the input of any net are in derivatives, "
            "laplacian and taylor, which need no kernels"
        ) from error


OVERWRITTEN = "modified by an inplace operation"
"""Words of Paddle's error about a tensor that was written into."""

INTERRUPTED = r"(?m)^\s*KeyboardInterrupt\b"
"""Words in the error that Paddle makes of an interrupt of a ``PyLayer``."""

_thread = threading.local()


def note_error(error: BaseException) -> None:
    """Have an error come out of Paddle's engine as it is, which makes text of it."""
    _thread.raised = error


def _is_made_of(error: BaseException, original: BaseException) -> bool:
    """Tell whether the error is the noted one, or what Paddle has made of it."""
    text, noted_text = (" ".join(str(e).split()) for e in (error, original))
    return error is original or noted_text in text


class _Refusal(PyLayer):
    """Passes values on; differentiating them raises."""

    @staticmethod
    def forward(ctx: Any, reason: str, count: int, *tensors: Tensor) -> Any:
        ctx.why = reason
        return tuple(paddle.assign(value) for value in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise NotImplementedError(ctx.why)


def refused_later(
    reason: str, values: Sequence[Tensor | None], sources: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return values that raise when they are differentiated by what they depend on.

    That is a NotImplementedError where this package differentiates; Paddle's own
    ``backward`` makes an OSError with the same sentence of it.
    """
    present = [value for value in values if value is not None]
    with grad_mode(True):
        traced = [tensor for tensor in sources if not tensor.stop_gradient]
        results = iter(_Refusal.apply(reason, len(present), *present, *traced))
    return [None if value is None else next(results) for value in values]
