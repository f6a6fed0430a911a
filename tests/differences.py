"""Derivatives by central differences, which share nothing with the package."""

import numpy as np
import paddle


def slope_along(fn, x, v, step=1e-6):
    """The derivative of a function at ``x`` along ``v``."""
    return (fn(x + step * v) - fn(x - step * v)) / (2 * step)


def jacobian_of(fn, x, step=1e-6):
    """The derivative by every element of ``x``: ``[*fn(x).shape, *x.shape]``."""
    columns = []
    for place in np.ndindex(*x.shape):
        unit = np.zeros(x.shape)
        unit[place] = 1.0
        columns.append(slope_along(fn, x, paddle.to_tensor(unit, x.dtype), step))
    return paddle.stack(columns, -1).reshape([*columns[0].shape, *x.shape])


def slopes_of(fn, *given, step=1e-6):
    """Gradients of a function that gives a number, by each of what it is given."""
    found = []
    for k, x in enumerate(given):
        rest = given[:k], given[k + 1 :]
        moved = lambda x, rest=rest: fn(*rest[0], x, *rest[1])  # noqa: E731
        found.append(jacobian_of(moved, x, step))
    return found
