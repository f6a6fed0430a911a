"""The same questions asked of programs: transforms within jit, and jit within them."""

from __future__ import annotations

from typing import Any

from paddle_chainrules import jit, jvp, stateless, value_and_grad, vjp

from . import verdicts


def vjp_of_jit(fn: Any, *primals: Any, **kwargs: Any) -> Any:
    return vjp(jit(fn), *primals, **kwargs)


def jit_of_jvp(fn: Any, primals: Any, tangents: Any, **kwargs: Any) -> Any:
    return jit(lambda p, t: jvp(fn, p, t, **kwargs))(tuple(primals), tuple(tangents))


def jit_of_value_and_grad(fn: Any, *args: Any, **kwargs: Any) -> Any:
    return jit(value_and_grad(fn, *args, **kwargs))


def stateless_jit(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return stateless(layer, *args, jit=True, **kwargs)


def install() -> None:
    """Have :mod:`.verdicts` ask programs."""
    verdicts.vjp = vjp_of_jit
    verdicts.jvp = jit_of_jvp
    verdicts.value_and_grad = jit_of_value_and_grad
    verdicts.stateless = stateless_jit
