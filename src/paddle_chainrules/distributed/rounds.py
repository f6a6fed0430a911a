"""Rounds of communication. Each begins with what the ranks must agree on.

A rank that is elsewhere in the program, has other tensors or has failed would leave the
others waiting for ever, or have them add what does not belong together. So each round
starts with 24 bytes of every rank: a hash of what it is about to send, the weight of
its shard, and whether it failed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor

from ..errors import CaptureError
from ..paddle_side.listener import listener
from .processes import rank, size


class RankError(RuntimeError):
    """Ranks that disagree, or one that failed or is gone. The run can't go on."""


def agree(
    caller: str,
    lines: Iterable[str] = (),
    weight: float = 1.0,
    failure: Exception | None = None,
) -> list[float]:
    """Begin a round: return the weights of all ranks, which all have the same lines.

    Args:
        caller: the call, as errors name it.
        lines: the settings of the call; not read in a single process.
        weight: the weight of this rank's share.
        failure: the error that keeps this rank from it; raised here after the others
            are told.

    Raises:
        RankError: other ranks have other lines, failed, or are gone.
        CaptureError: this is called while a program is made.
    """
    if listener() is not None:
        raise CaptureError(
            f"{caller} talks to other processes, which is no part of a program; call "
            "it outside of jit and vmap: jit(value_and_grad(loss)), then average"
        )
    if size() == 1:
        if failure is not None:
            raise failure
        return [weight]
    text = "\n".join((caller, *lines))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    share = struct.pack("<dq", weight if failure is None else 1.0, failure is not None)
    header = struct.unpack("<3q", digest + share)
    with _others_present(caller):
        headers = [
            [int(i) for i in gathered.numpy()]
            for gathered in _gather(paddle.to_tensor(header, dtype="int64"))
        ]
    if any(failed for _, _, failed in headers):
        _raise_failures(caller, failure)
    if any(hashed != headers[0][0] for hashed, _, _ in headers):
        _raise_differences(caller, text)
    return [struct.unpack("<d", struct.pack("<q", bits))[0] for _, bits, _ in headers]


def add_up(buffer: Tensor) -> Tensor:
    """Return the sum of all ranks' vectors; it may overwrite this rank's.

    Raises:
        RankError: a rank is gone.
    """
    if size() == 1:
        return buffer
    buffer = _within_reach(buffer)
    with _others_present("the sum"):
        dist.all_reduce(buffer)
    return buffer


def send(buffer: Tensor, source: int) -> Tensor:
    """Return the bytes of the rank ``source``; it may overwrite this rank's.

    Raises:
        RankError: a rank is gone.
    """
    if size() == 1:
        return buffer
    buffer = _within_reach(buffer)
    with _others_present("the broadcast"):
        dist.broadcast(buffer, src=source)
    return buffer


def _within_reach(buffer: Tensor) -> Tensor:
    """Return a tensor where the backend reads it: gloo reads the host's memory alone.

    Given memory of another device, it ends the process.
    """
    return buffer.cpu() if dist.get_backend() == "GLOO" else buffer


def _gather(buffer: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, which have one shape and dtype."""
    buffer = _within_reach(buffer)
    results = [buffer.clone() for _ in range(size())]
    dist.all_gather(results, buffer)
    return results


@contextmanager
def _others_present(caller: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise RankError(
            f"rank {rank()} of {size()} lost the others in {caller}: a process has "
            "ended, is half a minute behind, or the network is down. Look into the "
            "logs of the other ranks, and start all again from the last checkpoint"
        ) from error


def _gather_texts(text: str) -> list[str]:
    data = np.frombuffer(text.encode(), "uint8")
    length = paddle.to_tensor([len(data)], dtype="int64")
    lengths = [int(gathered.numpy()[0]) for gathered in _gather(length)]
    padded = np.zeros(max(*lengths, 1), "uint8")
    padded[: len(data)] = data
    texts = _gather(paddle.to_tensor(padded))
    return [
        gathered.numpy()[:n].tobytes().decode()
        for gathered, n in zip(texts, lengths, strict=True)
    ]


def _raise_failures(caller: str, failure: Exception | None) -> None:
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    with _others_present(caller):
        texts = _gather_texts(text)
    if failure is not None:
        raise failure
    failed = [f"rank {i} ({text})" for i, text in enumerate(texts) if text]
    raise RankError(
        f"{caller} can't go on: failed on {', '.join(failed)}. Mend the cause there, "
        "and start all ranks again"
    )


def _raise_differences(caller: str, text: str) -> None:
    with _others_present(caller):
        lines_by_rank = [result.split("\n") for result in _gather_texts(text)]
    first = lines_by_rank[0]
    other = next(i for i, result in enumerate(lines_by_rank) if result != first)
    pairs = zip(first, lines_by_rank[other], strict=False)
    differing = [(a, b) for a, b in pairs if a != b]
    if differing:
        first_line, other_line = differing[0]
    else:
        first_line, other_line = (
            f"{len(first) - 1} tensors",
            f"{len(lines_by_rank[other]) - 1} tensors",
        )
    raise RankError(
        f"ranks disagree: rank 0 has {first_line}, rank {other} has {other_line}. All "
        "ranks make the same calls in the same order, with tensors of the same names, "
        "shapes and dtypes, and a loss has the same constants; only the number of "
        "samples may differ. Give a loss what differs on purpose as an argument"
    )
