"""One case: every derivative that can be asked for, beside differences.

The derivative of a function is compared with central differences of the function,
extrapolated after Richardson to the fourth order, in float64 and element by element.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optree
import paddle
from paddle import Tensor

import paddle_chainrules
from paddle_chainrules import jvp, stateless, value_and_grad, vjp

STEP = 2e-3
TOLERANCE = 1e-6
ROUGH = {"exp: complex", "lp_pool2d", "LPPool2D"}
"""Paddle's own values have errors of 1e-7 here, which differences make larger."""
PACKAGE = str(Path(paddle_chainrules.__file__).parent)

EXACT, REFUSED, WRONG, CRASHED = "exact", "refused", "wrong", "crashed"


class Verdict(NamedTuple):
    """What came of one question."""

    asked: str
    verdict: str
    why: str = ""


Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def leaves_of(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree, none_is_leaf=True)


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and (
        value.is_floating_point() or value.is_complex()
    )


def floats_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in leaves_of(tree) if is_float(leaf)]


class Differences:
    """Derivatives of a function of tensors by central differences.

    Args:
        function: of a list of tensors; its floating outputs are looked at.
        tensors: where.
        places: which of them are moved.
    """

    def __init__(
        self, function: Function, tensors: Sequence[Any], places: Sequence[int]
    ) -> None:
        self._function = function
        self._arrays = [t.numpy() if isinstance(t, Tensor) else t for t in tensors]
        self._tensors = [
            paddle.to_tensor(value) if isinstance(value, np.ndarray) else value
            for value in self._arrays
        ]
        self._places = places
        self.outputs = self._at({})

    def _at(self, moved: dict[int, Array]) -> list[Array]:
        with paddle.no_grad():
            given = [  # copies, as the function may write into them
                value.clone() if isinstance(value, Tensor) else value
                for value in self._tensors
            ]
            for i, array in moved.items():
                given[i] = paddle.to_tensor(array)
            return [y.numpy() for y in floats_of(self._function(given))]

    def along(self, directions: dict[int, Array]) -> tuple[list[Array], float]:
        """The derivative along directions, and how far from it coarser steps lead."""

        def central(step: float) -> list[Array]:
            plus, minus = (
                self._at(
                    {i: self._arrays[i] + s * step * d for i, d in directions.items()}
                )
                for s in (1, -1)
            )
            return [(a - b) / (2 * step) for a, b in zip(plus, minus, strict=True)]

        pairs = zip(central(STEP), central(STEP / 2), strict=True)
        coarse_fine = [*pairs]
        found = [(4 * fine - coarse) / 3 for coarse, fine in coarse_fine]
        off = max((np.abs(a - b).max() for a, b in coarse_fine if a.size), default=0.0)
        return found, float(off)

    def gradients(self, cotangents: Sequence[Array | None]) -> dict[int, Array]:
        """Of ``Re <cotangents, outputs>``, by every element of what is moved."""
        result = {}
        for i in self._places:
            value = self._arrays[i]
            found = np.zeros_like(value)
            units = (1.0, 1j) if np.iscomplexobj(value) else (1.0,)
            for index in np.ndindex(value.shape):
                for unit in units:
                    direction = np.zeros_like(value)
                    direction[index] = unit
                    slopes, _ = self.along({i: direction})
                    found[index] += unit * sum(
                        np.real(np.sum(np.conj(c) * s))
                        for c, s in zip(cotangents, slopes, strict=True)
                        if c is not None
                    )
            result[i] = found
        return result


def apart(found: Any, expected: Array, scale: float, rough: bool) -> str:
    """How a derivative differs from what is expected; nothing where it does not."""
    tolerance = 1e-3 if rough else TOLERANCE
    size = max(float(np.abs(expected).max(initial=0.0)), scale * 1e-3, 1e-6)
    if found is None:
        if float(np.abs(expected).max(initial=0.0)) <= tolerance * size:
            return ""
        return f"None, but the slope is up to {np.abs(expected).max():.3g}"
    array = found.numpy()
    if array.shape != expected.shape:
        return f"of shape {array.shape}, not {expected.shape}"
    if not array.size:
        return ""
    error = np.abs(array - expected)
    worst = float(error.max()) if np.isfinite(array).all() else np.inf
    if worst <= tolerance * size:
        return ""
    return f"off by {worst:.3g} of {size:.3g}"


class Question:
    """A series of questions about one function, each given its verdict.

    Args:
        begin: told each question before it is asked, in case the process ends in it.
    """

    def __init__(self, begin: Callable[[str], None], rough: bool = False) -> None:
        self._begin = begin
        self._rough = rough
        self.verdicts: list[Verdict] = []

    def ask(
        self,
        asked: str,
        derivative: Callable[[], list[tuple[Any, Array]]],
        kept: Sequence[Any],
    ) -> None:
        """Whether pairs of found and expected agree, and what is kept is as before."""
        self._begin(asked)
        before = snapshot(kept)
        try:
            pairs = derivative()
        except Exception as error:
            self.verdicts.append(Verdict(asked, *judged(error)))
        else:
            scale = max(
                (float(np.abs(e).max(initial=0)) for _, e in pairs), default=0.0
            )
            faults = [why for f, e in pairs if (why := apart(f, e, scale, self._rough))]
            verdict = WRONG if faults else EXACT
            self.verdicts.append(Verdict(asked, verdict, "; ".join(faults)))
        if not paddle.is_grad_enabled():
            paddle.set_grad_enabled(True)
            self.verdicts.append(Verdict(asked, "impure", "gradients are left off"))
        if snapshot(kept) != before:
            self.verdicts.append(Verdict(asked, "impure", "an input has changed"))


def judged(error: Exception) -> tuple[str, str]:
    """Refused, where this package says so in a sentence; else as good as a crash."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else traceback.FrameSummary("", 0, "")
    why = f"{type(error).__name__}: {str(error).strip()}"
    typed = isinstance(error, NotImplementedError | TypeError | ValueError)
    said = (last.line or "").startswith("raise ")
    own = last.filename.startswith(PACKAGE) and said
    if (typed and own) or "modified by an inplace operation" in why:
        return REFUSED, why
    return CRASHED, why[-400:]


def snapshot(values: Sequence[Any]) -> list[Any]:
    """Bytes and flags of tensors."""
    return [
        (v.detach().numpy().tobytes(), v.stop_gradient, v.grad is None)
        for v in values
        if isinstance(v, Tensor)
    ]


def random_like(arrays: Sequence[Array], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)

    def one(array: Array) -> Array:
        values = rng.uniform(0.4, 1.6, array.shape) * rng.choice([-1, 1], array.shape)
        if np.iscomplexobj(array):
            values = values + 1j * rng.uniform(-1, 1, array.shape)
        return values.astype(array.dtype)

    return [one(array) for array in arrays]


def spread(tree: Any, row: Iterator[Any]) -> Any:
    """A cotangent nested as an output, of a row for its floats."""
    return optree.tree_map(
        lambda leaf: next(row) if is_float(leaf) else None, tree, none_is_leaf=True
    )


def tensors_of(arrays: Sequence[Array | None]) -> Iterator[Tensor | None]:
    return iter([None if a is None else paddle.to_tensor(a) for a in arrays])


def of_function(
    name: str,
    function: Function,
    arrays: Sequence[Array],
    begin: Callable[[str], None],
) -> list[Verdict]:
    """All questions about a function of tensors.

    Every floating argument together, each alone while the others are closed over, each
    by ``wrt``; by vjp and by jvp; every output together and each alone.
    """
    begin("the function itself")
    tensors = [paddle.to_tensor(array) for array in arrays]
    places = [i for i, t in enumerate(tensors) if is_float(t)]
    exact = Differences(lambda given: function(*given), tensors, places)
    cotangents = random_like(exact.outputs, 1)
    questions = Question(begin, name in ROUGH)
    expected = exact.gradients(cotangents)

    def partly(which: Sequence[int]) -> tuple[Function, list[Tensor]]:
        def part(*given: Tensor) -> Any:
            full = [*tensors]
            for i, value in zip(which, given, strict=True):
                full[i] = value
            return function(*full)

        return part, [tensors[i] for i in which]

    def by_vjp(
        which: Sequence[int],
        seeds: Sequence[Array | None] = cotangents,
        wrt: Sequence[int] | None = None,
        slopes: dict[int, Array] = expected,
    ) -> list[tuple[Any, Array]]:
        part, primals = partly(which)
        y, back = vjp(part, *primals)
        grads = back(spread(y, tensors_of(seeds)), wrt=wrt)
        rows = range(len(which)) if wrt is None else wrt
        outputs = floats_of(y)
        values = [*zip(outputs, exact.outputs, strict=True)]
        return [*values, *((grads[k], slopes[which[k]]) for k in rows)]

    def by_jvp(which: Sequence[int]) -> list[tuple[Any, Array]]:
        part, primals = partly(which)
        directions = random_like([exact._arrays[i] for i in which], 2)
        slopes, _ = exact.along(dict(zip(which, directions, strict=True)))
        tangents = tuple(map(paddle.to_tensor, directions))
        y, dy = jvp(part, tuple(primals), tangents)
        found = [
            d
            for leaf, d in zip(leaves_of(y), leaves_of(dy), strict=True)
            if is_float(leaf)
        ]
        return [*zip(found, slopes, strict=True)]

    questions.ask("vjp", lambda: by_vjp(places), tensors)
    questions.ask("jvp", lambda: by_jvp(places), tensors)
    if len(places) > 1:
        for k, i in enumerate(places):
            questions.ask(
                f"vjp by argument {i} alone", lambda i=i: by_vjp([i]), tensors
            )
            questions.ask(
                f"jvp by argument {i} alone", lambda i=i: by_jvp([i]), tensors
            )
            questions.ask(
                f"pullback, wrt=[{k}]", lambda k=k: by_vjp(places, wrt=[k]), tensors
            )
    if len(cotangents) > 1:
        for k in range(len(cotangents)):
            seeds = [c if j == k else None for j, c in enumerate(cotangents)]
            slopes = exact.gradients(seeds)
            questions.ask(
                f"vjp of output {k} alone",
                lambda seeds=seeds, slopes=slopes: by_vjp(
                    places, seeds=seeds, slopes=slopes
                ),
                tensors,
            )
    return questions.verdicts


class Native:
    """A layer called as Paddle's users do, with other values in its tensors."""

    def __init__(self, case: Any, names: Sequence[str]) -> None:
        self._case = case
        self._names = names
        self._fresh()

    def _fresh(self) -> None:
        self.layer = made(self._case)
        self._state = tensors_by_name(self.layer)
        self._values = {name: t.numpy() for name, t in self._state.items()}

    def __call__(self, given: Sequence[Any]) -> Any:
        """On values of the named parameters, and arguments."""
        now = tensors_by_name(self.layer)
        if any(now.get(name) is not t for name, t in self._state.items()):
            self._fresh()
        moved = dict(zip(self._names, given, strict=False))
        with paddle.no_grad():
            for name, tensor in self._state.items():
                if tensor.size and not name.endswith("dropout_state"):
                    tensor.set_value(moved.get(name, self._values[name]))
        if self._case.seeded:
            paddle.seed(7)
        return self.layer(*given[len(self._names) :])


def made(case: Any) -> paddle.nn.Layer:
    """The case's layer, the same every time."""
    paddle.seed(5)
    layer = case.make()
    (layer.train if case.training else layer.eval)()
    for name, p in layer.named_parameters():
        if case.frozen(name):
            p.stop_gradient = True
    return layer


def tensors_by_name(layer: paddle.nn.Layer) -> dict[str, Tensor]:
    named = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    return {name: t for name, t in named.items() if t is not None}


def by_paddle(
    case: Any, names: Sequence[str], args: Sequence[Any], cotangents: Sequence[Array]
) -> dict[int, Array]:
    """Gradients of the layer itself, by Paddle."""
    layer = made(case)
    named = tensors_by_name(layer)
    leaves = [*(named[name] for name in names), *(arg.clone() for arg in args)]

    for leaf in leaves:
        leaf.stop_gradient = False
    outputs = floats_of(layer(*leaves[len(names) :]))
    seeds = [paddle.to_tensor(c) for c in cotangents]
    grads = paddle.grad(outputs, leaves, seeds, allow_unused=True)
    return {
        i: paddle.zeros_like(leaf).numpy() if g is None else g.numpy()
        for i, (leaf, g) in enumerate(zip(leaves, grads, strict=True))
    }


def of_layer(
    name: str, case: Any, arrays: Sequence[Array], begin: Callable[[str], None]
) -> list[Verdict]:
    """All questions about a layer: its value, and gradients by weights and inputs."""
    begin("the layer itself")
    questions = Question(begin, name in ROUGH)
    layer = made(case)
    own = list(tensors_by_name(layer).values())
    try:
        net, params, _ = stateless(layer)
    except Exception as error:
        return [Verdict("stateless", *judged(error))]
    names = [*params]
    args = [paddle.to_tensor(array) for array in arrays]
    tensors = [*params.values(), *args]
    places = [i for i, t in enumerate(tensors) if is_float(t)]
    native = Native(case, names)
    exact = Differences(native, tensors, places)
    cotangents = random_like(exact.outputs, 1)
    if case.constant_writes:
        expected = by_paddle(case, names, args, cotangents)
    else:
        expected = exact.gradients(cotangents)
    count = len(names)
    options = {"seed": 7} if case.seeded else {}
    kept = [*tensors, *net.buffers.values(), *own]

    def value() -> list[tuple[Any, Array]]:
        outputs = floats_of(net.forward(params, *args, **options))
        return [*zip(outputs, exact.outputs, strict=True)]

    def pairs(by_name: Any, by_arg: Sequence[Any]) -> list[tuple[Any, Array]]:
        found = [by_name[name] for name in names] if by_name else []
        rows = [(g, expected[i]) for i, g in enumerate(found) if i in expected]
        rows += [
            (g, expected[count + k])
            for k, g in enumerate(by_arg)
            if count + k in expected
        ]
        return rows

    def pullback() -> list[tuple[Any, Array]]:
        y, back = net.pullback(params, *args, **options)
        grads = pairs(*back(spread(y, tensors_of(cotangents))))
        return [*zip(floats_of(y), exact.outputs, strict=True), *grads]

    def part(wrt: Any) -> list[tuple[Any, Array]]:
        y, back = net.pullback(params, *args, **options)
        by_name, by_arg = back(spread(y, tensors_of(cotangents)), wrt=wrt)
        if isinstance(wrt, str):
            return [(by_name[wrt], expected[names.index(wrt)])]
        return [(by_arg[wrt], expected[count + wrt])]

    def by_vjp(which: str) -> list[tuple[Any, Array]]:
        if which == "inputs":
            y, back = vjp(lambda *a: net.forward(params, *a, **options), *args)
            return pairs(None, back(spread(y, tensors_of(cotangents))))
        y, back = vjp(lambda p: net.forward(p, *args, **options), params)
        return pairs(back(spread(y, tensors_of(cotangents)))[0], [])

    def by_loss() -> list[tuple[Any, Array]]:
        def loss(p: Any) -> Any:
            outputs = floats_of(net.forward(p, *args, **options))
            seeds = tensors_of(cotangents)
            rows = zip(outputs, seeds, strict=True)
            return sum(((y * s).sum() for y, s in rows), paddle.zeros([]))

        return pairs(value_and_grad(loss)(params)[1], [])

    def by_jvp() -> list[tuple[Any, Array]]:
        directions = random_like([exact._arrays[i] for i in places], 2)
        slopes, _ = exact.along(dict(zip(places, directions, strict=True)))
        along = dict(zip(places, map(paddle.to_tensor, directions), strict=True))
        tangents = (
            {name: along[i] for i, name in enumerate(names)},
            *(along.get(count + k) for k in range(len(args))),
        )
        y, dy = jvp(
            lambda p, *a: net.forward(p, *a, **options), (params, *args), tangents
        )
        rows = zip(leaves_of(y), leaves_of(dy), strict=True)
        found = [d for leaf, d in rows if is_float(leaf)]
        return [*zip(found, slopes, strict=True)]

    questions.ask("forward", value, kept)
    questions.ask("pullback", pullback, kept)
    questions.ask("forward again", value, kept)
    questions.ask("pullback again", pullback, kept)
    floats = [i for i in places if i >= count]
    if names and exact.outputs:
        questions.ask("pullback, wrt one name", lambda: part(names[0]), kept)
        questions.ask("vjp by the parameters", lambda: by_vjp("params"), kept)
        questions.ask("value_and_grad", by_loss, kept)
    if floats:
        questions.ask("pullback, wrt one input", lambda: part(floats[0] - count), kept)
        questions.ask("vjp by the inputs", lambda: by_vjp("inputs"), kept)
    if not case.constant_writes:
        questions.ask("jvp", by_jvp, kept)
    return questions.verdicts
