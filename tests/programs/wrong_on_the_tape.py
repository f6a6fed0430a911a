"""The samples of which Paddle's own tape has other gradients, by the reason.

A sample that is new among them has its name put here, or its operator a rule in
``paddle_side/rules``. Kernels of gradients (``*_grad``) are left out: only rules call
them, and differentiate them by rules.
"""

WRONG = {
    "no gradient by what the kernel takes for constant": {
        "increment": (0,),
        "pad3d": (8,),
    },
}
"""By reasons: operators, and the numbers of their samples."""

NOT_ASKED = {
    # Kernels that read memory that is not there, or that nobody has written.
    "cross_entropy_with_softmax": range(12),
    "nll_loss": (5, 10),
    # Where differences say nothing: a maximum or a pole is near.
    "fractional_max_pool3d": (0,),
    "slogdet": (1,),
}
"""Samples whose gradients on the tape are not looked at."""

OTHERWISE = {
    # Another element than Paddle's, of an index of new axes, a slice and a number.
    "Tensor._getitem_dygraph": (11,),
    # Which rows are too long is another for other numbers.
    "renorm": (2,),
    # Paddle takes the distances between samples in single precision.
    **dict.fromkeys(("linear_interp", "bilinear_interp"), (1,)),
}
"""Samples that machine code computes otherwise than Paddle's operators."""


def is_named(samples, name, k):
    return k in samples.get(name, ())


def is_wrong_on_the_tape(name, k):
    return any(is_named(samples, name, k) for samples in WRONG.values())
