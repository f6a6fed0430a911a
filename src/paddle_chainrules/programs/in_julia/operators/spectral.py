"""Fourier transforms, in Julia by AbstractFFTs."""

from __future__ import annotations

from typing import Any

from .call import JuliaCall, dim, julia_of, tuple_text


def _region_text(call: JuliaCall, axes: Any) -> str:
    """Write the Julia dimensions, the one that is halved first."""
    return tuple_text([dim(int(a), call.ndim()) for a in reversed(axes)])


def _with_normalization(text: str, norm: str, forward: bool, lengths: list[int]) -> str:
    """Write a Julia transform with Paddle's normalization, which Julia's lacks."""
    count = " * ".join(map(str, lengths))
    if norm == "ortho":
        return f"{text} ./ sqrt({count})"
    return f"{text} ./ ({count})" if forward == (norm == "forward") else text


@julia_of("fft_c2c")
def _fft_c2c_julia(call: JuliaCall) -> str:
    x, axes, norm, forward = call.args
    name = "fft" if forward else "bfft"
    lengths = [call.shapes[0][a] for a in axes]
    return _with_normalization(
        f"{name}({x}, {_region_text(call, axes)})", norm, forward, lengths
    )


@julia_of("fft_r2c")
def _fft_r2c_julia(call: JuliaCall) -> str:
    x, axes, norm, forward, onesided = call.args
    lengths, region = [call.shapes[0][a] for a in axes], _region_text(call, axes)
    if not onesided:
        text = f"{'fft' if forward else 'bfft'}(complex.({x}), {region})"
    else:
        text = f"rfft({x}, {region})"
        text = text if forward else f"conj.({text})"
    return _with_normalization(text, norm, forward, lengths)


@julia_of("fft_c2r")
def _fft_c2r_julia(call: JuliaCall) -> str:
    x, axes, norm, forward, _ = call.args
    lengths = [call.out[a] for a in axes]
    x = f"conj.({x})" if forward else x
    text = f"brfft({x}, {lengths[-1]}, {_region_text(call, axes)})"
    return _with_normalization(text, norm, forward, lengths)
