"""Value and gradient of a loss over the shards of all ranks."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import optree
from paddle import Tensor

from ..transforms import value_and_grad as of_one
from .averages import reduced, unfit_weight
from .buffers import describe, named_leaves
from .shards import rows, samples

Weight = float | Callable[..., float]


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    weight: Weight | None = None,
    micro_batches: int = 1,
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives a loss and its gradient over the shards of all ranks.

    Each rank calls it with its own shard, and all get the same value and gradients:
    those of one process with all samples, where the loss is a mean, or a sum, over
    samples. Only the results are reduced, in one round a dtype: derivatives within the
    loss, as those of differential equations, are each rank's own.

    Args:
        fn: the loss, as of :func:`paddle_chainrules.value_and_grad`; by ``jit`` too.
        argnums: which arguments to differentiate by: parameters, the same on all ranks.
        has_aux: fn returns ``(loss, aux)``; aux stays each rank's own.
        reduction: "mean" of shards, weighted; "sum" adds losses and gradients up.
        weight: of this rank's shard, a number, or a function of the loss's arguments.
            By default the number of its samples, which is the first dimension of all
            arrays in the positional arguments that are not differentiated.
        micro_batches: the shard is worked on in as many parts of consecutive samples,
            one after another, for less memory; one reduction in the end.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)`` as in a single process.

    Raises:
        ValueError: another reduction, fewer than one micro-batch, or aux of several;
            from the returned function, where samples don't tell the weight.
        TypeError: from that, as of a single process.
        RankError: from that: ranks disagree, or one failed or is gone.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, distributed
        >>> net = FCNet((2, 8, 1))
        >>> loss = lambda params, x, y: ((net.forward(params, x) - y) ** 2).mean()
        >>> x, y = distributed.shard((paddle.ones([7, 2]), paddle.ones([7, 1])))
        >>> value, grads = distributed.value_and_grad(loss)(net.init(seed=0), x, y)
        >>> sorted(grads)[0]
        '0.bias'
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f'reduction must be "mean" or "sum", got {reduction!r}; use "sum" where '
            "the loss adds up over samples"
        )
    if not isinstance(micro_batches, int) or micro_batches < 1:
        raise ValueError(
            f"micro_batches must be an int of at least 1, got {micro_batches!r}; 1 "
            "takes the shard as a whole"
        )
    if has_aux and micro_batches > 1:
        raise ValueError(
            f"aux of {micro_batches} micro-batches can't be told apart; return the "
            "loss alone, or add up paddle_chainrules.value_and_grad and average once"
        )
    local = of_one.value_and_grad(fn, argnums, has_aux)
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def share(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        if weight is None:
            return 1.0 if reduction == "sum" else samples(_rest(args, positions), NAME)
        found = weight(*args, **kwargs) if callable(weight) else weight
        return float(found) if isinstance(found, Tensor) and found.size == 1 else found

    def of_shard(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any, float]:
        counted = share(args, kwargs)
        if (failure := unfit_weight(counted)) is not None:
            raise failure
        value, grads = local(*args, **kwargs)
        return value, grads, counted

    def of_parts(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any, float]:
        total, done = None, 0.0
        for part in _parts(args, positions, micro_batches):
            value, grads, counted = of_shard(part, kwargs)
            done += counted
            if total is None:
                total = (value, grads)
            elif reduction == "sum":
                total = _map(lambda a, b: a + b, total, (value, grads))
            else:  # the mean of all until here
                new = counted / done
                total = _map(
                    lambda a, b, new=new: a + (b - a) * new, total, (value, grads)
                )
        assert total is not None
        return *total, done

    @functools.wraps(fn, updated=())
    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value: Any = None
        grads: Any = None
        counted, failure = 1.0, None
        try:
            of = of_shard if micro_batches == 1 else of_parts
            value, grads, counted = of(args, kwargs)
        except Exception as error:  # the others are told
            failure = error
        value, aux = value if has_aux and failure is None else (value, None)
        lines = [_fingerprint(fn), *_arguments(args, kwargs)]
        found, mean = reduced(NAME, (value, grads), lines, counted, reduction, failure)
        return (found, aux) if has_aux else found, mean

    return value_and_grad_fn


NAME = "value_and_grad"


def _rest(args: tuple[Any, ...], positions: Sequence[int]) -> list[Any]:
    asked = {p % len(args) for p in positions}
    return [arg for i, arg in enumerate(args) if i not in asked]


def _parts(
    args: tuple[Any, ...], positions: Sequence[int], n: int
) -> list[tuple[Any, ...]]:
    count = samples(_rest(args, positions), NAME)
    if count < n:
        raise ValueError(
            f"{n} micro-batches need as many samples, got {count}; ask for fewer"
        )
    asked = {p % len(args) for p in positions}
    bounds = [(count * i // n, count * (i + 1) // n) for i in range(n)]
    return [
        tuple(a if i in asked else rows(a, *bound) for i, a in enumerate(args))
        for bound in bounds
    ]


def _map(f: Callable[..., Any], *trees: Any) -> Any:
    def of(*leaves: Any) -> Any:
        return None if leaves[0] is None else f(*leaves)

    return optree.tree_map(of, *trees, none_is_leaf=True)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    given = {"arguments": args, "keywords": kwargs}
    return [describe(name, leaf, samples=True) for name, leaf in named_leaves(given)]


def _fingerprint(fn: Callable[..., Any]) -> str:
    """A loss, as far as ranks can compare theirs: its name and code."""
    plain = inspect.unwrap(fn)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__qualname__", type(plain).__name__)
    return f"the loss {name}" if code is None else f"the loss {name}, {_code_of(code)}"


def _code_of(code: Any) -> str:
    nested = [_code_of(c) for c in code.co_consts if hasattr(c, "co_code")]
    constants = [c for c in code.co_consts if isinstance(c, (int, float, str))]
    parts = repr((code.co_code, code.co_names, constants, nested)).encode()
    return f"code {hashlib.blake2b(parts, digest_size=4).hexdigest()}"
