"""The table of rules that Paddle's operators go through while a graph is recorded.

Some kernels give wrong gradients, none, or crash where one of their inputs is constant
or is not asked for, and some can't be differentiated twice (docs/paddle-notes.md).
Which of their inputs are constant is known where the operator is called, so that is
where it is mended. A rule, ``rule(operator, context, *args, **kwargs)``, makes leaves
of constants, notes what has to be asked for with the rest, or writes the operator in
others that Paddle differentiates right and as often as one likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.distributed.fleet.recompute.recompute import recompute

from ..process.random_state import generator_lock, note_drawing
from ..watch import RuleContext, as_leaf, is_traced, tensors_in_arguments
from . import in_place, integer_results, wrong_at_values
from . import tensors_as_numbers as tensor_numbers
from .derivatives import every_order as closed
from .derivatives import formulas, linear_algebra, losses, norms, piecewise
from .derivatives.formulas import by_rules, refuse_derivative, where_traced
from .drawing import DRAWN
from .graph_breaks import BREAKS, refuse_traced_number, to_tensor, warn_of_constants

Rule = Callable[..., Any]

_REAL = frozenset((paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16))
_COMPLEX = frozenset((paddle.complex64, paddle.complex128))


def _is_inexact(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _REAL | _COMPLEX


def _differentiate_all(name: str, always: bool = True) -> Rule:
    """Return a rule that differentiates all inputs, constants too.

    If that is not always needed, it is needed where second derivatives may come.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        inputs = tensors_in_arguments(args)
        if kwargs:
            inputs += tensors_in_arguments(kwargs.values())
        if not (always or context.create_graph(inputs)) or not any(
            map(is_traced, inputs)
        ):
            return operator(*args, **kwargs)

        def as_leaves(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [as_leaves(item) for item in value]
            if not _is_inexact(value):
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
            context.request([value])
            return value

        return operator(
            *map(as_leaves, args), **{n: as_leaves(v) for n, v in kwargs.items()}
        )

    return rule


def _embedding(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    weight: Tensor,
    padding_idx: int = -1,
    sparse: bool = False,
) -> Any:
    """Give sparse gradients only to a weight differentiated itself, and once."""
    create_graph = is_traced(weight) and context.create_graph([weight])
    if create_graph:
        return closed.embedding(x, weight, padding_idx)
    if not (sparse and context.is_leaf(weight)):
        return operator(x, weight, padding_idx, False)
    context.note_sparse()
    rows = operator(x, weight, padding_idx, True)  # whose gradient knows no padding
    return closed.mask_padding(rows, x, padding_idx)


def _triangular_solve(operator: Any, context: RuleContext, *args: Any) -> Any:
    *operands, unit_diagonal = args
    if unit_diagonal and any(map(is_traced, operands)):
        return linear_algebra.unit_triangular_solve(*operands)
    return _triangular_solve_of_all(operator, context, *args)


def _cholesky_solve(
    operator: Any, context: RuleContext, x: Tensor, y: Tensor, upper: bool = False
) -> Any:
    if is_traced(y):  # of which the gradient takes both triangles
        y = paddle.triu(y) if upper else paddle.tril(y)
    return _differentiate_all("cholesky_solve")(operator, context, x, y, upper)


def _rnn(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
    traced = [t for t in tensors_in_arguments(args) if is_traced(t)]
    if args[-1] is True and traced:
        # In evaluation it keeps nothing for the way back; without dropout it may train.
        args = *args[:5], 0.0, *args[6:-1], False
    note_drawing()  # where it has dropout
    if traced and not args[0].size:
        return formulas.rnn_without_samples(operator, traced, *args, **kwargs)
    with generator_lock():
        return _rnn_of_all(operator, context, *args, **kwargs)


def _is_scalar(x: Tensor, *_: Any, **__: Any) -> bool:
    return x.ndim == 0


_triangular_solve_of_all, _rnn_of_all = (
    _differentiate_all("triangular_solve"),
    _differentiate_all("rnn"),
)

_BY_RULES: dict[str, tuple[int, ...]] = {
    # Paddle's are wrong, or fail.
    "lu_unpack": (0,),
    "lu_solve": (),
    "spectral_norm": (),
    "as_strided": (0,),
    "tensor_unfold": (0,),
    "masked_fill": (2,),
    "celu": (0,),
    "i0e": (0,),
    # Paddle has none of these arguments.
    "lerp": (2,),
    "clip": (1, 2),
    "scale": (1, 2),
    "linspace": (0, 1),
    "logspace": (0, 1, 3),
    "pow": (1,),
    "bincount": (1,),
    "diag_embed": (0,),
    "fill_diagonal_tensor": (1,),
    "label_smooth": (1,),
    "bce_loss": (1,),
    "kldiv_loss": (1,),
    "fused_softmax_mask": (1,),
}
"""Operators whose derivatives by these arguments are left to rules; by all for none."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(in_place.VIEWS, in_place.view),
    **dict.fromkeys(in_place.PART_VIEWS, in_place.part_view),
    # Paddle passes gradients on through integers.
    **dict.fromkeys(("cast", "sum"), integer_results.detach_integers),
    "cast_": integer_results.cast_in_place,
    "view_dtype": integer_results.view_of_bits,
    **dict.fromkeys(integer_results.GIVING_INDICES, integer_results.detach_indices),
    # Paddle's gradients are wrong, or it crashes, unless all of them are asked for.
    "layer_norm": norms.layer_norm,
    "group_norm": wrong_at_values.refuse_where(
        *("group_norm", "where a scale is small beside the shift, or zero"),
        norms.is_group_norm_wrong,
        otherwise=norms.group_norm,
    ),
    "instance_norm": norms.instance_norm,
    "batch_norm": norms.batch_norm,
    **{
        name: _differentiate_all(name)
        for name in (
            *("solve", "cross", "grid_sample", "prelu"),
            *("deformable_conv", "multi_dot", "send_uv", "hsigmoid_loss"),
        )
    },
    "send_ue_recv": wrong_at_values.refuse_where(
        *("send_ue_recv", wrong_at_values.TIES, wrong_at_values.are_edges_tied),
        otherwise=_differentiate_all("send_ue_recv"),
    ),
    "triangular_solve": _triangular_solve,
    "cholesky_solve": _cholesky_solve,
    "rnn": _rnn,
    "embedding": _embedding,
    "qr": linear_algebra.qr,
    "svd": linear_algebra.svd,
    "gather": where_traced(formulas.gather, 0),
    "unstack": where_traced(formulas.unstack, 0, checked=True),
    "broadcast_tensors": formulas.broadcast_tensors,
    "meshgrid": formulas.meshgrid,
    **dict.fromkeys(("addmm", "baddbmm"), where_traced(linear_algebra.addmm)),
    # They are wrong, or fail, whatever is asked for.
    "matmul": where_traced(linear_algebra.matmul),
    "prod": where_traced(formulas.pairwise_product, 0, checked=True),
    **{
        name: by_rules(name, of_complex=True)
        for name in (
            *("elementwise_pow", "acosh", "sign", "softsign"),
            *("matrix_power", "slogdet", "einsum"),
        )
    },
    **{name: by_rules(name, *places) for name, places in _BY_RULES.items()},
    "kthvalue": by_rules("kthvalue", 0, where=_is_scalar),
    **dict.fromkeys(("silu", "swish"), where_traced(formulas.silu, 0)),
    "assign_out_": in_place.refreshing_views(in_place.assign_out, 1),
    "cross_entropy_with_softmax": losses.soft_cross_entropy,
    **wrong_at_values.RULES,
    # There is none of some argument.
    "p_norm": norms.p_norm,
    "sigmoid_cross_entropy_with_logits": where_traced(
        losses.cross_entropy_with_logits, 0, 1, 2
    ),
    "nll_loss": where_traced(losses.nll_loss, 0, 2),
    **DRAWN,
    "gammaincc": refuse_derivative("gammaincc", 0),
    "histogram": refuse_derivative("histogram", 1),
    "dropout": refuse_derivative("dropout", 2, DRAWN["dropout"]),
    "full": refuse_derivative("full", 1),
    "full_like": refuse_derivative("full_like", 1),
    "roi_align": refuse_derivative("roi_align", 1),
    **{
        name: refuse_derivative(name)
        for name in ("lstsq", "eigvals", "nextafter", "unique")
    },
}
"""Rules by the names of ``paddle._C_ops``."""

IN_PLACE = {
    name: in_place.rule_of(name)
    for name in dir(paddle._C_ops)
    if name.endswith("_") and not name.startswith("_") and name not in RULES
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
    "__matmul__": where_traced(linear_algebra.matmul),
    "__pow__": by_rules("__pow__", of_complex=True),
    "__rpow__": by_rules("__rpow__", of_complex=True),
    "copy_": in_place.refreshing_views(in_place.copy),
    "set_value": in_place.set_value,
    **dict.fromkeys(BREAKS, warn_of_constants),
}
"""Rules by the names of ``paddle.Tensor``, whose operators do not go through the
others."""
