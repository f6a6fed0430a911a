"""Random programs, beside native Paddle, central differences and loops.

    python tests/random_programs.py 0:500      the programs of these seeds
    python tests/random_programs.py 17 --show  one of them, printed

A program is a function of two tensors, a line an operator. Each line has run natively
when it was drawn, so every program is valid. A failing one is printed without the lines
that do not matter.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import multiprocessing.connection
import random
import sys
import warnings
from collections import Counter

import numpy as np
import paddle
import paddle.nn.functional as F

import paddle_chainrules as pc

SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 9, 13, 17)
MAX_ELEMENTS, MAX_AXES = 400, 4
CALLS = (1, 5, 40)
TOLERANCE = {"float64": 1e-8, "float32": 2e-3}
STEP = 1e-5
LONGEST = 120
"""Seconds after which a program counts as one that hangs."""

REFUSALS = (pc.CaptureError, NotImplementedError)
"""Errors by which a transform may refuse, which say what to do."""


# Lines. Each function returns the source of one, for tensors of these names and shapes.


def _number(rng):
    return rng.choice((0.5, -0.7, 1.3, 2.0, -1.0, 0.3))


def _axis(rng, shape):
    axis = rng.randrange(len(shape))
    return axis - len(shape) if rng.random() < 0.3 else axis


def _piece(rng, size):
    """One slice of an axis: empty, reversed and out of range ones among them."""
    ends = (None, 0, 1, 2, -1, -2, -7, 30, -30, size, size // 2)
    start, stop = rng.choice(ends), rng.choice(ends)
    step = rng.choice((None, None, 1, 2, 3, 30))
    return ":".join("" if p is None else str(p) for p in (start, stop, step))


def _index(rng, shape, lists=True):
    """An index in brackets.

    Args:
        lists: whether lists of numbers may be in it. Paddle fails with them in tensors
            that have gaps, or beside new axes (docs/paddle-notes.md).
    """
    pieces, axes = [], 0
    while axes < len(shape):
        kind = rng.random()
        if kind < 0.1 and "[" not in "".join(pieces):
            pieces.append("None")
            continue
        if kind < 0.2:
            pieces.append("...")
            break
        if kind < 0.3 and shape[axes]:
            pieces.append(str(rng.randrange(-shape[axes], shape[axes])))
        elif kind < 0.4 and shape[axes] and lists and "None" not in pieces:
            some = [rng.randrange(shape[axes]) for _ in range(rng.randint(1, 3))]
            pieces.append(str(some))
        else:
            pieces.append(_piece(rng, shape[axes]))
        axes += 1
        if rng.random() < 0.2:
            break
    return ", ".join(pieces)


def _split_shape(rng, shape):
    """Another shape of as many elements."""
    size = math.prod(shape)
    first = rng.choice([d for d in range(1, 20) if size % d == 0] or [1])
    return rng.choice(([-1], [first, size // first], [1, size], [first, -1, 1]))


ELEMENTWISE = (
    *(
        "paddle.sin({a})",
        "paddle.tanh({a})",
        "F.sigmoid({a})",
        "paddle.exp(-{a} * {a})",
    ),
    *(
        "F.relu({a})",
        "F.gelu({a})",
        "F.silu({a})",
        "F.softplus({a})",
        "paddle.abs({a})",
    ),
    *("{a} * {n}", "{n} - {a}", "{a} / (1.0 + {a} * {a})", "{a} ** 2", "-{a}"),
    *("paddle.sqrt({a} * {a} + 0.5)", "paddle.log({a} * {a} + 1.0)", "paddle.cos({a})"),
    *("paddle.atan({a})", "F.leaky_relu({a}, 0.2)", "paddle.clip({a}, -1.1, 1.2)"),
    *("F.elu({a}, 0.7)", "F.hardswish({a})", "paddle.scale({a}, 0.3, 0.7)"),
    *("F.softsign({a})", "paddle.erf({a})", "paddle.square({a})", "F.mish({a})"),
    *("paddle.rsqrt({a}.abs() + 0.4)", "paddle.sign({a}) * {a}", "F.tanhshrink({a})"),
)
SAME = (
    *("{a}.contiguous()", "{a}.clone()", "paddle.assign({a})", "{a}.astype({a}.dtype)"),
    *("F.dropout({a}, 0.5, training=False)", "paddle.nn.Identity()({a})", "{a}[:]"),
    *("{a}.expand({a}.shape)", "{a}[...]", "{a}.reshape({a}.shape)", "{a}.cpu()"),
    *("{a}.to({a}.dtype)", "paddle.atleast_1d({a})", "paddle.concat([{a}])"),
    *("{a}.flip([])", "paddle.add_n([{a}])", "{a}.squeeze()"),
    *("paddle.broadcast_to({a}, {a}.shape)", "paddle.einsum('...->...', {a})"),
    *("{a}.transpose([*range({a}.ndim)])", "{a}.tile([1])", "paddle.real({a})"),
)
BINARY = (
    *("{a} + {b}", "{a} * {b}", "{a} - {b}", "{a} / (2.0 + paddle.cos({b}))"),
    *("paddle.maximum({a}, {b})", "paddle.where({a} > {b}, {a}, {b} * 2.0)"),
    *(
        "paddle.minimum({a}, {b})",
        "paddle.lerp({a}, {b}, 0.3)",
        "paddle.atan2({a}, {b})",
    ),
    *("paddle.hypot({a}, {b})", "paddle.logaddexp({a}, {b})"),
)
REDUCTIONS = ("sum", "mean", "max", "min", "logsumexp", "prod", "std", "norm", "amax")
ALONG = (
    *("F.softmax({a}, axis={k})", "paddle.cumsum({a}, axis={k})", "{a}.flip([{k}])"),
    *(
        "paddle.sort({a}, axis={k})",
        "F.log_softmax({a}.tanh(), axis={k})",
        "{a}.roll(2, {k})",
    ),
    *("paddle.cumprod({a}, dim={k})", "paddle.logcumsumexp({a}, axis={k})"),
    *("F.normalize({a} + 2.0, axis={k})", "paddle.topk({a}, 1, axis={k})[0]"),
    *(
        "paddle.concat([{a}, {a} * 2.0], axis={k})",
        "paddle.stack([{a}, {a}.sin()], {k})",
    ),
    *("paddle.cummax({a}, axis={k})[0]", "paddle.diff({a}, axis={k})"),
    *("paddle.index_select({a}, paddle.to_tensor([0, 0]), {k})", "{a}.unsqueeze({k})"),
    *("{a}.repeat_interleave(2, {k})", "paddle.median({a}, axis={k})"),
    *("paddle.split({a}, 1, {k})[0]", "paddle.unbind({a}, {k})[0]", "{a}.squeeze({k})"),
    *("paddle.take_along_axis({a}, paddle.argsort({a}, {k}), {k})",),
    *("paddle.argmax({a}, {k}).astype({a}.dtype)", "paddle.chunk({a}, 1, {k})[0]"),
    *("{a}.unfold({k}, min(2, {a}.shape[{k}]), 1)", "{a}.unfold({k}, 1, 2)"),
    "paddle.as_strided({a}.flatten().clone(), [2, min(2, {a}.size)], [0, 1])",
    *("F.glu({a}, axis={k})", "paddle.kthvalue({a}, 1, axis={k})[0]"),
)
WRITES = (
    *("{v}.add_({b})", "{v}.scale_(0.7)", "{v}[{i}] = {n}", "{v}.tanh_()"),
    *("{v}[{i}] = {v}[{i}] * 2.0", "{v}.multiply_({b})", "{v}[{i}].add_({s})"),
    *("{v}.fill_({n})", "{v}.clip_(-0.9, 0.8)", "{v}.subtract_({b}.sum())"),
    *("{v}[{i}].scale_(0.5)", "{v}[{i}] += {n}"),
)
MATRICES = (
    *("paddle.matmul({a}, {b}, transpose_y=True)", "paddle.matmul({a}, {a}.T)"),
    *("{a}.mT", "paddle.tril({a})", "paddle.trace({a})", "paddle.diagonal({a})"),
    *("F.linear({a}, {b}.mT)", "paddle.outer({a}[:, 0], {b}[:, 0])"),
    *("paddle.einsum('ij,kj->ik', {a}, {b})", "paddle.rot90({a})", "{a}.triu(1)"),
    *("F.layer_norm({a}, {a}.shape[-1:])", "paddle.linalg.vector_norm({a}, axis=1)"),
    *("F.conv1d({a}[None], {b}[:1, None].expand([2, {a}.shape[0], {b}.shape[1]]))[0]",),
    *("F.avg_pool1d({a}[None], 2)[0]", "F.max_pool1d({a}[None], 2, 1)[0]"),
    *("F.pad({a}[None, None], [1, 0, 2, 1], value={n})[0, 0]", "{a}.T"),
    *("F.interpolate({a}[None, None], scale_factor=1.6, mode='bilinear')[0, 0]",),
    *(
        "F.unfold({a}[None, None], 2)[0]",
        "F.conv2d({a}[None, None], {b}[None, None, :2, :2], padding=1)[0, 0]",
    ),
    *("paddle.kron({a}, {b})", "paddle.cdist({a}, {b} + 3.0)"),
)
CONTROL = (
    "pc.cond({a}.abs().sum() > 3.7, lambda t: t.sin(), lambda t: t * 2.0, {a})",
    "pc.scan(lambda c, t: (c * 0.5 + t.sin(), c * t), {a}[0] * 0.0, {a})[0]",
    "pc.scan(lambda c, t: (c * 0.5 + t, c + t), {a}[0], {a})[1]",
    "pc.fori_loop(0, 3, lambda i, c: c * 0.5 + 0.1, {a})",
    "pc.vmap(lambda t: (t * t).cumsum(-1))({a})",
)


KINDS = {
    "elementwise": 5,
    "same": 3,
    "binary": 4,
    "reduction": 2,
    "index": 4,
    "shape": 3,
    "along": 4,
    "write": 4,
    "view": 2,
    "matrix": 3,
    "control": 1,
    "detach": 0.3,
}
"""Kinds of lines by how often they are drawn."""


def _lines(rng, names, tensors, new):
    """The source of one line, or of several, that set a new variable."""
    kind = rng.choices([*KINDS], [*KINDS.values()])[0]
    a, b = rng.choice(names), rng.choice(names)
    shape, n = tuple(tensors[a].shape), _number(rng)
    whole = tensors[a].is_contiguous() and 0 not in shape

    def said(rows, **more):
        return f"{new} = " + rng.choice(rows).format(a=a, b=b, n=n, **more)

    if kind == "elementwise":
        return [said(ELEMENTWISE)]
    if kind == "same":
        return [said(SAME)]
    if kind == "binary":
        return [said(BINARY)]
    if kind == "reduction":
        axis = rng.choice((None, _axis(rng, shape) if shape else None))
        # Of nothing, Paddle's kernels give what was in memory.
        names = REDUCTIONS if math.prod(shape) else REDUCTIONS[:2]
        name, keepdim = rng.choice(names), rng.random() < 0.4
        if name in ("norm", "std"):  # which have no derivatives at zero
            found = getattr(paddle, name)(tensors[a], axis=axis)
            name = name if bool((found > 1e-3).all()) else "sum"
        return [f"{new} = paddle.{name}({a}, axis={axis}, keepdim={keepdim})"]
    if kind == "index":
        return [f"{new} = {a}[{_index(rng, shape, whole)}]"]
    if kind == "shape":
        order = rng.sample(range(len(shape)), len(shape))
        rows = (
            f"{a}.reshape({_split_shape(rng, shape)})",
            f"{a}.transpose({order})",
            f"{a}.flatten()",
            f"{a}.expand([2, *{a}.shape])",
            f"{a}.tile([2] * {a}.ndim)",
            f"paddle.concat([{a}.flatten(), {b}.flatten()])",
        )
        return [f"{new} = {rng.choice(rows)}"]
    if kind == "along" and shape:
        return [said(ALONG, k=_axis(rng, shape))]
    if kind == "write":
        index = _index(rng, shape, whole)
        line = rng.choice(WRITES).format(v=new, b=b, n=n, i=index, s=f"{b}.sum()")
        return [f"{new} = {a}{rng.choice(('.clone()', ' * 1.0', ' + 0.0'))}", line]
    if kind == "view" and math.prod(shape) and shape and rng.random() < 0.3:
        # The whole is written, and views of views of it hold what was written.
        views = "{x}.reshape([-1])", "{x}.T", "{x}.unbind(0)[-1]", "{x}[-1:]", "{x}[0]"
        views += "paddle.slice({x}, [0], [0], [1])", "{x}.unsqueeze(0)", "{x}.flatten()"
        first, second = (rng.choice(views) for _ in range(2))
        index = _index(rng, shape, False)
        writes = "{v}.multiply_({v})", "{v}.scale_(0.5)", "{v}.sin_()", "{v}[{i}] = 0.3"
        return [
            f"{new} = {a} * 1.0",
            f"{new}w = {first.format(x=new)}",
            f"{new}w = {second.format(x=f'{new}w')} if {new}w.shape else {new}w",
            rng.choice(writes).format(v=new, i=index),
            f"{new} = {new} * 0.7 + {new}w.sum()",
        ]
    if kind == "view":
        view = f"{new}w"
        index = _index(rng, shape, False)
        take = rng.choice((f"{new}[{index}]", f"{new}.reshape([-1])", f"{new}.T"))
        line = rng.choice(("{v}.add_({s})", "{v}.scale_(0.5)", "{v}.sin_()"))
        number = rng.choice((n, f"paddle.full([], {n}, {b}.dtype)"))
        if rng.random() < 0.4:  # read by a list or a tensor, which must not cut it off
            places = rng.choice(("[0]", "paddle.to_tensor([0, 0])"))
            return [
                f"{new} = {a} * 1.0",
                f"{view} = {take}",
                f"{new}r = ({view}[{places}] if min({view}.shape, default=0) else {view})",
                line.format(v=view, s=number),
                f"{new} = {new} + {new}r.sum()",
            ]
        return [
            f"{new} = {a} * 1.0",
            f"{view} = {take}",
            line.format(v=view, s=number),
            *([f"{new} = {new} + {view}.sum()"] if rng.random() < 0.5 else []),
        ]
    if kind == "matrix" and len(shape) > 1 and tensors[a].size and tensors[b].size:
        return [said(MATRICES)]
    if kind == "control":
        return [said(CONTROL)]
    if kind == "detach":
        return [f"{new} = {a}.detach() * 1.0"]
    return [said(ELEMENTWISE)]


class Program:
    """A function of two tensors, as source.

    Args:
        lines: each a group of lines that stay together, beside the variable it sets.
        outputs: the names of the results.
    """

    def __init__(self, seed, inputs, lines, outputs):
        self.seed, self.inputs, self.lines = seed, inputs, lines
        self.outputs = outputs

    @property
    def source(self):
        body = [line for group, _ in self.lines for line in group]
        body.append(f"return ({', '.join(self.outputs)},)")
        return "def program(x, y):\n" + "".join(f"    {line}\n" for line in body)

    def function(self):
        space = {"paddle": paddle, "F": F, "pc": pc}
        exec(compile(self.source, f"<random {self.seed}>", "exec"), space)
        return space["program"]

    def without(self, k):
        rest = [each for i, each in enumerate(self.lines) if i != k]
        gone = self.lines[k][1]
        outputs = [name for name in self.outputs if name != gone]
        outputs = outputs or [rest[-1][1] if rest else "x"]
        return Program(self.seed, self.inputs, rest, outputs)

    def shown(self):
        given = ", ".join(
            f"{name}: {dtype_of(t)}{t.shape}{'' if t.is_contiguous() else ' strided'}"
            for name, t in zip("xy", self.inputs, strict=True)
        )
        return f"# seed {self.seed}; {given}\n{self.source}"


def dtype_of(tensor):
    return str(tensor.dtype).removeprefix("paddle.")


def _tensor(rng, numbers, dtype):
    shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
    if rng.random() < 0.8:  # little is to be learnt of nothing
        shape = [size or 4 for size in shape]
    if rng.random() < 0.25 and len(shape) > 1:  # strided
        found = numbers.standard_normal(shape[::-1])
        return paddle.to_tensor(found, dtype).transpose([*range(len(shape))][::-1])
    return paddle.to_tensor(numbers.standard_normal(shape), dtype)


def _is_plain(found, dtype):
    """Whether a result is a small tensor of this dtype with numbers of a usual size."""
    is_small = (
        isinstance(found, paddle.Tensor)
        and found.ndim <= MAX_AXES
        and min(found.shape, default=1) >= 0
        and found.size <= MAX_ELEMENTS
        and dtype_of(found) == dtype
    )
    return is_small and bool((np.abs(found.numpy()) < 1e3).all())


def drawn(seed):
    """The program of a seed."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    dtype = "float64" if rng.random() < 0.75 else "float32"
    x = _tensor(rng, numbers, dtype)
    if rng.random() < 0.6:  # alike, so that they fit
        y = paddle.to_tensor(numbers.standard_normal(x.shape), dtype)
    else:
        y = _tensor(rng, numbers, dtype)
    space = {"paddle": paddle, "F": F, "pc": pc, "x": x, "y": y}
    names, lines = ["x", "y"], []
    wanted, tries = rng.randint(3, 14), 0
    while len(lines) < wanted and tries < 200:
        tries += 1
        new = f"v{len(lines)}"
        recent = [*names[-4:], *names[:2]]
        group = _lines(rng, recent, space, new)
        trial = {**space}
        try:
            for line in group:
                exec(line, trial)
        except Exception:
            continue
        if not _is_plain(trial[new], dtype):
            continue
        if "conv" in group[0] and not trial[new].size:  # Paddle has no gradient
            continue
        space = trial
        names.append(new)
        lines.append((group, new))
    outputs = [*dict.fromkeys([names[-1], rng.choice(names)])]
    return Program(seed, (x, y), lines, outputs)


# Comparisons.


class Wrong(Exception):
    """A result is not what it should be."""


def _numbers(tensors):
    return [np.asarray(t.numpy(), "float64") for t in tensors]


def _check(what, found, expected, tolerance):
    """Compare lists of tensors or arrays, in shape and in value."""
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        a, b = (t.numpy() if isinstance(t, paddle.Tensor) else t for t in (a, b))
        b = b.astype("float64")
        if tuple(a.shape) != tuple(b.shape):
            raise Wrong(f"{what}: result {k} has shape {a.shape}, not {b.shape}")
        scale = 1.0 + float(np.abs(b).max(initial=0.0))
        apart = float(np.abs(a.astype("float64") - b).max(initial=0.0))
        if not apart <= tolerance * scale:
            raise Wrong(f"{what}: result {k} is {apart:.3g} off, of {scale:.3g}")


def _loss_of(fn, cotangents):
    def loss(x, y):
        pairs = zip(fn(x, y), cotangents, strict=True)
        return sum(((out * c).sum() for out, c in pairs), paddle.zeros([], x.dtype))

    return loss


def _facts(x):
    """Flags and whole numbers of a tensor, and numbers of Python's."""
    found = [x > 0.1, (x > 0).any(), (x < 5.0).astype("int64").sum(), x.ndim, 0.5]
    if x.size:
        whole = found[0].astype("int64")  # of x itself, ties depend on rounding
        found += [whole.argmax(), paddle.argmin(whole, keepdim=True)]
        found += [paddle.isnan(x).all(), whole.sum(-1) if x.ndim else whole]
    return found


def _slope(fn, at, along, h=STEP):
    """A derivative along directions by central differences; None where it is rough."""

    def values(h):
        ahead = fn(*(x + h * v for x, v in zip(at, along, strict=True)))
        back = fn(*(x - h * v for x, v in zip(at, along, strict=True)))
        pairs = zip(_numbers(ahead), _numbers(back), strict=True)
        return [(a - b) / (2 * h) for a, b in pairs]

    coarse, fine = values(2 * h), values(h)
    for a, b in zip(coarse, fine, strict=True):
        scale = 1.0 + float(np.abs(b).max(initial=0.0))
        if not float(np.abs(a - b).max(initial=0.0)) <= 1e-6 * scale:
            return None
    return fine


class Verdicts:
    """Counts of what was asked of one program, and of what was refused."""

    def __init__(self):
        self.asked, self.refused = Counter(), []

    @contextlib.contextmanager
    def of(self, question):
        try:
            yield
            self.asked[question] += 1
        except REFUSALS as error:
            self.refused.append((question, str(error)))
        except Wrong:
            raise
        except Exception as error:
            text = f"{question}: {type(error).__name__}: {error}"
            raise Wrong(text[:600]) from error


def judged(program):
    """Ask all questions of a program.

    Raises:
        Wrong: an answer is wrong, or an error is no refusal.
    """
    fn, (x, y) = program.function(), program.inputs
    dtype = dtype_of(x)
    tolerance, verdicts = TOLERANCE[dtype], Verdicts()
    numbers = np.random.default_rng(program.seed + 1)

    def like(t):
        return paddle.to_tensor(numbers.standard_normal(t.shape), t.dtype)

    values = fn(x, y)
    cotangents, v = [*map(like, values)], [like(x), like(y)]
    loss = _loss_of(fn, cotangents)
    before = _numbers((x, y))
    with verdicts.of("jit"):
        compiled = pc.jit(fn)
        for call in range(1, max(CALLS) + 1):
            found = compiled(x, y)
            if call in CALLS:
                _check(f"jit, call {call}", found, values, tolerance)
    is_exact = dtype == "float64"
    has_slope = is_exact and ".detach()" not in program.source
    slope = _slope(fn, (x, y), v) if has_slope else None

    def along(grads):
        pairs = zip(_numbers(grads), _numbers(v), strict=True)
        return [np.asarray(sum(float((g * d).sum()) for g, d in pairs))]

    gradient = pc.grad(loss, argnums=(0, 1))
    first = None
    with verdicts.of("grad"):
        first = gradient(x, y)
        if not all(np.isfinite(g).all() for g in _numbers(first)):
            return verdicts  # at a singular point
        if slope is not None:
            of_loss = sum(
                float((s * c).sum())
                for s, c in zip(slope, _numbers(cotangents), strict=True)
            )
            _check("grad", along(first), [np.asarray(of_loss)], 1e-5)
        for call in (2, 5, 40):
            again = gradient(x, y)
            _check(f"grad, call {call}", again, first, tolerance)
    with verdicts.of("jit(grad)"):
        compiled = pc.jit(gradient)
        first = first or compiled(x, y)
        for call in range(1, max(CALLS) + 1):
            found = compiled(x, y)
            if call in CALLS:
                _check(f"jit(grad), call {call}", found, first, tolerance)
    with verdicts.of("jvp"):
        found = pc.jvp(fn, (x, y), tuple(v))[1]
        if slope is not None:
            _check("jvp", found, slope, 1e-5)
        if is_exact:
            both = sum(
                float((a * c).sum())
                for a, c in zip(_numbers(found), _numbers(cotangents), strict=True)
            )
            _check("jvp beside grad", [np.asarray(both)], along(first), tolerance)
    if is_exact:
        with verdicts.of("hvp"):
            curved = _slope(gradient, (x, y), v) if has_slope else None
            found = pc.jvp(gradient, (x, y), tuple(v))[1]
            if curved is not None and slope is not None:
                _check("jvp of grad", found, curved, 1e-5)
            found = pc.jit(lambda *a: pc.jvp(gradient, a, tuple(v))[1])(x, y)
            if curved is not None and slope is not None:
                _check("jit of jvp of grad", found, curved, 1e-5)
    rows = [(x, y), (x * 0.5, y * 1.5), (x + 0.3, y - 0.2)]
    batch = [paddle.stack([row[k] for row in rows]) for k in range(2)]
    try:
        each = [fn(*row) for row in rows]
        looped = [
            np.stack([t.numpy() for t in outs]) for outs in zip(*each, strict=True)
        ]
    except Exception:  # in native Paddle
        looped = None
    if looped is not None and all(np.isfinite(part).all() for part in looped):
        with verdicts.of("vmap"):
            _check("vmap", pc.vmap(fn)(*batch), looped, tolerance)
        with verdicts.of("vmap of flags and numbers"):

            def facts(x, y):
                return [fact for out in fn(x, y) for fact in _facts(out)]

            each = [facts(*row) for row in rows]
            of_each = [
                np.stack([np.asarray(f) for f in found])
                for found in zip(*each, strict=True)
            ]
            _check("vmap of flags and numbers", pc.vmap(facts)(*batch), of_each, 0.0)
        with verdicts.of("jit(vmap(grad))"):
            each = [gradient(*row) for row in rows]
            looped = [
                np.stack([t.numpy() for t in gs]) for gs in zip(*each, strict=True)
            ]
            compiled = pc.jit(pc.vmap(gradient))
            is_singular = not all(np.isfinite(part).all() for part in looped)
            for _ in range(3):
                found = compiled(*batch)
                if not is_singular:
                    _check("jit(vmap(grad))", found, looped, tolerance)
    _check("inputs", before, _numbers((x, y)), 0.0)
    return verdicts


def reduced(program, is_wrong):
    """The program without the lines that do not matter for its being wrong."""
    k = len(program.lines) - 1
    while k >= 0:
        fewer = program.without(k)
        try:
            fewer.function()(*fewer.inputs)
        except Exception:
            k -= 1
            continue
        if is_wrong(fewer):
            program = fewer
        k -= 1
    return program


def verdict(program):
    """What became of a program: counts, refusals, and what is wrong."""
    try:
        found = judged(program)
        return dict(found.asked), found.refused, None
    except Wrong as error:
        kind = str(error).split(":")[0]

        def is_wrong(fewer):
            try:
                judged(fewer)
            except Wrong as again:
                return str(again).split(":")[0] == kind
            except Exception:
                return False
            return False

        return {}, [], f"{error}\n{reduced(program, is_wrong).shown()}"


def _work(seeds, found):
    warnings.simplefilter("ignore")
    paddle.set_device("cpu")
    for seed in seeds:
        found.send((seed, None))
        program = drawn(seed)
        found.send((seed, program.shown()))
        found.send((seed, verdict(program)))
    found.send(None)


def verdicts_of(seeds, jobs=1):
    """Yield each seed with its verdict; a process that ends is one that is wrong.

    Where native Paddle ends it, there is no program of that seed.
    """
    context = multiprocessing.get_context("spawn")
    rows = [[*seeds][k::jobs] for k in range(jobs)]
    running = {}

    def begin(row):
        if row:
            end, other = context.Pipe(False)
            process = context.Process(target=_work, args=(row, other), daemon=True)
            process.start()
            other.close()
            running[end] = process, row, [None, None]

    for row in rows:
        begin(row)
    while running:
        ready = multiprocessing.connection.wait([*running], LONGEST)
        if not ready:  # all hang
            for process, _, _ in running.values():
                process.kill()
        for end in ready:
            process, row, last = running[end]
            try:
                message = end.recv()
            except EOFError:
                process.join()
                del running[end]
                seed, source = last
                if seed is None:
                    raise RuntimeError("a process has ended at once") from None
                why = f"it ends by signal {process.exitcode}\n{source}"
                yield seed, ({}, [], source and why)
                begin(row[row.index(seed) + 1 :])
                continue
            if message is None:
                process.join()
                del running[end]
            elif not isinstance(message[1], tuple):
                last[:] = message
            else:
                yield message


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="one, or first:last")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the programs")
    given = parser.parse_args()
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    if given.show:
        for seed in seeds:
            print(drawn(seed).shown())
        return 0
    asked, refused, wrong = Counter(), Counter(), 0
    for done, (seed, (counts, refusals, text)) in enumerate(
        verdicts_of(seeds, given.jobs), 1
    ):
        asked.update(counts)
        for question, why in refusals:
            refused[f"{question}: {why[:150]}"] += 1
        if text is not None:
            wrong += 1
            print(f"\nWRONG, seed {seed}: {text}", flush=True)
        if done % 100 == 0:
            print(f"{done} of {len(seeds)} programs, {wrong} wrong", flush=True)
    for why, count in refused.most_common():
        print(f"refused {count} times: {why}")
    print({**asked})
    print(f"{len(seeds)} programs, {wrong} wrong, {sum(refused.values())} refusals")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
