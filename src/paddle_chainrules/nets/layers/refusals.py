"""Errors of a layer, with what it was given and what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from paddle import Tensor, nn

from ...errors import CaptureError
from ...paddle_side.dtypes import dtype_name
from ..net import Net

_CALL = nn.Layer.__call__.__code__

Size = Sequence[int | str]
"""A tensor's shape as Paddle has it, with words for sizes that are arbitrary."""

_IMAGES: dict[type, int] = {
    kind: axes
    for axes in (1, 2, 3)
    for name in ("Conv{}D", "Conv{}DTranspose", "BatchNorm{}D", "InstanceNorm{}D")
    for kind in [getattr(nn, name.format(axes))]
}
"""Number of axes besides samples and channels, by the kind of layer."""


class PythonTerms:
    """The words that Python uses for values."""

    def tensor(self, shape: Size) -> str:
        return f"a tensor of shape {self.size(shape)}"

    def of_type(self, dtype: str) -> str:
        return f"a tensor of {dtype}"

    def type(self, dtype: str) -> str:
        return dtype

    def size(self, size: Size) -> str:
        """Return a shape, with words for what may be any number."""
        return f"[{', '.join(map(str, size))}]"

    def cast(self, dtype: str, is_complex: bool = False) -> str:
        """Return code that converts a tensor to another dtype."""
        return f"{'x.real()' if is_complex else 'x'}.astype({dtype!r})"

    to_tensor_hint = "; paddle.to_tensor makes one"
    """Hint at the function that makes a tensor of another value."""

    integers = "x.astype('int64')"
    """The same of integers."""

    transpose_code = "x.T"
    """Code that reverses the dimensions."""

    def what(self, x: Any) -> str:
        """Name any value in words."""
        if isinstance(x, Tensor):
            return self.tensor(x.shape)
        if x is None:
            return "None"
        if isinstance(x, str):
            return f"the string {x[:30]!r}"
        if isinstance(x, bool | int | float):
            return f"the number {x}"
        return f"a {type(x).__name__}"


PYTHONS = PythonTerms()


class LayerError(ValueError, TypeError):
    """An error of a layer in a net, in terms of that layer."""


class LayerRefusal(NamedTuple):
    """A layer that was called, and failed."""

    name: str
    """Name of the layer within its net; empty for the whole net."""
    layer: nn.Layer
    inputs: tuple[Any, ...]
    param_kinds: dict[str, tuple[tuple[int, ...], str]]
    """Shapes and dtypes of the net's parameters."""
    words: PythonTerms
    error: BaseException

    @property
    def sentence(self) -> str:
        """The layer, what it was given, and what it needs where that is known."""
        layer_text = f'layer "{self.name}" ({type(self.layer).__name__})'
        if not self.name:
            layer_text = f"the layer ({type(self.layer).__name__})"
        x = self.inputs[0] if self.inputs else None
        if self.inputs and (needed := self._needed(x)):
            return f"{layer_text} got {needed}"
        inputs_text = (
            " and ".join(map(self.words.what, self.inputs[:4])) or "no arguments"
        )
        more = f" and {len(self.inputs) - 4} more" if len(self.inputs) > 4 else ""
        return f"{layer_text} failed on {inputs_text}{more}"

    @property
    def reason(self) -> str:
        """The sentence, and where it does not say what is needed Paddle's own words."""
        sentence = self.sentence
        return f"{sentence}: {self.error}" if " failed on " in sentence else sentence

    def _needed(self, x: Any) -> str:
        """Say what the layer got and what it needs; empty if these agree."""
        words = self.words
        if isinstance(self.layer, nn.Embedding):
            return _index_needs(x, self.layer._num_embeddings, words)
        size = self._size([*x.shape] if isinstance(x, Tensor) else [])
        if size is None:
            return ""
        if not isinstance(x, Tensor):
            needed = f"{words.tensor(size)}{_samples(size)}{words.to_tensor_hint}"
            return f"{words.what(x)}, it needs {needed}"
        given_dtype, dtype = dtype_name(x.dtype), self._dtype()
        if dtype and given_dtype != dtype:
            cast = words.cast(dtype, x.is_complex())
            needs = f"it needs {words.type(dtype)}; convert it, such as {cast}"
            return f"{words.of_type(given_dtype)}, {needs}"
        if _matches_size(x.shape, size):
            return ""
        hint = (
            f"; {words.transpose_code} is so"
            if _matches_size(x.shape[::-1], size)
            else ""
        )
        needed = f"{words.size(size)}{_samples(size)}"
        return f"{words.what(x)}, it needs {needed}{hint}"

    def _dtype(self) -> str:
        """Return the dtype of its parameters, or else of all the net's parameters."""
        prefix = f"{self.name}." if self.name else ""
        own_dtypes = {
            dtype for n, (_, dtype) in self.param_kinds.items() if n.startswith(prefix)
        }
        dtypes = own_dtypes or {dtype for _, dtype in self.param_kinds.values()}
        return dtypes.pop() if len(dtypes) == 1 else ""

    def _size(self, shape: Sequence[int]) -> Size | None:
        """Return the size that it takes in place of this one; None if unknown."""
        layer: Any = self.layer
        if isinstance(layer, nn.Linear):
            weight = f"{self.name}.weight" if self.name else "weight"
            if weight not in self.param_kinds:
                return None
            width = self.param_kinds[weight][0][0]
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


def refusal(error: BaseException, words: PythonTerms = PYTHONS) -> LayerRefusal | None:
    """Return what is known of the layer in which Paddle has raised an error.

    None if no layer of a net raised it. None too if others' code or this package did,
    which has words of its own.
    """
    with suppress(Exception):  # of an error no second one
        while isinstance(error, CaptureError | LayerError) and error.__cause__:
            error = error.__cause__
        result = _refusal(error, words)
        if result is not None and result.sentence:
            return result
    return None


def _refusal(error: BaseException, words: PythonTerms) -> LayerRefusal | None:
    frames = [*_frames(error)]
    # The last frame of a call that does not fit the arguments of forward is the call.
    calls = [frame for frame in frames[:-1] if frame.f_code is _CALL]
    if not calls or not _is_paddles(error, frames[-1]):
        return None
    root, layer = calls[0].f_locals["self"], calls[-1].f_locals["self"]
    sublayers = root.named_sublayers(include_self=True)
    name = next((name for name, sublayer in sublayers if sublayer is layer), "")
    call_locals = calls[-1].f_locals
    inputs = (*call_locals["inputs"], *call_locals["kwargs"].values())
    return LayerRefusal(name, layer, inputs, _param_kinds(frames), words, error)


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _is_paddles(error: BaseException, frame: FrameType) -> bool:
    """Tell whether Paddle raised it, in this frame's code or in C++ that a line names.

    Lack of memory is not counted as a layer's error.
    """
    module = str(frame.f_globals.get("__name__"))
    is_of_paddle = module.startswith("paddle.") or "(at /" in str(error)
    return is_of_paddle and not isinstance(error, MemoryError)


def _param_kinds(frames: Sequence[FrameType]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shapes and dtypes of the parameters of the innermost net."""
    for frame in reversed(frames):
        net = frame.f_locals.get("self")
        if isinstance(net, Net):
            spec = net.spec
            pairs = zip(map(tuple, spec.shapes), spec.dtypes, strict=True)
            return dict(zip(spec.names, pairs, strict=True))
    return {}


def _of_channels(layer: Any, channels: int, rank: int) -> Size:
    """Return the size of images, or of samples, with so many channels."""
    axes = next((a for k, a in _IMAGES.items() if isinstance(layer, k)), rank - 2)
    if isinstance(layer, nn.BatchNorm1D | nn.InstanceNorm1D):
        axes = int(rank == 3)
    lengths = ("depth", "height", "width")[3 - max(axes, 0) :]
    last = axes > 0 and not getattr(layer, "_data_format", "NC").startswith("NC")
    return ["n", *lengths, channels] if last else ["n", channels, *lengths]


def _matches_size(shape: Sequence[int], size: Size) -> bool:
    return len(shape) == len(size) and all(
        isinstance(b, str) or a == b for a, b in zip(shape, size, strict=True)
    )


def _index_needs(x: Any, rows: int, words: PythonTerms) -> str:
    """Say what an embedding with ``rows`` rows was given, and what it takes."""
    takes = f"it takes integers from 0 to {rows - 1}"
    if not isinstance(x, Tensor):
        return f"{words.what(x)}, {takes}"
    dtype = dtype_name(x.dtype)
    convert = "" if dtype.startswith("int") else f", such as {words.integers}"
    return f"{words.of_type(dtype)}, {takes}{convert}"


def _samples(size: Size) -> str:
    return " for n samples" if "n" in size else ""
