"""Reasons why functions run as programs, or why they can't."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from ...errors import CaptureError
from ...settings import loops_are_on
from .auto_jit import eager_reason
from .jitted import Jitted


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Say why :func:`jit` runs ``fn(*args)`` as a program, or why it can't.

    ``explain(jit(fn))``, without arguments, lists the programs that were made, and what
    told them apart.

    Returns:
        A sentence, with file and line of the code in question where there is one; and
        for a transformed function, why its calls without jit run natively, if they do.

    Raises:
        TypeError: fn takes other arguments.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import explain, jit
        >>> double = jit(lambda x: x * 2)
        >>> for n in (3, 5):
        ...     _ = double(paddle.ones([n], "float64" if n == 3 else "float32"))
        >>> print(explain(double))  # doctest: +ELLIPSIS
        <lambda> (...) has 2 programs.
          1. argument 0: a float64 tensor of shape [3]
          2. argument 0: a float32 tensor of shape [5]
    """
    reason = eager_reason(fn)
    suffix = (
        f" Without jit its calls run without a program: {reason}." if reason else ""
    )
    return f"{_explain_jit(fn, *args, **kwargs)}{suffix}"


def _explain_jit(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, Jitted):
        bound = fn.__func__.of_instance(fn.__self__)
        if bound is not None:
            fn = bound
    if (
        isinstance(fn, Jitted)
        and not (args or kwargs)
        and (listed := fn.list_programs())
    ):
        return listed
    if not isinstance(fn, Jitted):
        _check_arguments(fn, args, kwargs)
        fn = Jitted(fn, explicit=True)
    try:
        program = fn.program(*args, **kwargs)
    except CaptureError as error:
        return str(error)
    size = f"{len(program.ops)} operators"
    any_size = "" if program.samples is None else " for any number of samples"
    most = f"{program.peak_bytes} bytes at most"
    most += f" for {program.samples.size}" if program.samples is not None else ""
    result = f"It runs as a program{any_size} of {size}, {most}."
    return f"{result} {program.explain_machine()}" if loops_are_on() else result


def _check_arguments(fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of what is not written in Python
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(
            f"explain takes the arguments of one call of {name} after it, and found "
            f"{error}; give explain(fn, *args), as in explain(net, params, x)"
        ) from None
