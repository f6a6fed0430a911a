"""Arguments of Fourier transforms, and of signals in frames."""

from __future__ import annotations

from typing import Any

from .tensors import t, z

NORMS = ("backward", "forward", "ortho")

SPECTRAL: dict[str, list[tuple[Any, ...]]] = {
    "fft_c2c": [
        *((z(3, 4), [1], norm, way) for norm in NORMS for way in (True, False)),
        (z(5), [0], "backward", True),
        (z(2, 3, 4), [0, 2], "backward", True),
        (z(2, 3, 4), [2, 1], "ortho", False),
    ],
    "fft_r2c": [
        *(
            (t(2, n), [1], norm, way, True)
            for norm in NORMS
            for way in (True, False)
            for n in (4, 5)
        ),
        *((t(3, 4), [0, 1], norm, True, True) for norm in NORMS),
        *((t(3, n), [0, 1], "forward", True, False) for n in (4, 5)),
        (t(3, 4), [1, 0], "backward", True, True),
        (t(2, 3, 4), [2], "ortho", False, False),
        *((t(2, n), [1], "backward", True, True) for n in (1, 2, 3)),
    ],
    "fft_c2r": [
        *(
            (z(2, 3), [1], norm, way, n)
            for norm in NORMS
            for way in (True, False)
            for n in (4, 5)
        ),
        *((z(3, 4), [0, 1], norm, False, 7) for norm in NORMS),
        (z(3, 4), [1], "backward", False, 0),
        (z(4, 3), [1, 0], "backward", False, 6),
        (z(2, 3, 4), [0, 2], "forward", True, 6),
        (z(2, 1), [1], "backward", False, 1),
        *((z(2, 2), [1], "backward", False, n) for n in (2, 3)),
    ],
    "frame": [
        (t(7), 3, 2, -1),
        (t(2, 8), 3, 2, -1),
        (t(8, 2), 3, 2, 0),
        (t(7), 3, 1, 0),
        (z(2, 7), 4, 3, -1),
        *((t(2, n), 2, 3, -1) for n in (8, 9, 10)),
        (t(9, 2), 1, 4, 0),
    ],
    "overlap_add": [
        (t(3, 4), 2, -1),
        (t(2, 3, 4), 1, -1),
        (t(4, 3, 2), 2, 0),
        (z(2, 3, 4), 3, -1),
        (t(2, 3), 1, 0),
    ],
}
