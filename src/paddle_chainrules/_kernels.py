"""Where Paddle's kernels end: errors that say so, and what to do."""

from __future__ import annotations

import re
from types import TracebackType

MISSING = re.compile(
    r"The Op (\w+) doesn't have any grad op|The kernel `(\w+)` is not registered"
)


class _KernelsNamed:
    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, ValueError) and "nullptr" in str(error):
            raise NotImplementedError(
                "one of Paddle's kernels gives the gradients of all its inputs or none "
                "(those of LSTM, GRU and SimpleRNN do), and only some are asked for; "
                "make the net's parameters an argument of the function too, for "
                "example vjp(net.forward, params, x), or use net.pullback"
            ) from error
        if isinstance(error, ValueError) and "`is_test = True` CANNOT" in str(error):
            raise NotImplementedError(
                "Paddle can't differentiate batch_norm in evaluation mode once more: "
                "batch_norm_grad has no gradient there; it has one in training mode"
            ) from error
        if not isinstance(error, RuntimeError):
            return
        found = MISSING.search(str(error))
        if found is None:
            return
        kernel = found[1] or found[2].removesuffix("_double_grad") + "_grad"
        name = re.sub(r"(_double|_triple)?_grad$", "", kernel)
        raise NotImplementedError(
            f"Paddle can't differentiate {name} once more: its kernel {kernel} has no "
            "gradient. Linear, Conv2D, BatchNorm, tanh, sigmoid and silu can be, and "
            "dropout in evaluation mode; a fully connected net with a built-in "
            "activation has taylor, derivative and laplacian, which need no kernels"
        ) from error


kernels_named = _KernelsNamed()
"""A context in which Paddle's errors about kernels that it lacks are turned into a
``NotImplementedError`` that says what to do."""
