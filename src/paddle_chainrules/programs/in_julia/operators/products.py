"""Products of matrices, in Julia."""

from __future__ import annotations

from ...operators.calls import NoRule
from .call import Infix, JuliaCall, julia_of, kept, row


def _julia_product(call: JuliaCall, turn_x: bool, turn_y: bool) -> str:
    x, y = call.args[:2]
    one, other = call.shapes[:2]
    ndims = len(one), len(other)
    if ndims[0] < 2 or ndims[1] < 2 or ndims == (2, 2):
        x = f"transpose({x})" if turn_x and ndims[0] > 1 else x
        y = f"transpose({y})" if turn_y and ndims[1] > 1 else y
        if ndims in ((2, 2), (1, 2)):
            return f"{y} * {x}"
        if ndims == (2, 1):
            return f"vec(transpose({y}) * {x})"
        if ndims == (1, 1):
            return f"fill(sum({x} .* {y}))"
    if ndims[1] == 2 and not turn_x:
        y = f"transpose({y})" if turn_y else y
        return kept(f"{y} * reshape({x}, {one[-1]}, :)", call)
    if min(ndims) < 2:
        raise NoRule("stacks of matrices by vectors in Julia; make the vector a matrix")
    lead = call.out[:-2]
    x, y = (_stack(a, s, lead) for a, s in ((x, one), (y, other)))
    if turn_x:
        x = f"batched_transpose({x})"
    if turn_y:
        y = f"batched_transpose({y})"
    return kept(f"batched_mul({y}, {x})", call)


def _stack(text: str, shape: tuple[int, ...], lead: tuple[int, ...]) -> str:
    """Write a stack of matrices, each repeated as often as the product needs it."""
    rows, columns = shape[-1], shape[-2]
    own = (1,) * (len(lead) - len(shape[:-2])) + tuple(shape[:-2])
    if own != tuple(lead):
        full = row([rows, columns, *reversed(own)])
        times = [n // m for n, m in zip(reversed(lead), reversed(own), strict=True)]
        text = f"repeat(reshape({text}, {full}), 1, 1, {', '.join(map(str, times))})"
    return f"reshape({text}, {row([rows, columns, ':'])})"


@julia_of("matmul")
def _matmul_julia(call: JuliaCall) -> str:
    return _julia_product(call, *call.args[2:])


@julia_of("bmm", "Tensor.__matmul__", "mv")
def _bmm_julia(call: JuliaCall) -> str:
    return _julia_product(call, False, False)


@julia_of("linear")
def _linear_julia(call: JuliaCall) -> str:
    product, bias = _julia_product(call, False, False), call.args[2]
    return product if bias is None else Infix(f"{product} .+ {bias}")
