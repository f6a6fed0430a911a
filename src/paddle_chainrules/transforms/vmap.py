"""Functions of one sample made functions of many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optree
import paddle
from paddle import Tensor

from ..paddle_side.arguments import checked_chunk
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.listener import listener, not_listening
from ..paddle_side.near_names import names_arguments
from ..paddle_side.static_graphs import need_tensors, sot
from ..programs import run_for_samples
from .as_programs.auto_jit import auto_jit
from .as_programs.jitted import Jitted, run_strictly
from .containers.tree import Tree, flatten_tree, is_indexed, nesting

RANDOMNESS = ("error", "different", "same")

Axes = Any
"""An axis, None for what all samples share, or a tree of these that is a prefix."""


@names_arguments
def vmap(
    fn: Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Return a function of many samples at once, from a function of one.

    Like ``torch.func.vmap`` and ``jax.vmap``: ``fn`` is written for one sample, without
    an axis for samples, and its operators run for all of them, each by a rule of its
    own. It composes with ``grad``, ``jvp``, ``jit`` and itself: gradients of each
    sample are ``vmap(grad(loss), (None, 0, 0))(params, x, y)``.

    ``fn`` is captured anew at every call, so that what it closes over is read anew. In
    ``jit`` it is captured once. After some calls it is not captured again as long as
    all that it depends on is seen not to change (:func:`.as_programs.explain.explain`
    tells).

    Args:
        fn: a function from tensors, or trees of them, to such; captured as programs
            are.
        in_axes: for each positional argument the axis of its samples, or None if all
            samples share it; or one for all arguments. In place of a number a tree that
            is a prefix of the argument's. Keyword arguments have them along axis 0.
        out_axes: the axes of the samples in results; None for a result that is the same
            for all.
        chunk_size: how many samples at a time, to bound memory; all if None.
        randomness: ``"error"`` refuses random operators; ``"different"`` draws for each
            sample; ``"same"`` draws once for all.

    Returns:
        The function. An operator that has no rule for batches runs for one sample after
        another, and a :class:`BatchWarning` names it.

    Raises:
        ValueError: axes that are not there, numbers of samples that differ, no samples,
            an unknown randomness.
        TypeError: axes that are no integers, or nested otherwise than the arguments.
        CaptureError: from a call, if fn can't be captured or batched.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import grad, vmap
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> vmap(grad(lambda x: (x**3).sum()))(x).tolist()
        [[3.0, 12.0], [27.0, 48.0], [75.0, 108.0]]
    """
    need_tensors(sot.fallback(True))
    if not isinstance(randomness, str) or randomness not in RANDOMNESS:
        raise ValueError(
            f"randomness must be one of {', '.join(RANDOMNESS)}, got {randomness!r}; "
            "leave it out to refuse random operators"
        )
    checked_chunk(chunk_size)

    @functools.wraps(fn, updated=())
    def batched_fn(*args: Any, **kwargs: Any) -> Any:
        need_tensors(sot.fallback(True))
        leaves, spec = flatten_tree((args, kwargs))
        axes = _axes_of(in_axes, args, kwargs)
        size = _size_of(leaves, axes)

        def run_batched(*leaves: Any) -> Any:
            moved = [
                leaf if axis is None else _with_axis_moved(leaf, axis, 0)
                for leaf, axis in zip(leaves, axes, strict=True)
            ]
            flags = [axis is not None for axis in axes]
            if not size:
                pairs = zip(moved, flags, strict=True)
                moved = [_placeholder_batch(x) if flag else x for x, flag in pairs]
            chunk_args = spec, moved, flags, size or 1, chunk_size, randomness
            return _move_sample_axes(*_run_in_chunks(fn, *chunk_args), out_axes, size)

        if listener() is not None:
            return run_batched(*leaves)
        return run_strictly(
            Jitted(run_batched, strict=True, empty=True), run_batched, *leaves
        )

    return auto_jit(
        fn, batched_fn, "vmap", in_axes, out_axes, chunk_size, randomness, order=0
    )


def stack_params(trees: Sequence[Tree]) -> Tree:
    """Stack parameters of several nets of one kind to an ensemble, for :func:`vmap`.

    Like ``torch.func.stack_module_state``.

    Args:
        trees: dicts, or other trees, of the same names and shapes.

    Returns:
        Such a tree, whose tensors have a first axis with an entry for each net.

    Raises:
        ValueError: there are none, or their names or shapes differ.
        TypeError: they hold something else than tensors.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, stack_params, vmap
        >>> net = FCNet((2, 8, 1))
        >>> ensemble = stack_params([net.init(seed) for seed in range(3)])
        >>> vmap(net, in_axes=(0, None))(ensemble, paddle.ones([5, 2])).shape
        paddle.Size([3, 5, 1])
    """
    flat = [flatten_tree(tree) for tree in trees]
    if not flat:
        raise ValueError(
            "there are no parameters to stack; give those of one net at least"
        )
    first, spec = flat[0]
    for k, (leaves, other) in enumerate(flat):
        if other != spec:
            raise ValueError(
                f"parameters {k} are nested as {nesting(other)}, the first as "
                f"{nesting(spec)}; give those of nets of one kind"
            )
        for leaf, first_leaf in zip(leaves, first, strict=True):
            if not isinstance(leaf, Tensor) or not isinstance(first_leaf, Tensor):
                raise TypeError(
                    f"parameters {k} hold a {type(leaf).__name__}; give a list of the "
                    "parameters of nets, which are trees of tensors"
                )
            if leaf.shape != first_leaf.shape or leaf.dtype != first_leaf.dtype:
                raise ValueError(
                    f"parameters {k} have a tensor of shape {list(leaf.shape)} and "
                    f"dtype {leaf.dtype}, the first {list(first_leaf.shape)} and "
                    f"{first_leaf.dtype}; give those of nets of one kind"
                )
    return spec.unflatten(
        [paddle.stack([*column]) for column in zip(*(f for f, _ in flat), strict=True)]
    )


def _axes_of(
    in_axes: Axes, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[int | None]:
    """Return the axis of each leaf of the arguments."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple):
        if len(in_axes) != len(args):
            raise ValueError(
                f"in_axes has {len(in_axes)} entries for {len(args)} positional "
                "arguments; give one for each, None where all samples share it"
            )
        axes_per_arg: Sequence[Any] = in_axes
    else:
        axes_per_arg = [in_axes] * len(args)
    axes = [
        a
        for axis, arg in zip(axes_per_arg, args, strict=True)
        for a in _axis_of_each_leaf(axis, arg)
    ]
    for key in sorted(kwargs):
        axes += _axis_of_each_leaf(0, kwargs[key])
    leaves, _ = flatten_tree((args, kwargs))
    _refuse_indexed((args, kwargs), axes)
    return [
        _checked_axis(axis, leaf, "in_axes") if isinstance(leaf, Tensor) else None
        for axis, leaf in zip(axes, leaves, strict=True)
    ]


def _refuse_indexed(tree: Tree, axes: Sequence[Any]) -> None:
    """Refuse axes for containers whose leaves share no axis of samples."""
    containers, start = optree.tree_leaves(tree, is_indexed, none_is_leaf=True), 0
    for container in containers:
        stop = start + len(flatten_tree(container)[0])
        if is_indexed(container) and any(axis is not None for axis in axes[start:stop]):
            kind = type(container).__name__
            raise TypeError(
                f"vmap can't take a {kind} apart into samples, and in_axes asks for "
                "it; give in_axes=None for it, and let the function work on the whole"
            )
        start = stop


def _axis_of_each_leaf(axis: Axes, arg: Any, what: str = "in_axes") -> list[Any]:
    """Return the axis of a prefix for each leaf."""
    if axis is None or isinstance(axis, int):
        return [axis] * len(flatten_tree(arg)[0])
    try:
        with not_listening():
            results: list[Any] = optree.broadcast_prefix(axis, arg, none_is_leaf=True)
    except ValueError:
        axis_nesting, arg_nesting = (
            nesting(optree.tree_structure(t, none_is_leaf=True)) for t in (axis, arg)
        )
        raise TypeError(
            f"{what} is nested as {axis_nesting}, and what it is for as {arg_nesting}; "
            "give an integer, None, or a tree that is a prefix of it"
        ) from None
    return results


def _checked_axis(axis: Any, leaf: Tensor, what: str) -> int | None:
    """Check an axis, and return it counted from 0."""
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(
            f"{what} must hold integers and None, got {axis!r}; give the axis along "
            "which the samples are"
        )
    if not -leaf.ndim <= axis < leaf.ndim:
        known = f"from 0 to {leaf.ndim - 1}, or " if leaf.ndim else ""
        raise ValueError(
            f"{what} has axis {axis} for a tensor of shape {list(leaf.shape)}; give "
            f"{known}None where all samples share it"
        )
    return axis % leaf.ndim


def _size_of(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    """Return how many samples there are."""
    sizes = {
        leaf.shape[axis]
        for leaf, axis in zip(leaves, axes, strict=True)
        if axis is not None
    }
    if len(sizes) != 1:
        result = f"{sorted(sizes)} samples" if sizes else "no axis of samples"
        raise ValueError(
            f"the arguments have {result}, and need one number of them; give "
            "in_axes=None for what all samples share"
        )
    return sizes.pop()


def _run_in_chunks(
    fn: Callable[..., Any],
    spec: optree.PyTreeSpec,
    leaves: Sequence[Any],
    flags: Sequence[bool],
    size: int,
    chunk: int | None,
    randomness: str,
) -> tuple[list[Any], optree.PyTreeSpec, list[bool]]:
    """Run in chunks; return result leaves, their nesting, and which have samples."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    has_samples = [
        f for f, leaf in zip(flags, leaves, strict=True) if isinstance(leaf, Tensor)
    ]
    out_nesting: list[Any] = []

    def call_on_sample(sample_tensors: list[Tensor]) -> list[Tensor]:
        outputs_left = iter(sample_tensors)
        sample_leaves = [
            next(outputs_left) if isinstance(leaf, Tensor) else leaf for leaf in leaves
        ]
        args, kwargs = _args_and_kwargs(spec, sample_leaves)
        results, structure = flatten_tree(fn(*args, **kwargs))
        out_nesting[:] = [structure, results]
        return [y for y in results if isinstance(y, Tensor)]

    joined, differs = run_for_samples(
        call_on_sample, tensors, has_samples, chunk or size, randomness
    )
    structure, results = out_nesting
    outputs_left, flags_left = iter(joined), iter(differs)
    outputs = [next(outputs_left) if isinstance(y, Tensor) else y for y in results]
    is_many = [next(flags_left) if isinstance(y, Tensor) else False for y in results]
    return outputs, structure, is_many


def _placeholder_batch(x: Tensor) -> Tensor:
    """Return a batch of one sample, since there is none to learn the results from.

    It is of ones, or a matrix that has an inverse, on the graph of x. Integers are
    zeros, which may be an index.
    """
    if not is_differentiable(x):
        return paddle.zeros([1, *x.shape[1:]], x.dtype)
    values = paddle.ones([1, *x.shape[1:]], x.dtype)
    if x.ndim > 2:
        values = values * paddle.eye(*x.shape[-2:]).astype(x.dtype)
    return values + paddle.sum(x, axis=0, keepdim=True)


def _args_and_kwargs(
    spec: optree.PyTreeSpec, leaves: list[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    call: Any = spec.unflatten(leaves)
    return call


def _move_sample_axes(
    outputs: list[Any],
    structure: optree.PyTreeSpec,
    has_samples: Sequence[bool],
    out_axes: Axes,
    size: int,
) -> Any:
    """Return the results with their samples along ``out_axes``."""
    axes = _axis_of_each_leaf(out_axes, structure.unflatten(outputs), "out_axes")
    results = []
    for y, axis, is_many in zip(outputs, axes, has_samples, strict=True):
        if axis is not None and isinstance(y, _NUMBERS):
            y = paddle.to_tensor(y)  # the same for all samples, as in JAX
        if not isinstance(y, Tensor):
            results.append(y)
        elif axis is None:
            if is_many:
                raise ValueError(
                    f"out_axes is None for a result of shape {list(y.shape[1:])} that "
                    "differs from sample to sample; give the axis where they are to be"
                )
            results.append(y)
        else:
            batched_output = y if is_many else paddle.expand(y, [size or 1, *y.shape])
            batched_output = batched_output if size else batched_output[:0]
            results.append(
                _with_axis_moved(
                    batched_output,
                    0,
                    _checked_axis(axis, batched_output, "out_axes") or 0,
                )
            )
    return structure.unflatten(results)


_NUMBERS = (bool, int, float, complex)


def _with_axis_moved(x: Tensor, start: int, stop: int) -> Tensor:
    return x if start == stop else paddle.moveaxis(x, start, stop)
