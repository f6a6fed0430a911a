"""All operators that programs hold, by name."""

from __future__ import annotations

from . import creation, functions, random, spectral  # noqa: F401
from .elementwise import (  # noqa: F401
    activation_series,
    activations,
    arithmetic,
    comparison,
    complex_numbers,
    copies,
    counting,
    elementary,
    gates,
    special,
)
from .entry import TABLE
from .images import (  # noqa: F401
    channels_last,
    convolution,
    pooling,
    regions,
    resampling,
    sampling,
    taps,
)
from .layers import (  # noqa: F401
    channel_norms,
    normalization,
    recurrent,
    recurrent_steps,
)
from .linear_algebra import (  # noqa: F401
    diagonals,
    eigenvalues,
    einsum,
    factorizations,
    matrices,
    products,
    solving,
    sparse,
)
from .losses import (  # noqa: F401
    cross_entropy,
    hierarchical,
    losses,
)
from .manipulation import (  # noqa: F401
    brackets,
    indexing,
    many_axes,
    rearranging,
    scattering,
    segments,
    shapes,
    writes,
)
from .reductions import (  # noqa: F401
    cumulative,
    norms,
    ordering,
    reductions,
)

__all__ = ["TABLE"]
