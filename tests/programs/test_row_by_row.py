"""What is known of operators to work row by row, beside what other numbers show."""

import paddle
import paddle.nn.functional as F
import pytest

from paddle_chainrules import make_program
from paddle_chainrules.programs.batches.row_by_row import is_row_by_row
from paddle_chainrules.programs.derivatives.independence import _outputs_follow_rows

paddle.seed(3)
MATRIX, SQUARE = paddle.rand([3, 5]), paddle.rand([3, 3])
ROW, ONE_A_ROW = paddle.rand([3]), paddle.rand([4, 1])
NORM = paddle.nn.LayerNorm(3)

SEEN = {
    "tanh(x) * c + 1": lambda x: paddle.tanh(x) * ROW + 1.0,
    "x * one a row": lambda x: x * ONE_A_ROW,
    "linear": lambda x: F.linear(x, MATRIX),
    "linear with a bias": lambda x: F.silu(F.linear(x, SQUARE, ROW)),
    "x @ w": lambda x: x @ MATRIX,
    "x @ w.T": lambda x: paddle.matmul(x, SQUARE, transpose_y=True),
    "columns": lambda x: paddle.concat([x[..., 1:2], x[..., 0:1] ** 2], -1),
    "split": lambda x: paddle.split(x, [1, 2], -1)[1] * 2,
    "stack": lambda x: paddle.stack([x, -x], -1),
    "sum over columns": lambda x: x.sum(-1, keepdim=True) * x,
    "mean and largest": lambda x: x.mean(-1, keepdim=True) - x.max(-1, keepdim=True),
    "softmax": lambda x: F.softmax(x * 3, -1),
    "unsqueezed": lambda x: paddle.squeeze(paddle.unsqueeze(x, -1) * 2.0, -1),
    "where": lambda x: paddle.where(x > 0.5, x, x * x),
    "cumsum over columns": lambda x: x.cumsum(-1),
    "norm of columns": lambda x: x / x.norm(2, -1, keepdim=True),
    "flipped columns": lambda x: paddle.flip(x, [-1]) - F.log_softmax(x, -1),
    "spectrum": lambda x: paddle.fft.rfft(x, axis=-1).abs(),
    "arc of the tangent": lambda x: paddle.atan2(x, paddle.lerp(x, x + 1.0, 0.3)),
    "fixed beside": lambda x: x + paddle.linspace(0, 1, 3) @ SQUARE,
}
UNSEEN = {
    "x.sum()": lambda x: x * x.sum(),
    "x.sum(0)": lambda x: x * x.sum(0),
    "mean over rows": lambda x: x - x.mean(0, keepdim=True),
    "cumsum over rows": lambda x: x.cumsum(0),
    "flipped": lambda x: paddle.flip(x, [0]),
    "rolled": lambda x: paddle.roll(x, 1, 0),
    "x[1:]": lambda x: paddle.concat([x[1:], x[:1]], 0),
    "x @ x.T": lambda x: x @ paddle.transpose(x, [*range(x.ndim - 2), -1, -2]),
    "softmax over rows": lambda x: F.softmax(x, 0),
    "w @ x": lambda x: paddle.rand([4, x.shape[-2]]) @ x,
    "outer": lambda x: x[..., 0].flatten() * x.reshape([-1, x.shape[-1]])[:, :1],
    "reshape": lambda x: x.reshape([3, -1]).sum(-1),
    "places of two axes": lambda x: (x.reshape([4, 1, 3, 1]) * WIDE)[
        :, FOUR, :, FOUR
    ].sum(1),
    "norm of all": lambda x: F.layer_norm(x, x.shape),
}
WIDE = paddle.rand([4, 4, 3, 4])
"""Whose rows are no longer along the first axis, once two others are indexed."""

HARMLESS = {
    "layer norm": NORM,
    "gather": lambda x: paddle.gather(x, ONES, -1),
    "x.T": lambda x: x.t(),
}
"""What works row by row, but is not known to."""

ONES, FOUR = paddle.to_tensor([1, 0, 1]), paddle.to_tensor([2, 0, 3, 1])


def program_and_rows(fn, shape):
    x = paddle.rand(shape, "float32") - 0.5
    program = make_program(fn)(x)
    seen = is_row_by_row(program.ops, program.inputs)
    return seen, _outputs_follow_rows(lambda given: program(*given), [x], 0)


@pytest.mark.parametrize("shape", [[4, 3], [2, 4, 3]], ids=str)
@pytest.mark.parametrize("name", SEEN)
def test_rows_are_seen(name, shape):
    assert program_and_rows(SEEN[name], shape) == (True, True)


@pytest.mark.parametrize("name", UNSEEN)
def test_rows_that_mix_are_not_taken_for_rows(name):
    assert program_and_rows(UNSEEN[name], [4, 3]) == (False, False)


@pytest.mark.parametrize("name", HARMLESS)
def test_others_are_tried(name):
    assert program_and_rows(HARMLESS[name], [4, 3]) == (False, True)


def test_as_many_columns_as_rows_are_no_rows():
    """A sum over rows beside a row, where sizes tell nothing."""
    square = [3, 3]
    for fn in (
        lambda x: x[:, 0] * x,  # along the columns
        lambda x: x.sum(-1) + x,
        lambda x: x.t() + x,
        lambda x: (x[:, 0] * 2).expand([3, 3]),
        lambda x: SQUARE @ x,
        lambda x: paddle.stack([x[:, 0], x[:, 1], x[:, 2]], 0),
    ):
        assert program_and_rows(fn, square) == (False, False)


def test_inputs_of_different_rows_are_tried():
    program = make_program(lambda x, y: x + y)(paddle.rand([4, 3]), paddle.rand([1, 3]))
    assert not is_row_by_row(program.ops, program.inputs)
    assert is_row_by_row(program.ops, program.inputs[:1])
