"""What a layer refuses, said in Julia's terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from paddle import Tensor, nn

from ..nets.net import Net
from ..paddle_side.dtypes import dtype_name
from ..programs.capture_error import CaptureError

_CALL = nn.Layer.__call__.__code__

Size = Sequence[int | str]
"""Of a tensor as Paddle has it, with words for what may be any number."""

_IMAGES: dict[type, int] = {
    kind: axes
    for axes in (1, 2, 3)
    for name in ("Conv{}D", "Conv{}DTranspose", "BatchNorm{}D", "InstanceNorm{}D")
    for kind in [getattr(nn, name.format(axes))]
}
"""How many axes there are beside samples and channels, by the kind of layer."""


class Refusal(NamedTuple):
    """A layer that was called, and failed."""

    name: str
    """Within its net; empty for the whole."""
    layer: nn.Layer
    given: tuple[Any, ...]
    held: dict[str, tuple[tuple[int, ...], str]]
    """Shapes and dtypes of the net's parameters."""

    @property
    def sentence(self) -> str:
        """The layer, what it was given, and what it needs where that is known."""
        where = f'layer "{self.name}" ({type(self.layer).__name__})'
        if not self.name:
            where = f"the layer ({type(self.layer).__name__})"
        x = self.given[0] if self.given else None
        if self.given and (needed := self._needed(x)):
            return f"{where} got {needed}"
        given = " and ".join(map(_what, self.given[:4])) or "no arguments"
        more = f" and {len(self.given) - 4} more" if len(self.given) > 4 else ""
        return f"{where} failed on {given}{more}"

    def _needed(self, x: Any) -> str:
        """What it was given and what it needs instead; empty where that is not it."""
        if isinstance(self.layer, nn.Embedding):
            return _index(x, self.layer._num_embeddings)
        size = self._size([*x.shape] if isinstance(x, Tensor) else [])
        if size is None:
            return ""
        if not isinstance(x, Tensor):
            return f"{_what(x)}, it needs an array of size {_samples(size)}"
        found, dtype = dtype_name(x.dtype), self._dtype()
        if dtype and found != dtype:
            own, part = _type(dtype), "real.(x)" if x.is_complex() else "x"
            given = f"an array of {_type(found)}"
            return f"{given}, it needs {own}; convert it, such as {own}.({part})"
        if _fits(x.shape, size):
            return ""
        turned = "; permutedims(x) is so" if _fits(x.shape[::-1], size) else ""
        return f"{_what(x)}, it needs {_samples(size)}{turned}"

    def _dtype(self) -> str:
        """Of its parameters, or of all of the net's."""
        prefix = f"{self.name}." if self.name else ""
        own = {dtype for n, (_, dtype) in self.held.items() if n.startswith(prefix)}
        found = own or {dtype for _, dtype in self.held.values()}
        return found.pop() if len(found) == 1 else ""

    def _size(self, shape: Sequence[int]) -> Size | None:
        """The size of what it takes, for what has this one; None where unknown."""
        layer: Any = self.layer
        if isinstance(layer, nn.Linear):
            weight = f"{self.name}.weight" if self.name else "weight"
            if weight not in self.held:
                return None
            width = self.held[weight][0][0]
            return [width] if len(shape) == 1 else ["n", *shape[1:-1], width]
        if isinstance(layer, nn.LayerNorm):
            sizes = layer._normalized_shape
            return ["n", *shape[1 : -len(sizes)], *sizes]
        if isinstance(layer, nn.MultiHeadAttention):
            return ["n", "time", layer.embed_dim]
        if isinstance(layer, nn.layer.rnn.RNNCellBase) and hasattr(layer, "input_size"):
            return ["n", layer.input_size]
        if isinstance(layer, nn.layer.rnn.RNNBase):
            lead = ["time", "n"] if layer.time_major else ["n", "time"]
            return [*lead, layer.input_size]
        for name in ("_in_channels", "_num_features", "_num_channels"):
            if hasattr(layer, name):
                return _of_channels(layer, getattr(layer, name), len(shape))
        return None


def refusal(error: BaseException) -> tuple[str, str] | None:
    """The name of the layer in which Paddle has raised an error, and a sentence on it.

    None where it was no layer of a net, or the code of others or this package that
    raised it, which has words of its own.
    """
    with suppress(Exception):  # of an error no second one
        if isinstance(error, CaptureError) and error.__cause__ is not None:
            error = error.__cause__
        found = _refusal(error)
        return found and (found.name, found.sentence)
    return None


def _refusal(error: BaseException) -> Refusal | None:
    frames = [*_frames(error)]
    # The last frame of a call that does not fit the arguments of forward is the call.
    calls = [frame for frame in frames[:-1] if frame.f_code is _CALL]
    if not calls or not _is_paddles(error, frames[-1]):
        return None
    root, layer = calls[0].f_locals["self"], calls[-1].f_locals["self"]
    named = root.named_sublayers(include_self=True)
    name = next((name for name, part in named if part is layer), "")
    local = calls[-1].f_locals
    given = (*local["inputs"], *local["kwargs"].values())
    return Refusal(name, layer, given, _held(frames))


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _is_paddles(error: BaseException, frame: FrameType) -> bool:
    """Whether Paddle has raised it, in this frame's code or in C++ of a line it names.

    Want of memory is none of a layer's.
    """
    module = str(frame.f_globals.get("__name__"))
    paddles = module.startswith("paddle.") or "(at /" in str(error)
    return paddles and not isinstance(error, MemoryError)


def _held(frames: Sequence[FrameType]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of the parameters of the innermost net."""
    for frame in reversed(frames):
        net = frame.f_locals.get("self")
        if isinstance(net, Net):
            spec = net.spec
            pairs = zip(map(tuple, spec.shapes), spec.dtypes, strict=True)
            return dict(zip(spec.names, pairs, strict=True))
    return {}


def _of_channels(layer: Any, channels: int, rank: int) -> Size:
    """The size of images, or of samples, with so many channels."""
    axes = next((a for k, a in _IMAGES.items() if isinstance(layer, k)), rank - 2)
    if isinstance(layer, nn.BatchNorm1D | nn.InstanceNorm1D):
        axes = int(rank == 3)
    lengths = ("depth", "height", "width")[3 - max(axes, 0) :]
    last = axes > 0 and not getattr(layer, "_data_format", "NC").startswith("NC")
    return ["n", *lengths, channels] if last else ["n", channels, *lengths]


def _fits(shape: Sequence[int], size: Size) -> bool:
    return len(shape) == len(size) and all(
        isinstance(b, str) or a == b for a, b in zip(shape, size, strict=True)
    )


def _index(x: Any, rows: int) -> str:
    """What an embedding of so many rows was given, and what it takes."""
    takes = f"it takes integers from 0 to {rows - 1}"
    if not isinstance(x, Tensor):
        return f"{_what(x)}, {takes}"
    dtype = dtype_name(x.dtype)
    convert = "" if dtype.startswith("int") else ", such as Int.(x)"
    return f"an array of {_type(dtype)}, {takes}{convert}"


def _what(x: Any) -> str:
    """A value as Julia has it."""
    if isinstance(x, Tensor):
        return f"an array of size {_julia(x.shape)}"
    if x is None:
        return "nothing"
    if isinstance(x, str):
        return f'the string "{x[:30]}"'
    if isinstance(x, bool | int | float):
        return f"the number {x}"
    return f"a {type(x).__name__}"


def _samples(size: Size) -> str:
    return f"{_julia(size)} for n samples" if "n" in size else _julia(size)


def _julia(size: Size) -> str:
    """A size in Julia's order."""
    inside = ", ".join(map(str, reversed(size)))
    return f"({inside},)" if len(size) == 1 else f"({inside})"


def _type(dtype: str) -> str:
    """The name of an element type in Julia."""
    bits = {"complex64": "ComplexF32", "complex128": "ComplexF64"}
    unsigned = dtype.startswith("uint")
    return bits.get(dtype, f"UInt{dtype[4:]}" if unsigned else dtype.capitalize())
