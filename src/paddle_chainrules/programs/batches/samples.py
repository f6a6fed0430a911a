"""A function of one sample, run for many samples that come in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.listener import not_listening
from ..compiling.decompositions import decompose_by_formulas
from ..compiling.program import Program
from ..operators.calls import NoRule
from ..tracing.operations import Operation
from .batching import batched, trace_sample


def run_for_samples(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    tensors: Sequence[Tensor],
    has_samples: Sequence[bool],
    chunk: int,
    randomness: str,
) -> tuple[list[Tensor], list[bool]]:
    """Return results for all samples, and which differ from sample to sample.

    Args:
        fn: a function of tensors of one sample.
        has_samples: tells for each tensor whether it has samples along its first axis.
        chunk: how many samples to run at a time.
        randomness: ``error`` refuses to draw, ``different`` draws for each sample,
            ``same`` once for all.

    Raises:
        CaptureError: the function can't be captured, or an operator has no rule.
    """
    pairs = [*zip(tensors, has_samples, strict=True)]
    size = next(t.shape[0] for t, flag in pairs if flag)
    with not_listening():
        samples = [_index_samples(t, 0) if flag else t for t, flag in pairs]
        for sample, tensor in zip(samples, tensors, strict=True):
            sample.stop_gradient = tensor.stop_gradient
    try:
        program = trace_sample(fn, samples)
        if randomness == "same":
            program = _split_draws(program)
        chunks: list[Any] = []
        shared_draws: dict[Any, Tensor] = {}
        for start in range(0, size, chunk):
            chunk_tensors = [
                _index_samples(t, slice(start, start + chunk))
                if flag and chunk < size
                else t
                for t, flag in pairs
            ]
            chunks.append(
                batched(program, chunk_tensors, has_samples, randomness, shared_draws)
            )
    except NoRule as error:
        raise CaptureError(
            f"vmap has no rule for {error}, or call the function for each sample"
        ) from error
    differs = chunks[0][1]
    columns = zip(*(outputs for outputs, _ in chunks), strict=True)
    joined = [
        paddle.concat([*column]) if flag and len(chunks) > 1 else column[0]
        for column, flag in zip(columns, differs, strict=True)
    ]
    return joined, differs


def _split_draws(program: Program) -> Program:
    """Return the program with formulas for what draws and computes at once."""
    known = (*program.inputs, *program.constants)
    with not_listening():
        ops, new_constants = decompose_by_formulas(
            program.ops, known, program.outputs, _draws_within
        )
    return replace(
        program, ops=tuple(ops), constants={**program.constants, **new_constants}
    )


def _draws_within(op: Operation) -> bool:
    return op.operator.random and op.operator.formula is not None


def _index_samples(x: Tensor, index: int | slice) -> Tensor:
    """Return ``x[index]``, also of more than six axes, which Paddle refuses."""
    if x.ndim <= 6:
        return x[index]
    rows = x.reshape([x.shape[0], -1])[index]
    return rows.reshape([*rows.shape[:-1], *x.shape[1:]])
