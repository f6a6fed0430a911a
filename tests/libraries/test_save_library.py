"""Nets and functions as shared libraries, called through ctypes."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import paddle
import pytest

from conftest import randn, run_code
from paddle_chainrules import (
    FCNet,
    jit,
    optimizers,
    stateless,
    value_and_grad,
)
from paddle_chainrules.libraries import Export, load_library, save_library

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="libraries are linked on Linux by a C compiler",
)
ALL = ["vjp", "jvp", "jacobian", "hessian", "laplacian"]


def doubles(sizes, activation="tanh", seed=0):
    net = FCNet(sizes, activation, "float64")
    return net, net.flatten(net.init(seed))


def central(fn, x, step=1e-6):
    """The gradient of a function of an array, entry by entry."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        found[place] = (fn(x + moved) - fn(x - moved)) / (2 * step)
    return found


@pytest.fixture(scope="module")
def wave(tmp_path_factory):
    """A net with all derivatives, its parameters, and the library."""
    net, theta = doubles((3, 17, 5, 2))
    path = tmp_path_factory.mktemp("wave") / "wave.so"
    save_library(path, net, theta, randn([4, 3], "float64"), derivatives=ALL)
    return net, theta, load_library(path)


@pytest.mark.parametrize("n", [1, 2, 7, 70])
def test_value_and_derivatives(wave, n):
    net, theta, library = wave
    x, bar = randn([n, 3], "float64", n), randn([n, 2], "float64", n + 1)
    dot = randn([n, 3], "float64", n + 2)
    p, given = theta.numpy(), x.numpy()

    def value(p, x):
        return net(paddle.to_tensor(p), paddle.to_tensor(x)).numpy()

    y = library.wave(p, given)
    np.testing.assert_allclose(y, value(p, given), rtol=1e-13, atol=1e-14)
    params_bar, x_bar = library.wave_vjp(p, given, bar.numpy())
    expected = central(lambda p: (value(p, given) * bar.numpy()).sum(), p)
    np.testing.assert_allclose(params_bar, expected, rtol=1e-6, atol=1e-8)
    expected = central(lambda x: (value(p, x) * bar.numpy()).sum(), given)
    np.testing.assert_allclose(x_bar, expected, rtol=1e-6, atol=1e-8)
    _, y_dot = library.wave_jvp(p, given, dot.numpy())
    jacobian = library.wave_jacobian(p, given)
    np.testing.assert_allclose(
        y_dot, np.einsum("nmd,nd->nm", jacobian, dot.numpy()), rtol=1e-11, atol=1e-13
    )
    hessian = library.wave_hessian(p, given)
    step = 1e-5
    for k in range(3):
        moved = np.zeros(3)
        moved[k] = step
        ahead, behind = given + moved, given - moved
        slope = (value(p, ahead) - value(p, behind)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, :, k], slope, rtol=1e-6, atol=1e-9)
        slope = library.wave_jacobian(p, ahead) - library.wave_jacobian(p, behind)
        slope = slope / (2 * step)
        np.testing.assert_allclose(hessian[:, :, k], slope, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        library.wave_laplacian(p, given),
        np.trace(hessian, axis1=2, axis2=3),
        rtol=1e-10,
        atol=1e-12,
    )


def test_rows_do_not_depend_on_how_many_there_are(wave):
    _, theta, library = wave
    x = randn([64, 3], "float64").numpy()
    whole = library.wave(theta.numpy(), x)
    for n in (2, 5, 33):  # one has code of its own
        np.testing.assert_array_equal(library.wave(theta.numpy(), x[:n]), whole[:n])


def test_threads_get_the_same_bits(wave):
    _, theta, library = wave
    xs = [randn([n, 3], "float64", n).numpy() for n in range(1, 60)]

    def call(x):
        return library.wave_hessian(theta.numpy(), x)

    alone = [*map(call, xs)]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(alone, pool.map(call, xs * 3), strict=False):
            np.testing.assert_array_equal(one, other)


def test_the_description_tells_names_and_shapes(wave):
    net, _, library = wave
    about = library.description
    assert about["library"] == "wave"
    value = about["functions"][0]
    assert value["inputs"] == [
        {"name": "params", "dtype": "float64", "shape": [170]},
        {"name": "x", "dtype": "float64", "shape": ["n", 3]},
    ]
    assert value["outputs"] == [{"name": "y", "dtype": "float64", "shape": ["n", 2]}]
    assert [p["name"] for p in about["parameters"]] == [*net.spec.names]
    assert about["parameters"][1] == {"name": "0.bias", "shape": [17], "offset": 51}


def test_parameters_inside(tmp_path):
    net, theta = doubles((2, 9, 1), "gelu", 3)
    x = randn([3, 2], "float64")
    path = tmp_path / "inner.so"
    save_library(path, net, theta, x, derivatives=["vjp"], params="inside")
    library = load_library(path)
    x, bar = randn([11, 2], "float64", 4), randn([11, 1], "float64", 5)
    np.testing.assert_allclose(
        library.inner(x.numpy()), net(theta, x).numpy(), rtol=1e-12
    )
    _, expected = net.vjp(theta, x, bar)
    found = library.inner_vjp(x.numpy(), bar.numpy())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-11, atol=1e-13)
    assert library.description["parameters"] == []


class Two(paddle.nn.Layer):
    """Two inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.first = paddle.nn.Linear(3, 7)
        self.second = paddle.nn.Linear(5, 7)

    def forward(self, position, load):
        hidden = paddle.tanh(self.first(position)) * self.second(load)
        return hidden.sum(1), paddle.nn.functional.softmax(hidden, -1)


def test_a_layer_with_several_inputs_and_outputs(tmp_path):
    paddle.seed(1)
    net, params, _ = stateless(Two())
    theta = net.flatten(params)
    path = tmp_path / "two.so"
    example = randn([2, 3]), randn([2, 5])
    save_library(path, net, params, *example, derivatives=["vjp", "jvp"])
    library = load_library(path)
    about = library.description["functions"][1]
    assert [t["name"] for t in about["inputs"]] == [
        *("params", "position", "load", "y_bar_0", "y_bar_1")
    ]
    n = 6
    x, z = randn([n, 3], seed=2), randn([n, 5], seed=3)
    bars = randn([n], seed=4), randn([n, 7], seed=5)
    dots = randn([n, 3], seed=6), randn([n, 5], seed=7)
    p = theta.numpy()
    for found, expected in zip(
        library.two(p, x.numpy(), z.numpy()), net(theta, x, z), strict=True
    ):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
    grads = library.two_vjp(p, x.numpy(), z.numpy(), *(b.numpy() for b in bars))
    theta.stop_gradient = x.stop_gradient = z.stop_gradient = False
    outputs = net(theta, x, z)
    natively = paddle.grad(outputs, [theta, x, z], list(bars))
    for found, expected in zip(grads, natively, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    tangents = library.two_jvp(p, x.numpy(), z.numpy(), *(d.numpy() for d in dots))[2:]
    along = sum((t * b.numpy()).sum() for t, b in zip(tangents, bars, strict=True))
    back = sum((g * d.numpy()).sum() for g, d in zip(grads[1:], dots, strict=True))
    assert along == pytest.approx(back, rel=1e-4)


def test_a_training_step_of_any_batch(tmp_path):
    net = FCNet((2, 8, 1), "tanh", "float64")
    params = net.init(0)
    adam = optimizers.adam(1e-2)
    state = adam.init(params)

    def loss(params, x, y):
        return ((net(params, x) - y) ** 2).mean()

    def step(params, state, x, y):
        value, grads = value_and_grad(loss)(params, x, y)
        updates, state = adam.update(grads, state, params)
        return value, optimizers.apply_updates(params, updates), state

    x, y = randn([6, 2], "float64"), randn([6, 1], "float64", 1)
    path = tmp_path / "train.so"
    steps = {"step": Export(step, params, state, x, y, batched=(2, 3))}
    save_library(path, steps)
    library = load_library(path)
    arrays = [
        t.numpy()
        for t in paddle.utils.flatten((params, state))
        if isinstance(t, paddle.Tensor)
    ]
    for n in (6, 9, 1):
        x, y = randn([n, 2], "float64", n), randn([n, 1], "float64", n + 1)
        value, params, state = jit(step)(params, state, x, y)
        given = [*arrays, x.numpy(), y.numpy()]
        found, *arrays = library.train_step(*given)
        assert found == pytest.approx(float(value), rel=1e-12)
        leaves = [
            t.numpy()
            for t in paddle.utils.flatten((params, state))
            if isinstance(t, paddle.Tensor)
        ]
        for one, other in zip(arrays, leaves, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_dtypes_scalars_and_indices(tmp_path):
    table = randn([5, 3])

    def pick(rows, scale):
        found = paddle.gather(table, rows) * scale
        return found, found > 0, rows * 2

    path = tmp_path / "pick.so"
    rows = paddle.to_tensor([0, 4, 2], dtype="int32")
    export = Export(pick, rows, paddle.to_tensor(2.0), batched=0)
    save_library(path, {"rows": export})
    library = load_library(path)
    given = np.array([3, 3, 1, 0, 4], "int32")
    found, positive, doubled = library.pick_rows(given, np.float32(1.5))
    np.testing.assert_array_equal(found, table.numpy()[given] * np.float32(1.5))
    np.testing.assert_array_equal(positive, found > 0)
    np.testing.assert_array_equal(doubled, given * 2)
    assert doubled.dtype == np.int32
    assert positive.dtype == bool
    with pytest.raises(ValueError, match="an index is out of range"):
        library.pick_rows(np.array([5], "int32"), np.float32(1.0))


def test_outputs_that_are_given_or_constant(tmp_path):
    table = randn([2, 3])

    def same(x):
        return x, table, x

    path = tmp_path / "same.so"
    save_library(path, same, randn([4, 2]), batched=0)
    x = randn([9, 2], seed=2).numpy()
    first, second, third = load_library(path).same(x)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, table.numpy())
    np.testing.assert_array_equal(third, x)


def test_one_sample_may_differ_from_many(tmp_path):
    def fn(x):
        return x * 2.0 if x.shape[0] > 1 else x.sin() * 3.0

    path = tmp_path / "fn.so"
    save_library(path, fn, randn([4, 2], "float64"), batched=0)
    library = load_library(path)
    for n in (1, 2, 8):
        x = randn([n, 2], "float64", n)
        np.testing.assert_allclose(
            library.fn(x.numpy()), fn(x).numpy(), rtol=1e-14, atol=1e-15
        )


def test_a_missing_compiler_is_told_and_files_stay(tmp_path, monkeypatch):
    net, theta = doubles((2, 3, 1))
    x = randn([4, 2], "float64")
    save_library(tmp_path / "heat.so", net, theta, x)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="there is no no-such-compiler; install gcc"):
        save_library(tmp_path / "heat.so", net, theta, x, derivatives=["vjp"])
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_wrong_arrays_are_told(wave):
    _, theta, library = wave
    x = randn([4, 3], "float64").numpy()
    with pytest.raises(ValueError, match=r"x is float32 \[4, 3\], and needs float64"):
        library.wave(theta.numpy(), x.astype("float32"))
    with pytest.raises(ValueError, match=r"needs float64 \[n, 2\] with n = 4"):
        library.wave_vjp(theta.numpy(), x, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="samples is below 1"):
        library.wave(theta.numpy(), x[:0])
    with pytest.raises(TypeError, match=r"takes 2 arrays \(params, x\), got 1"):
        library.wave(x)
    with pytest.raises(
        AttributeError, match="no function 'wav'; it has wave, wave_vjp"
    ):
        library.wav(x)


def test_what_is_no_library(tmp_path):
    net, theta = doubles((2, 3, 1))
    save_library(tmp_path / "heat.so", net, theta, randn([4, 2], "float64"))
    (tmp_path / "heat.so").rename(tmp_path / "cold.so")
    with pytest.raises(ValueError, match="was renamed"):
        load_library(tmp_path / "cold.so")


SAVE = """
import sys, paddle
from paddle_chainrules import FCNet
from paddle_chainrules.libraries import save_library
net = FCNet((3, 64, 64, 64, 1))
theta = net.flatten(net.init(0))
derivatives = ["vjp", "jacobian", "laplacian"]
save_library(sys.argv[1], net, theta, paddle.ones([5, 3]), derivatives=derivatives)
"""


def test_files_are_the_same_each_time_and_small(tmp_path):
    made = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        code = f"import sys; sys.argv[1:] = [{str(tmp_path / folder / 'm.so')!r}]\n"
        done = run_code(code + SAVE)
        assert done.returncode == 0, done.stderr
        files = sorted((tmp_path / folder).iterdir())
        made.append({file.name: file.read_bytes() for file in files})
    assert made[0] == made[1]
    assert sorted(made[0]) == ["m.f90", "m.h", "m.hpp", "m.jl", "m.so"]
    assert len(made[0]["m.so"]) < 60_000
    needed = subprocess.run(
        ["ldd", tmp_path / "a" / "m.so"], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[0] for line in needed.splitlines()}
    assert all(
        name.startswith(("linux-vdso", "libc.so", "libm.so", "/")) for name in names
    ), needed


@pytest.mark.parametrize(
    ("cpu", "machine"),
    [("aarch64", 183), ("x86-64", 62), ("x86-64-v4", 62)],
)
def test_object_files_for_other_processors(tmp_path, cpu, machine):
    net, theta = doubles((3, 20, 2))
    path = tmp_path / "heat.o"
    x = randn([4, 3], "float64")
    files = save_library(path, net, theta, x, derivatives=["jacobian"], cpu=cpu)
    assert [file.suffix for file in files] == [".o", ".h", ".hpp", ".f90", ".jl"]
    data = path.read_bytes()
    assert data[:4] == b"\x7fELF"
    assert int.from_bytes(data[18:20], "little") == machine


def test_lower_levels_give_the_same_numbers(tmp_path):
    net, theta = doubles((3, 20, 2))
    x = randn([9, 3], "float64")
    expected = net(theta, x).numpy()
    for cpu in ("x86-64", "x86-64-v2"):
        (tmp_path / cpu).mkdir()
        path = tmp_path / cpu / "heat.so"
        save_library(path, net, theta, x, cpu=cpu)
        found = load_library(path).heat(theta.numpy(), x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-12)


CBLAS = """
#include <stdio.h>
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int p = 0; p < k; p++)
        sum += (ta == 112 ? a[p * lda + i] : a[i * lda + p]) *
               (tb == 112 ? b[j * ldb + p] : b[p * ldb + j]);
      c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]);
    }
  fputs("asked\\n", stdout); fflush(stdout); (void)order;
}
"""


def test_a_library_for_large_products(tmp_path, monkeypatch, capfd):
    source = tmp_path / "blas.c"
    source.write_text(CBLAS)
    shared = tmp_path / "libtestblas.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libtestblas.so", "-o", shared, source],
        check=True,
    )
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))
    import ctypes

    ctypes.CDLL(str(shared), mode=ctypes.RTLD_GLOBAL)
    net = FCNet((80, 90, 70))
    theta = net.flatten(net.init(0))
    path = tmp_path / "large.so"
    save_library(path, net, theta, randn([3, 80]), blas="testblas")
    assert "asked" in capfd.readouterr().out
    x = randn([100, 80], seed=2)
    found = load_library(path).large(theta.numpy(), x.numpy())
    np.testing.assert_allclose(found, net(theta, x).numpy(), rtol=1e-4, atol=1e-5)
    assert json.loads(json.dumps(load_library(path).description))["abi"] == 1


class Scaled(paddle.nn.Layer):
    """Integers among the inputs and outputs, and an input without influence."""

    def __init__(self):
        super().__init__()
        self.table = paddle.nn.Embedding(7, 3)

    def forward(self, ids, scale, unused):
        return ids * 2, self.table(ids) * scale


def test_derivatives_are_those_of_floating_tensors(tmp_path):
    net, params, _ = stateless(Scaled().to(dtype="float64"))
    theta, ids = net.flatten(params), paddle.to_tensor([0, 3, 6, 3])
    scale, unused = randn([4, 1], "float64", 1), randn([4, 2], "float64", 2)
    path = tmp_path / "scaled.so"
    save_library(path, net, theta, ids, scale, unused, derivatives=["vjp", "jvp"])
    library = load_library(path)
    given = [t.numpy() for t in (theta, ids, scale, unused)]
    bar, dot, other = (
        randn(shape, "float64", k).numpy()
        for k, shape in enumerate(([4, 3], [4, 1], [4, 2]), 3)
    )
    params_bar, scale_bar, unused_bar = library.scaled_vjp(*given, bar)

    def loss(p, s):
        return (library.scaled(p, given[1], s, given[3])[1] * bar).sum()

    expected = central(lambda p: loss(p, given[2]), given[0])
    np.testing.assert_allclose(params_bar, expected, rtol=1e-7, atol=1e-9)
    expected = central(lambda s: loss(given[0], s), given[2])
    np.testing.assert_allclose(scale_bar, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(unused_bar, np.zeros([4, 2]))
    doubled, rows, rows_dot = library.scaled_jvp(*given, dot, other)
    np.testing.assert_array_equal(doubled, 2 * given[1])
    np.testing.assert_allclose(rows_dot, rows / given[2] * dot, rtol=1e-12)


def test_a_library_that_is_saved_again_is_loaded_anew(tmp_path):
    path, x = tmp_path / "net.so", randn([2, 3], "float32")
    kept = []
    for widths in ((3, 4, 1), (3, 4, 1), (3, 5, 2)):
        net = FCNet(widths, "tanh")
        params = net.init(len(kept))
        save_library(path, net, params, x, params="inside")
        library = load_library(path)
        kept.append((library, net(params, x).numpy()))
    for library, expected in kept:  # also those that were loaded before
        np.testing.assert_allclose(library.net(x.numpy()), expected, 1e-5, 1e-6)
