"""Every public function on the device: in the device's memory, and equal to the CPU's.

Each entry is called 45 times on either side, first as Paddle runs it and at last as a
compiled program. ``make device`` runs this file.
"""

import subprocess
import sys
from tempfile import mkdtemp

import numpy as np
import optree
import paddle
import pytest

import paddle_chainrules as pc
from conftest import randn
from device import on_device
from julia_at_hand import needs_julia
from paddle_chainrules import distributed, libraries, optimizers, testing

DEVICE, OTHER = "fake_gpu:0", "fake_gpu:1"
CALLS, LOOKED_AT = 45, {1, 2, 4, 36, 45}
needs_device = pytest.mark.skipif(
    on_device.NAME is None, reason="make device runs it, on a device"
)

NET = pc.FCNet((3, 5, 2), "tanh")
LAYER = pc.stateless(
    paddle.nn.Sequential(
        paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2)
    )
)[0]


def params(m):
    return m(NET.init(0))


def layer_params(m):
    pairs = zip(LAYER.spec.names, LAYER.spec.shapes, strict=True)
    return m({name: randn(shape, seed=i) for i, (name, shape) in enumerate(pairs)})


def x(m, *shape):
    return m(randn(shape or (4, 3), seed=3))


def called(function, *args, **kwargs):
    """An entry that moves the arguments, and calls a function with them."""

    def entry(m):
        moved = [m(arg) for arg in args]
        return lambda: function(*moved, **kwargs)

    return entry


def loss(p, x):
    return (NET.forward(p, x) ** 2).sum()


def smooth(x):
    return paddle.tanh(x) * x


def total(x):
    return (paddle.tanh(x) * x).sum()


P0, X, V, ROW = NET.init(0), randn([4, 3], seed=3), randn([4, 3], seed=4), randn([3])
GRADS = {n: randn(v.shape, seed=i) for i, (n, v) in enumerate(P0.items())}
SPARSE = paddle.to_tensor([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, -1.0]])


def csr(m):
    matrix, right = pc.CSR.of(m(SPARSE)), x(m)
    return lambda: (matrix @ right.T, pc.grad(lambda r: (matrix @ r).sum())(right.T))


def packed(m):
    rows = pc.Packed.of([x(m, 2, 3), x(m, 3, 3)])
    return lambda: rows.values * 2


def row_sparse(m):
    rows = pc.RowSparse.of(x(m))
    return lambda: rows.to_dense()


def program(m):
    made = pc.make_program(smooth)(x(m))
    return lambda: made(x(m))


def linearized(m):
    return lambda: pc.linearize(smooth, x(m))[1](m(V))


def optimizer(make):
    """An entry for an optimizer: some steps, with all of its state."""

    def entry(m):
        own, grads = params(m), m(GRADS)
        made = make()
        state = [made.init(own)]

        def call():
            updates, state[0] = made.update(grads, state[0], own)
            return updates, state[0]

        return call

    return entry


def minimized(minimize, of_residual=False):
    def residual(p):
        return NET.forward(p, target).flatten() - 0.3

    target = None

    def entry(m):
        nonlocal target
        target = own = x(m)

        def call():
            nonlocal target
            target = own
            function = residual if of_residual else lambda p: (residual(p) ** 2).mean()
            return minimize(function, params(m), steps=2).params

        return call

    entry.calls = 3
    return entry


def file(write, read):
    """An entry that writes and reads; what is read is on Paddle's current device."""

    def entry(m):
        folder = mkdtemp()
        own = params(m)

        def call():
            write(f"{folder}/net.safetensors", own)
            return read(f"{folder}/net.safetensors")

        return call

    entry.calls = 2
    return entry


def library(m):
    """Examples may lie on a device; parameters that go into a library may not."""
    path, own = f"{mkdtemp()}/net.so", params(m)

    def call():
        if not own["0.weight"].place.is_cpu_place():
            with pytest.raises(pc.CaptureError, match=r"runs on the CPU.*\.cpu\(\)"):
                libraries.save_library(path, NET, own, x(m), params="inside")
        libraries.save_library(path, NET, own, x(m))
        made = libraries.load_library(path)
        theta = NET.flatten(own).numpy()
        return m(paddle.to_tensor(made.net(theta, X.numpy())))

    return call


ENTRIES = {
    "ACTIVATIONS": called(
        lambda v: [pc.FCNet((3, 2, 2), n)(v[0], v[1]) for n in sorted(pc.ACTIVATIONS)],
        (pc.FCNet((3, 2, 2)).init(0), X),
    ),
    "CSR": csr,
    "FCNet": called(NET.forward, P0, X),
    "Jacobian": called(lambda x: pc.jacobian(smooth, x)[2][:], X),
    "Net": lambda m: lambda: LAYER.vjp(layer_params(m), x(m), x(m, 4, 2)),
    "NetPullback": called(
        lambda p, x, c: NET.pullback(p, x)[1](c), P0, X, randn([4, 2])
    ),
    "Packed": packed,
    "ParamSpec": called(lambda p: NET.spec.unflatten(NET.spec.flatten(p)), P0),
    "Program": program,
    "Pullback": called(lambda x, v: pc.vjp(smooth, x)[1](v), X, V),
    "Pushforward": linearized,
    "RowSparse": row_sparse,
    "StatelessLayer": lambda m: lambda: LAYER.forward(layer_params(m), x(m)),
    "cond": called(lambda x: pc.cond(x.sum() > 0, smooth, lambda x: x - 1, x), X),
    "curl": called(
        lambda p, x: pc.curl(pc.FCNet((3, 5, 3), "tanh"), p, x),
        pc.FCNet((3, 5, 3)).init(0),
        X,
    ),
    "derivative": called(lambda p, x: pc.derivative(NET, p, x, (1, 0, 1)), P0, X),
    "derivatives": called(
        lambda p, x: pc.derivatives(NET, p, x, [(0, 0, 0), (2, 0, 0)]), P0, X
    ),
    "divergence": called(
        lambda p, x: pc.divergence(pc.FCNet((3, 5, 3), "tanh"), p, x),
        pc.FCNet((3, 5, 3)).init(0),
        X,
    ),
    "empty_cache": called(lambda x: (pc.empty_cache(), smooth(x))[1], X),
    "explain": called(lambda x: (str(pc.explain(smooth, x)), smooth(x))[1], X),
    "fori_loop": called(
        lambda x: pc.fori_loop(0, 3, lambda i, x: paddle.tanh(x) + i, x), X
    ),
    "forward_laplacian": called(lambda p, x: pc.forward_laplacian(NET, p, x), P0, X),
    "grad": called(pc.grad(loss), P0, X),
    "hessian": called(pc.hessian(total), ROW),
    "hvp": called(lambda x, v: pc.hvp(total, x, v), X, V),
    "jacfwd": called(pc.jacfwd(smooth), ROW),
    "jacobian": called(lambda x: pc.jacobian(smooth, x)[:], ROW),
    "jacrev": called(pc.jacrev(smooth), ROW),
    "jit": called(pc.jit(loss), P0, X),
    "jvp": called(lambda x, v: pc.jvp(smooth, (x,), (v,)), X, V),
    "laplacian": called(lambda p, x: pc.laplacian(NET, p, x), P0, X),
    "linearize": linearized,
    "load": file(pc.save, pc.load),
    "load_params": file(pc.save_params, lambda path: pc.load_params(path, NET)),
    "make_program": program,
    "save": file(pc.save, pc.load),
    "save_params": file(pc.save_params, lambda path: pc.load_params(path, NET)),
    "scan": called(lambda x, v: pc.scan(lambda s, r: (s * 0.5 + r, s), x, v), ROW, X),
    "stack_params": called(lambda p, q: pc.stack_params([p, q]), P0, GRADS),
    "stateless": called(
        lambda x: (lambda n, p, _: n(p, x).sum() * 0)(
            *pc.stateless(paddle.nn.Linear(3, 2))
        ),
        X,
    ),
    "taylor": called(lambda p, x, v: pc.taylor(NET, p, x, v, 2), P0, X, V),
    "value_and_grad": called(pc.value_and_grad(loss), P0, X),
    "vjp": called(lambda x, v: pc.vjp(smooth, x)[1](v), X, V),
    "vmap": called(pc.vmap(lambda r: (r * r).sum()), X),
    "while_loop": called(
        lambda x: pc.while_loop(lambda x: (x < 9.0).any(), lambda x: x + 1.0, x), X
    ),
    # The other public modules.
    "optimizers": optimizer(lambda: optimizers.adam(0.1)),
    "distributed.average": called(distributed.average, P0),
    "distributed.broadcast": called(distributed.broadcast, P0),
    "distributed.load_checkpoint": file(
        distributed.save_checkpoint, distributed.load_checkpoint
    ),
    "distributed.rank": called(lambda x: x * distributed.rank(), X),
    "distributed.save_checkpoint": file(
        distributed.save_checkpoint, distributed.load_checkpoint
    ),
    "distributed.seed": called(lambda x: x + float(distributed.seed(3) is None), X),
    "distributed.shard": called(distributed.shard, X),
    "distributed.size": called(lambda x: x * distributed.size(), X),
    "distributed.value_and_grad": called(distributed.value_and_grad(loss), P0, X),
    "libraries.load_library": library,
    "libraries.save_library": library,
    "optimizers.accumulate": optimizer(
        lambda: optimizers.accumulate(optimizers.adam(0.1), 2)
    ),
    "optimizers.add_decayed_weights": optimizer(
        lambda: optimizers.add_decayed_weights(0.1)
    ),
    "optimizers.apply_updates": called(optimizers.apply_updates, P0, GRADS),
    "optimizers.bfgs": minimized(optimizers.bfgs),
    "optimizers.chain": optimizer(
        lambda: optimizers.chain(optimizers.clip_by_norm(0.1), optimizers.adam(0.1))
    ),
    "optimizers.clip_by_value": optimizer(lambda: optimizers.clip_by_value(0.1, -0.1)),
    "optimizers.ema": optimizer(lambda: optimizers.ema(0.9)),
    "optimizers.gauss_newton": minimized(optimizers.gauss_newton, of_residual=True),
    "optimizers.global_norm": called(optimizers.global_norm, P0),
    "optimizers.lbfgs": minimized(optimizers.lbfgs),
    "optimizers.levenberg_marquardt": minimized(
        optimizers.levenberg_marquardt, of_residual=True
    ),
    "optimizers.natural_gradient": minimized(
        lambda loss, p, steps: optimizers.natural_gradient(
            loss, p, metric=lambda p: p, steps=steps
        )
    ),
    "optimizers.scale_by_schedule": optimizer(
        lambda: optimizers.scale_by_schedule(lambda step: 0.5)
    ),
    **{
        f"optimizers.{name}": optimizer(
            lambda name=name: getattr(optimizers, name)(0.1)
        )
        for name in (
            *("adadelta", "adagrad", "adam", "adamax", "adamw", "clip_by_global_norm"),
            *("clip_by_norm", "lamb", "momentum", "nadam", "radam", "rmsprop"),
            *("scale", "sgd"),
        )
    },
    "testing.check_vjp": called(
        lambda x: x * testing.check_vjp(NET, NET.init(0), (x,), devices=["cpu"]).ok, X
    ),
    "testing.compare": called(
        lambda x: x * testing.compare(smooth, smooth, (x,), devices=[DEVICE]).ok, X
    ),
}
library.calls = 2
ENTRIES["testing.check_vjp"].calls = ENTRIES["testing.compare"].calls = 2

NOT_OF_TENSORS = {
    **dict.fromkeys(
        ("from_paddle", "to_paddle"), "a step of Paddle's own optimizers, see below"
    ),
    **dict.fromkeys(("schedule_of", "schedules"), "functions of Python's numbers"),
    "start": "it starts processes",
}


def names():
    """Return the public names that take or give tensors, by module."""
    for module in (pc, distributed, libraries, optimizers, testing):
        prefix = "" if module is pc else f"{module.__name__.rpartition('.')[2]}."
        for name in module.__all__:
            value = getattr(module, name)
            is_plain = not callable(value) and name not in ENTRIES
            is_class = isinstance(value, type) and (
                issubclass(value, Exception) or module is not pc
            )
            if not (is_plain or is_class or name in NOT_OF_TENSORS):
                yield prefix + name


def test_every_public_name_has_an_entry():
    assert {*names()} == {*ENTRIES}


def tensors(result):
    leaves = optree.tree_leaves(result, none_is_leaf=True, namespace="")
    return [leaf for leaf in leaves if isinstance(leaf, paddle.Tensor)]


def mover(device):
    return lambda tree: optree.tree_map(
        lambda leaf: leaf.to(device) if isinstance(leaf, paddle.Tensor) else leaf, tree
    )


def results(entry, device):
    """The tensors of some calls, after a check of where each lies."""
    paddle.set_device(device)
    paddle.seed(7)
    call, looked_at = entry(mover(device)), []
    for k in range(1, getattr(entry, "calls", CALLS) + 1):
        result = tensors(call())
        if k in LOOKED_AT:
            for tensor in result:
                assert not tensor.size or str(tensor.place) == f"Place({device})", k
            looked_at.append([tensor.numpy() for tensor in result])
    return looked_at


@needs_device
@pytest.mark.parametrize("name", ENTRIES)
def test_on_the_device_as_on_the_cpu(name):
    expected = results(ENTRIES[name], "cpu")
    found = results(ENTRIES[name], DEVICE)
    assert any(map(len, expected))
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@needs_device
@pytest.mark.parametrize(
    "name", ["CSR", "Packed", "jit", "laplacian", "optimizers.adam", "scan", "vjp"]
)
def test_on_the_other_device(name):
    expected = results(ENTRIES[name], "cpu")
    for one, other in zip(results(ENTRIES[name], OTHER), expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@needs_device
def test_the_current_device_may_change_after_a_capture():
    function = pc.jit(lambda x: paddle.tanh(x) + paddle.full([3], 2.0))
    ones = pc.jit(lambda n: paddle.ones([3]) * n)
    for device in ("cpu", DEVICE, OTHER, "cpu", DEVICE):
        paddle.set_device(device)
        own = ROW.to(device)
        for _ in range(CALLS):
            assert str(ones(2.0).place) == f"Place({device})"
            result = function(own)
        assert str(result.place) == f"Place({device})"
        np.testing.assert_allclose(result.numpy(), np.tanh(ROW.numpy()) + 2, rtol=1e-5)


@needs_device
def test_a_seed_draws_the_same_on_every_device():
    net = pc.stateless(paddle.nn.Dropout(0.5))[0]
    drawn = []
    for device in ("cpu", DEVICE, OTHER):
        paddle.set_device(device)
        own = X.to(device)
        for _ in range(CALLS):
            y = net.forward({}, own, seed=5)
        assert str(y.place) == f"Place({device})"
        drawn.append(y.numpy())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def trained(state, count):
    """Some steps of Adam on the loss, from parameters and the optimizer's state."""
    adam, step = optimizers.adam(0.05), pc.jit(pc.grad(loss))
    own, state = state
    for _ in range(count):
        updates, state = adam.update(step(own, X.to(paddle.get_device())), state, own)
        own = optimizers.apply_updates(own, updates)
    return own, state


@needs_device
def test_a_run_goes_on_from_a_file_on_any_device():
    begin = P0, optimizers.adam(0.05).init(P0)
    paddle.set_device("cpu")
    expected, _ = trained(begin, 40)
    file = f"{mkdtemp()}/run.safetensors"
    for first, second in ((DEVICE, DEVICE), (DEVICE, "cpu"), ("cpu", OTHER)):
        paddle.set_device(first)
        distributed.save_checkpoint(file, trained(mover(first)(begin), 20))
        paddle.set_device(second)
        found, state = trained(distributed.load_checkpoint(file), 20)
        for tensor in tensors((found, state)):
            assert str(tensor.place) == f"Place({second})"
        for name, value in found.items():
            np.testing.assert_allclose(
                value.numpy(), expected[name].numpy(), rtol=1e-4, atol=1e-5
            )


@needs_device
def test_the_state_of_paddles_optimizers_is_taken_where_it_lies():
    paddle.set_device(DEVICE)
    layer = paddle.nn.Linear(3, 2)
    theirs = paddle.optimizer.Adam(0.1, parameters=layer.parameters())
    for _ in range(3):
        (layer(x(mover(DEVICE))) ** 2).sum().backward()
        theirs.step()
        theirs.clear_grad()
    ours, state = optimizers.from_paddle(theirs, layer)
    own = dict(layer.named_parameters())
    grads = {name: paddle.ones_like(value) for name, value in own.items()}
    updates, after = ours.update(grads, state, own)
    for tensor in tensors((updates, after.first, after.second)):
        assert str(tensor.place) == f"Place({DEVICE})"
    for name, value in layer.named_parameters():
        value._grad_ivar() is not None or value.sum().backward()
        value.grad.set_value(grads[name])
    before = {name: value.numpy() for name, value in own.items()}
    theirs.step()
    for name, value in layer.named_parameters():
        moved = value.numpy() - before[name]
        np.testing.assert_allclose(moved, updates[name].numpy(), rtol=1e-4, atol=1e-6)


def command(*args):
    """What the package's command prints, and what went wrong."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "paddle_chainrules", *args],
        capture_output=True,
        text=True,
        timeout=300,
    )


@needs_device
@pytest.mark.parametrize("name", ["bench", "explain"])
def test_commands(name, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(
        "import paddle\n\ndef make():\n    return paddle.nn.Linear(3, 2)\n"
    )
    done = command(name, f"{model}:make", "--input", "4x3")
    assert done.returncode == 0, done.stderr[-2000:]


@needs_device
@needs_julia
def test_the_doctor_says_that_julia_takes_no_tensors_of_the_device():
    done = command("doctor")
    assert done.returncode == 1, done.stdout
    faults = [line for line in done.stdout.splitlines() if line.startswith("FAULT")]
    assert len(faults) == 2, done.stdout  # each language starts the other
    for fault in faults:
        assert "a device whose tensors Paddle does not share" in fault
        assert 'paddle.set_device("cpu")' in fault
