"""State of Python that a net's value may depend on, to see whether it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import partial
from typing import Any

import paddle

from ..errors import CaptureError
from ..transforms.as_programs.outer_state import keys_of, unchanged_test
from ..transforms.as_programs.state_reads import StatePolicy, StateRead, reads_of
from .constant import CONSTANT
from .hook_outputs import AttributeKey

MAX_READS = 20_000
"""Values beyond which a net is taken to hold more than itself."""

MAX_STATE_BYTES = 1 << 20
"""Bytes of arrays that are compared by content, in a tenth of a millisecond."""

POLICY = StatePolicy(
    constant=frozenset(CONSTANT),
    max_items=MAX_READS,
    max_bytes=MAX_STATE_BYTES,
    refuses=True,
    all_attributes=True,
    trainers=("deepxde.model.Model", "ppsci.solver.solver.Solver"),
    without_state=(
        *("logging", "threading", "sympy", "paddle_chainrules.adapters"),
        *("deepxde.geometry", "deepxde.gradients", "ppsci.geometry", "ppsci.autodiff"),
    ),
)
"""All that a net holds counts, as code of the libraries may read it, which is not read.

Of a whole training only what the script's code names counts, and nothing of objects
whose state is a cache.
"""


class ObjectState:
    """The attributes of objects and all below them, and what their functions read.

    The modes of a layer, train or eval, are left out.

    Args:
        root: the layer, or a mapping of objects.
        ignored: attributes that its value does not depend on.
        arguments: objects that functions get as arguments. Only attributes that code
            names count.

    Raises:
        ValueError: it holds far more than a net does, or large arrays, or what can't be
            read.
    """

    def __init__(
        self, root: Any, ignored: Set[AttributeKey], arguments: Iterable[Any] = ()
    ) -> None:
        is_layer = isinstance(root, paddle.nn.Layer)
        sublayers = root.sublayers(include_self=True) if is_layer else []
        objects = tuple(arguments)
        modes = {(id(vars(sublayer)), "training") for sublayer in sublayers}
        policy = POLICY._replace(
            ignored=ignored | modes,
            max_reads=MAX_READS,
            named_alone=frozenset(map(id, objects)),
        )
        self._read = partial(reads_of, root, frozenset(), objects, policy)
        try:
            self._note(self._read())
        except CaptureError as error:
            raise ValueError(str(error)) from error
        except Exception as error:  # such as of a configuration with a missing value
            raise ValueError(
                f"it holds what can't be read ({type(error).__name__}: {error}); give "
                "the net the values that it needs"
            ) from error

    def _note(self, reads: list[StateRead]) -> None:
        self._reads, self._unchanged = reads, unchanged_test(reads)

    def changed(self) -> str:
        """Return the name of something that has changed."""
        labels = (read.label for read in self._reads if read.has_changed())
        return next(labels, "one of them").removeprefix(".")

    def is_same(self) -> bool:
        """Tell whether nothing has changed, but for equal values in place of others."""
        try:
            if self._unchanged():
                return True
            reads = self._read()
        except Exception:  # of an object that can't be read any more
            return False
        if keys_of(reads) != keys_of(self._reads):
            return False
        self._note(reads)
        return True
