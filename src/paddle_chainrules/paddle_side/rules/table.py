"""Rules that Paddle's operators go through while a graph is recorded.

Some kernels give wrong gradients, none, or crash where one of their inputs is constant
or is not asked for, and some can't be differentiated twice (docs/paddle-notes.md).
Which of their inputs are constant is known where the operator is called, so that is
where it is mended. A rule, ``rule(operator, context, *args, **kwargs)``, makes leaves
of constants, notes what has to be asked for with the rest, or writes the operator in
others that Paddle differentiates right and as often as one likes.

The rule of an operator stands in its entry (``programs/operators``, ``tape=``). Here
are those of writes, of methods, and of functions that Paddle has written in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.distributed.fleet.recompute.recompute import recompute

from . import in_place, integer_results, moves
from . import tensors_as_numbers as tensor_numbers
from .derivatives import formulas, linear_algebra, losses, norms, piecewise
from .graph_breaks import BREAKS, refuse_traced_number, to_tensor, warn_of_constants

Rule = Callable[..., Any]

OPERATORS: dict[str, Rule] = {}
"""Rules by the names of ``paddle._C_ops``; the operators' entries put them here."""


def define_tape_rule(name: str, rule: Rule) -> None:
    """Have an operator, or a method ``Tensor.name``, go through a rule while recorded.

    Raises:
        ValueError: it has one already.
    """
    method = name.removeprefix("Tensor.")
    rules, label = (OPERATORS, name) if method == name else (METHODS, method)
    if label in rules:
        raise ValueError(f"the operator {name} has two rules of the tape; leave one")
    rules[label] = rule


IN_PLACE: dict[str, Rule] = {
    name: in_place.rule_of(name)
    for name in dir(paddle._C_ops)
    if name.endswith("_") and not name.startswith("_")
} | {
    "cast_": integer_results.cast_in_place,
    "assign_out_": in_place.refreshing_views(in_place.assign_out, 1),
}
"""The operators that write into their first argument."""

FUNCTIONS: dict[Any, Rule] = {
    F.pad: tensor_numbers.pad_with_tensor,
    F.layer_norm: norms.layer_norm_of_one_sample,
    paddle.tensor.creation._to_tensor_non_static: to_tensor,
    paddle.arange: tensor_numbers.arange,
    paddle.full: tensor_numbers.full_of_tensor,
    paddle.full_like: tensor_numbers.full_of_tensor,
    F.gaussian_nll_loss: losses.gaussian_nll_loss,
    F.softmax_with_cross_entropy: losses.softmax_with_cross_entropy,
    paddle.linalg.householder_product: linear_algebra.householder_product,
    recompute: formulas.recompute,
    paddle.gammaincc: formulas.gammaincc,
    paddle.sinc: piecewise.smooth(piecewise.sinc),
    paddle.logaddexp: piecewise.smooth(piecewise.logaddexp),
    **{
        function: refuse_traced_number(function, parameter)
        for function, parameter in (
            (F.margin_ranking_loss, "margin"),
            (F.cross_entropy, "label_smoothing"),
            (F.scaled_dot_product_attention, "dropout_p"),
            (F.pairwise_distance, "epsilon"),
            (F.dropout, "p"),
        )
    },
}
"""Functions of Paddle's that are written in Python."""

METHODS: dict[str, Rule] = {
    "__getitem__": in_place.get_item,
    "__setitem__": in_place.refreshing_views(in_place.set_item),
    "copy_": in_place.refreshing_views(in_place.copy),
    "set_value": in_place.set_value,
    "_copy_to": moves.copy_to,
    **dict.fromkeys(BREAKS, warn_of_constants),
}
"""Rules by the names of ``paddle.Tensor``, to which entries add those of methods that
compute."""

WITH_OUT = (
    *("abs", "acos", "add", "amax", "amin", "angle", "as_complex", "as_real"),
    *("asin", "asinh", "atan", "atan2", "atanh", "bilinear", "bmm", "ceil"),
    *("complex", "concat", "conj", "copysign", "cos", "cosh", "cumprod", "cumsum"),
    *("digamma", "dist", "divide", "dot", "elu", "erf", "erfinv", "exp", "expand"),
    *("expand_as", "expm1", "flip", "floor", "fmax", "fmin", "gammaln", "gelu"),
    *("hardshrink", "hardsigmoid", "hardswish", "hardtanh", "i0", "i1", "i1e"),
    *("index_add", "index_select", "inverse", "kron", "leaky_relu", "lgamma"),
    *("log", "log10", "log1p", "log2", "logit", "logsigmoid", "logsumexp"),
    *("masked_select", "max", "maximum", "mean", "mean_all", "median", "min"),
    *("minimum", "mish", "multiplex", "multiply", "mv", "polygamma", "reciprocal"),
    *("relu", "relu6", "remainder", "renorm", "repeat_interleave", "roll", "round"),
    *("rsqrt", "selu", "sigmoid", "sin", "sinh", "softmax", "softplus"),
    *("softshrink", "sqrt", "square", "stack", "stanh", "subtract"),
    *("take_along_axis", "tan", "tanh", "tanh_shrink", "thresholded_relu", "tile"),
    *("tril", "triu", "trunc", "where"),
)
"""Further operators that functions of Paddle's with an argument ``out`` call."""
