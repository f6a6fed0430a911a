"""Fourier transforms, in Julia by AbstractFFTs."""

from __future__ import annotations

from typing import Any

from .call import JuliaCall, dim, julia_of, row


def _region(call: JuliaCall, axes: Any) -> str:
    """Write the Julia dimensions, the one that is halved first."""
    return row([dim(int(a), call.ndim()) for a in reversed(axes)])


def _scaled(text: str, norm: str, forward: bool, lengths: list[int]) -> str:
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
    return _scaled(f"{name}({x}, {_region(call, axes)})", norm, forward, lengths)


@julia_of("fft_r2c")
def _fft_r2c_julia(call: JuliaCall) -> str:
    x, axes, norm, forward, onesided = call.args
    lengths, region = [call.shapes[0][a] for a in axes], _region(call, axes)
    if not onesided:
        text = f"{'fft' if forward else 'bfft'}(complex.({x}), {region})"
    else:
        text = f"rfft({x}, {region})"
        text = text if forward else f"conj.({text})"
    return _scaled(text, norm, forward, lengths)


@julia_of("fft_c2r")
def _fft_c2r_julia(call: JuliaCall) -> str:
    x, axes, norm, forward, _ = call.args
    lengths = [call.out[a] for a in axes]
    x = f"conj.({x})" if forward else x
    text = f"brfft({x}, {lengths[-1]}, {_region(call, axes)})"
    return _scaled(text, norm, forward, lengths)
