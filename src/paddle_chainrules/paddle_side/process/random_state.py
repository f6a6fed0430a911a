"""Random numbers of Paddle: of a seed, or once more, while the program's own go on."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral
from typing import Any

import paddle
from paddle import Tensor

from ..devices import ON_CPU_ALONE, other_kinds
from ..dtypes import tensor_kind
from ..listener import listener, local, thread_mode
from ..locks import in_child_of_fork, new_lock
from ..patching.patch_sites import PatchSet, current_value, without_listener
from ..traced_numbers import TracedNumber

DRAWING = (
    *("bernoulli", "binomial", "class_center_sample", "dirichlet", "dropout"),
    *("dropout_", "exponential_", "fractional_max_pool2d", "fractional_max_pool3d"),
    *("fused_bias_dropout_residual_layer_norm", "fused_dropout_add", "gaussian"),
    *("gaussian_inplace", "gaussian_inplace_", "gumbel_softmax", "multinomial"),
    *("poisson", "randint", "random", "random_", "randperm", "rrelu"),
    *("shuffle_batch", "standard_gamma", "top_p_sampling", "uniform"),
    *("truncated_gaussian_random", "uniform_inplace", "uniform_inplace_"),
    *("uniform_random_batch_size_like", "weighted_sample_neighbors"),
)
"""Operators that draw from Paddle's generators, by their names in ``paddle._C_ops``."""

_generator_lock = new_lock(awaited=True)
"""Held while drawing. The generators are the whole process's, and so is Paddle's engine
of gradients. A fork amid it would leave the child with half a graph."""


def _locked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with _generator_lock:
            result = function(*args, **kwargs)
        return result

    return call


@functools.cache
def _locked_operators() -> PatchSet:
    ops = vars(paddle._C_ops)
    functions = {
        name: function
        for name in DRAWING
        if (function := current_value(ops, name)) is not None
    }
    functions |= {
        name: getattr(paddle, name)
        for name in ("seed", "get_rng_state", "set_rng_state")
    }
    return PatchSet(
        {n: (call, _locked(without_listener(call))) for n, call in functions.items()}
    )


@functools.cache
def serialize_drawing() -> None:
    """Have all threads hold the lock while they draw, from now on."""
    _locked_operators().switch(1)
    if threading.active_count() > 1:
        time.sleep(1e-3)  # for those that are in one


def generator_lock() -> AbstractContextManager[Any]:
    """Return the lock to hold while drawing, or where Paddle takes one thread."""
    return _generator_lock


def random_state() -> Any:
    """Return the state of the generators that a layer draws from."""
    kinds = ("cpu",) if ON_CPU_ALONE else ("cpu", *other_kinds())
    with _generator_lock:
        results = [(kind, paddle.get_rng_state(kind)) for kind in kinds]
    return results


def restore_random_state(state: Any) -> None:
    """Have the generators at a :func:`random_state` again."""
    with _generator_lock:
        for kind, generators in state:
            paddle.set_rng_state(generators, kind)


class private_dropout_seed(thread_mode):
    """A context in which dropout draws by a seed of its own: only sizes matter there.

    The generators are left alone, and nobody waits for their turn.
    """

    name, value = "sizes_alone", True


def is_sketched() -> bool:
    """Tell whether this thread looks at sizes alone."""
    return local.sizes_alone


_drawing = threading.local()


class random_state_restored_on_error:
    """The generators as before where an error comes, as if nothing had been drawn.

    Attributes:
        state: the :func:`random_state` before this thread has drawn; None if it has
            not, as far as operators show it.
    """

    def __init__(self) -> None:
        self.state: Any = None

    def __enter__(self) -> random_state_restored_on_error:
        try:
            self._marks: list[random_state_restored_on_error] = _thread.marks
        except AttributeError:
            self._marks = _thread.marks = []
        self._marks.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        marks = self._marks
        if self in marks:  # where an interrupt may have kept those within
            del marks[marks.index(self) :]
        if kind is not None and self.state is not None:
            restore_random_state(self.state)


_thread = threading.local()


def note_drawing() -> None:
    """Note that an operator is about to draw; each that draws calls this first."""
    state = None
    for mark in reversed(getattr(_thread, "marks", ())):
        if mark.state is not None:
            break
        state = mark.state = state or random_state()


def noting_drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws, with :func:`note_drawing` before it."""

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        note_drawing()
        return function(*args, **kwargs)

    return call


_UNCHANGED_STATE = nullcontext()


def drawing_from(source: Any) -> AbstractContextManager[None]:
    """Draw from a seed, or from a :func:`random_state`, and put the state back after.

    Other threads that draw in the meantime wait. None draws from the program's own
    numbers.
    """
    return _UNCHANGED_STATE if source is None else _drawing_from(source)


@contextmanager
def _drawing_from(source: Any) -> Iterator[None]:
    serialize_drawing()
    note_drawing()
    with _generator_lock:
        outer_state, seed_count = random_state(), len(_outer_seed_states())
        _outer_states.append((threading.get_ident(), outer_state))
        try:
            if isinstance(source, int | Tensor):
                _run_or_record("begin_seed", begin_seed, source)
                yield
                _run_or_record("end_seed", end_seed)
            else:
                restore_random_state(source)
                yield
        finally:
            del _outer_seed_states()[seed_count:]
            try:
                restore_random_state(outer_state)
            finally:  # an interrupt in the one leaves the other
                restore_random_state(outer_state)
                _outer_states.pop()


def begin_seed(seed: int | Tensor) -> None:
    """Draw from a seed until :func:`end_seed`; a step of a program.

    Raises:
        ValueError: the seed is negative, or too large.
    """
    value = _checked_seed_range(_as_int(seed))
    _outer_seed_states().append(random_state())
    paddle.seed(value)


def end_seed() -> None:
    """Draw as before :func:`begin_seed`; a step of a program."""
    restore_random_state(_outer_seed_states().pop())


def _run_or_record(name: str, step: Callable[..., None], *args: Any) -> None:
    """Run a step, or hand it to this thread's listener."""
    receiver = listener()
    if receiver is None:
        step(*args)
    else:
        receiver.operator(name, step, args, {})


def _outer_seed_states() -> list[Any]:
    """Return the states before the seeds that this thread draws from."""
    results: list[Any] = _drawing.__dict__.setdefault("seeds", [])
    return results


@contextmanager
def running_seeds() -> Iterator[None]:
    """Run a program, whose seeds end with it, also where it raises an error."""
    with _generator_lock:
        outer_count = len(_outer_seed_states())
        try:
            yield
        finally:
            if len(_outer_seed_states()) > outer_count:
                restore_random_state(_outer_seed_states()[outer_count])
                del _outer_seed_states()[outer_count:]


_outer_states: list[tuple[int, Any]] = []
"""The thread that draws from a seed, and the states that it will restore."""


@in_child_of_fork
def _restore_after_fork() -> None:
    """Restore the program's random state, which another thread had replaced."""
    if _outer_states and _outer_states[0][0] != threading.get_ident():
        restore_random_state(_outer_states[0][1])
        _outer_states.clear()


def checked_seed(seed: Any) -> int | Tensor | None:
    """Return a seed as an int or None; in a capture as a 0-d integer tensor.

    Raises:
        TypeError: not an integer.
        ValueError: one that is negative, or too large.
    """
    if seed is None:
        return None
    if type(seed) is TracedNumber:
        return seed.seed()
    if isinstance(seed, Tensor) and seed.size == 1 and seed.dtype in _INTEGER_DTYPES:
        return _checked_seed_range(_as_int(seed)) if listener() is None else seed
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise TypeError(
            "seed must be an int, an integer tensor of one number, or None for the "
            f"program's random numbers, got {_generator_kind(seed)}; give int(seed)"
        )
    return _checked_seed_range(int(seed))


def _generator_kind(seed: Any) -> str:
    if isinstance(seed, Tensor):
        return tensor_kind(seed)
    return type(seed).__name__


_INTEGER_DTYPES = (paddle.int32, paddle.int64)


def _as_int(seed: Any) -> int:
    value: Any = seed.item() if isinstance(seed, Tensor) else seed
    return int(value)


def _checked_seed_range(value: int) -> int:
    if not 0 <= value < 2**64:
        raise ValueError(
            f"seed must be at least 0 and below 2**64, got {value}; take it modulo "
            "2**64"
        )
    return value
