"""Products of matrices in machine code, by each library that is here."""

import ctypes
import itertools
import mmap
import os
import sys

import numpy as np
import paddle
import pytest

from conftest import on_threads, randn, run_code
from paddle_chainrules.programs.codegen import jit_engine as loops_machine
from paddle_chainrules.programs.codegen.matrix_products import blas, gemm
from paddle_chainrules.programs.codegen.processor import Processor

llvm = pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")

FOUND = blas.libraries()
SIDES = [
    (name, dtype)
    for name, found in FOUND.items()
    for dtype in blas.DTYPES
    if dtype in found.addresses
]
SIDES += [(name, dtype) for name in ("own", "on") for dtype in blas.DTYPES]
TYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double}
GUARD = 16
CANARY = 1234.5


def compiled(name, dtype, symbols, has_tiles=False):
    """``@product`` and ``@products`` as functions to call from here."""
    real, suffix = gemm.TYPES[dtype]
    parameters = gemm.PARAMETERS.replace("REAL", real)
    many = "i64 %count, i64 %stride_a, i64 %stride_b, i64 %stride_c, " + parameters
    text = gemm.product_text(
        name, dtype, has_tiles, gemm.SMALL_GEMM_ALL_DIMS
    ) + "".join(
        f"\ndefine void @test_{one}({given}) {{\n"
        f"call void @{one}.{suffix}({given})\nret void\n}}"
        for one, given in (("product", parameters), ("products", many))
    )
    if has_tiles:
        text = f"{gemm.tiles_declaration(dtype)}\n{text}"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if has_tiles:
        llvm.add_symbol(gemm.symbol("own", dtype), loops_machine.tiles_address(dtype))
    for symbol, address in symbols.items():
        llvm.add_symbol(symbol, address)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    pointer, size, scalar = ctypes.c_void_p, ctypes.c_int64, TYPES[dtype]
    types = [ctypes.c_bool] * 2 + [size] * 3 + [pointer, size] * 2
    types += [scalar, pointer, size]
    product = ctypes.CFUNCTYPE(None, *types)(
        engine.get_function_address("test_product")
    )
    products = ctypes.CFUNCTYPE(None, *[size] * 4, *types)(
        engine.get_function_address("test_products")
    )
    product.engine = products.engine = engine
    return product, products


KNOWN = {}


def functions(name, dtype):
    if (name, dtype) not in KNOWN:
        chosen = blas.choose_library(name, FOUND)
        found, has_tiles = chosen.names[dtype], name in ("own", "on")
        assert found == name or name == "on"
        assert chosen.text(dtype) == gemm.product_text(
            found, dtype, has_tiles, chosen.max_small_size
        )
        KNOWN[name, dtype] = compiled(found, dtype, chosen.symbols, has_tiles)
    return KNOWN[name, dtype]


def placed(values, ld, odd):
    """Rows of a matrix, ld numbers apart, between canaries, at an odd address or not.

    The whole, the matrix as a view of it, and which numbers are canaries.
    """
    rows, length = values.shape
    size = max(0, (rows - 1) * ld + length)
    step = values.itemsize
    memory = np.empty((size + 2 * GUARD) * step + 128, np.uint8)
    start = -memory.ctypes.data % 64 + (step if odd else 0)
    whole = memory[start : start + (size + 2 * GUARD) * step].view(values.dtype)
    whole[:] = CANARY
    view = np.lib.stride_tricks.as_strided(
        whole[GUARD:], (rows, length), (ld * step, step)
    )
    view[:] = values
    around = np.ones(len(whole), bool)
    np.lib.stride_tricks.as_strided(around[GUARD:], (rows, length), (ld, 1))[:] = False
    return whole, view, around


def address(view):
    return view.ctypes.data


SHAPES = [
    *itertools.product((0, 1, 7), repeat=3),
    *itertools.product((1, 3, 9), (2, 13, 64), (1, 5, 63)),
    (64, 64, 64),
    (65, 63, 31),
    (17, 64, 128),
    (257, 16, 33),
    (11, 5, 600),
    (5, 39, 513),
    (70, 3, 257),
    (130, 70, 97),
]
ERROR = {"float32": 3e-6, "float64": 1e-14}


@pytest.mark.parametrize(("name", "dtype"), SIDES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products_are_numpys(name, dtype, ta, tb):
    product, _ = functions(name, dtype)
    rng = np.random.default_rng(0)
    for i, (m, n, k) in enumerate(SHAPES):
        for extra, beta, odd in itertools.product((0, 5), (0.0, 1.0, -0.5), (0, 1)):
            x, y, z = (
                rng.standard_normal(size).astype(dtype)
                for size in ((m, k), (k, n), (m, n))
            )
            a, b = (x.T if ta else x), (y.T if tb else y)
            old = np.full_like(z, np.nan) if beta == 0 else z
            lds = [max(1, each.shape[1]) + extra * (i % 3 + 1) for each in (a, b, z)]
            whole_a, at_a, _ = placed(a, lds[0], odd)
            whole_b, at_b, _ = placed(b, lds[1], odd)
            whole_c, at_c, around = placed(old, lds[2], odd)
            before = whole_a.copy(), whole_b.copy()
            product(
                *(ta, tb, m, n, k, address(at_a), lds[0], address(at_b), lds[1]),
                *(beta, address(at_c), lds[2]),
            )
            expected = x.astype("float64") @ y.astype("float64")
            if beta:
                expected = expected + beta * z.astype("float64")
            case = f"{m, n, k} {extra=} {beta=} {odd=}"
            largest = max(1.0, np.abs(expected).max(initial=0.0))
            error = np.abs(at_c - expected).max(initial=0.0) / largest
            assert error < ERROR[dtype], f"{case}: {error}"
            assert (whole_c[around] == CANARY).all(), case
            np.testing.assert_array_equal(whole_a, before[0])
            np.testing.assert_array_equal(whole_b, before[1])


@pytest.mark.parametrize(("name", "dtype"), SIDES)
def test_leading_dimensions_that_no_library_takes(name, dtype):
    """Of one row any does; rows that are all the same lie no number apart."""
    product, _ = functions(name, dtype)
    m, n, k = 5, 7, 3
    row, y = randn([1, k], dtype).numpy(), randn([k, n], dtype, 1).numpy()
    c = np.full((m, n), np.nan, dtype)
    product(
        *(False, False, 1, n, k, row.ctypes.data, 0, y.ctypes.data, n),
        *(0.0, c.ctypes.data, 1),
    )
    np.testing.assert_allclose(c[:1], row @ y, rtol=1e-5)
    assert np.isnan(c[1:]).all()
    product(
        *(False, False, m, n, k, row.ctypes.data, 0, y.ctypes.data, n),
        *(0.0, c.ctypes.data, n),
    )
    np.testing.assert_allclose(c, np.repeat(row @ y, m, 0), rtol=1e-5)


@pytest.mark.skipif(
    sys.platform != "linux", reason="memory is taken where it is mapped"
)
@pytest.mark.parametrize("name", [name for name, dtype in SIDES if dtype == "float32"])
def test_rows_further_apart_than_mkls_integers_hold(name):
    product, _ = functions(name, "float32")
    far, m, n, k = 2**31, 2, 3, 4
    reserve_none = 0x4000  # mmap.MAP_NORESERVE, from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve_none
    memory = mmap.mmap(-1, 4 * (far + k), flags=flags)
    a = np.frombuffer(memory, "float32")
    a[:k], a[far : far + k] = 2.0, 3.0
    y, c = randn([k, n]).numpy(), np.full((m, n), np.nan, "float32")
    product(
        *(False, False, m, n, k, a.ctypes.data, far, y.ctypes.data, n),
        *(0.0, c.ctypes.data, n),
    )
    np.testing.assert_allclose(c, np.outer([2.0, 3.0], y.sum(0)), rtol=1e-5)


@pytest.mark.parametrize(("name", "dtype"), SIDES)
def test_numbers_that_are_none_stay_so(name, dtype):
    product, _ = functions(name, dtype)
    for m, n, k in ((2, 3, 4), (1, 5, 3), (4, 1, 9), (9, 17, 33)):
        x, y = np.ones((m, k), dtype), np.ones((k, n), dtype)
        x[0, 1], y[2, n - 1] = np.nan, np.inf
        c = np.zeros((m, n), dtype)
        product(
            *(False, False, m, n, k, x.ctypes.data, k, y.ctypes.data, n),
            *(0.0, c.ctypes.data, n),
        )
        assert np.isnan(c[0]).all()
        assert np.isposinf(c[1:, n - 1]).all()
        assert (c[1:, : n - 1] == k).all()


@pytest.mark.parametrize(("name", "dtype"), SIDES)
def test_many_products(name, dtype):
    _, products = functions(name, dtype)
    count, m, n, k = 5, 10, 7, 16
    x, y = randn([count, m, k], dtype).numpy(), randn([count, k, n], dtype, 1).numpy()
    c = np.full((count, m, n), np.nan, dtype)
    whole, flat, around = placed(c.reshape(1, -1), c.size, odd=1)
    products(
        *(count, m * k, k * n, m * n, False, False, m, n, k),
        *(x.ctypes.data, k, y.ctypes.data, n, 0.0, flat.ctypes.data, n),
    )
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(flat.reshape(c.shape), x @ y, rtol=rtol, atol=rtol)
    assert (whole[around] == CANARY).all()
    products(
        *(count, 0, k * n, m * n, False, False, m, n, k),
        *(x.ctypes.data, k, y.ctypes.data, n, 1.0, flat.ctypes.data, n),
    )
    np.testing.assert_allclose(
        flat.reshape(c.shape), x @ y + x[0] @ y, rtol=10 * rtol, atol=10 * rtol
    )
    products(*(0, 1, 1, 1, False, False, m, n, k, None, k, None, n, 0.0, None, n))


def test_what_a_library_refuses_is_multiplied_all_the_same():
    """By a function with oneDNN's convention that does nothing but say so."""
    calls = []
    types = [blas.C_TYPES[kind] for kind in gemm.signature("onednn", "float32")]

    def refuses(*given):
        calls.append(given[:2])
        return 1

    function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(refuses)
    where = ctypes.cast(function, ctypes.c_void_p).value
    symbol = gemm.symbol("onednn", "float32")
    product, _ = compiled("onednn", "float32", {symbol: where})
    if "onednn" in FOUND:
        llvm.add_symbol(symbol, FOUND["onednn"].addresses["float32"])
    x, y = randn([5, 3]).numpy(), randn([7, 3], seed=1).numpy()
    c = np.ones((5, 7), "float32")
    product(
        *(False, True, 5, 7, 3, x.ctypes.data, 3, y.ctypes.data, 3),
        *(0.5, c.ctypes.data, 7),
    )
    np.testing.assert_allclose(c, x @ y.T + 0.5, rtol=1e-5, atol=1e-6)
    assert calls == [(ord("N"), ord("T"))]


@pytest.mark.skipif("mkl" not in FOUND, reason="Paddle brings no MKL here")
@pytest.mark.parametrize("dtype", blas.DTYPES)
def test_mkl_has_the_bits_of_paddle(dtype):
    product, _ = functions("mkl", dtype)
    for m, n, k in ((64, 64, 64), (7, 5, 3), (100, 16, 16), (33, 2, 65)):
        for ta, tb in itertools.product((False, True), repeat=2):
            x = randn([k, m] if ta else [m, k], dtype)
            y = randn([n, k] if tb else [k, n], dtype, 1)
            expected = paddle.matmul(x, y, transpose_x=ta, transpose_y=tb).numpy()
            c = np.full((m, n), np.nan, dtype)
            a, b = x.numpy(), y.numpy()
            product(
                *(ta, tb, m, n, k, a.ctypes.data, a.shape[1], b.ctypes.data),
                *(b.shape[1], 0.0, c.ctypes.data, n),
            )
            np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize(("name", "dtype"), SIDES)
def test_threads_multiply_at_once(name, dtype):
    product, _ = functions(name, dtype)
    m, n, k = 65, 33, 17
    wrong = []

    def work(seed):
        x, y = randn([m, k], dtype, seed).numpy(), randn([k, n], dtype, -seed % 9)
        y = y.numpy()
        expected = x.astype("float64") @ y.astype("float64")
        for _ in range(200):
            c = np.full((m, n), np.nan, dtype)
            product(
                *(False, False, m, n, k, x.ctypes.data, k, y.ctypes.data, n),
                *(0.0, c.ctypes.data, n),
            )
            if not np.abs(c - expected).max() < 1e-4:
                wrong.append(seed)

    on_threads(work, [(seed,) for seed in range(1, 5)])
    assert not wrong


FORK = """
import os, sys, threading
sys.path[:0] = ["tests", "tests/programs"]
from test_blas import FOUND, SIDES, blas, functions, np

def multiply(name, dtype, n):
    product, _ = functions(name, dtype)
    x, c = np.ones((n, n), dtype), np.empty((n, n), dtype)
    product(False, False, n, n, n, x.ctypes.data, n, x.ctypes.data, n, 0.0,
            c.ctypes.data, n)
    assert (c == n).all()

for name, dtype in SIDES:
    multiply(name, dtype, 200)
blas._lock.acquire()  # as by a thread that is choosing
child = os.fork()
if child == 0:
    for name, dtype in SIDES:
        multiply(name, dtype, 200)
    assert blas.library() is None or blas.library().names
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("both")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_children_of_a_fork_multiply():
    """With one thread; more of OpenMP's are not there in a child."""
    done = run_code(FORK, OMP_NUM_THREADS="1")
    assert done.stdout == "both\n", done.stderr


CHOOSE = """
from paddle_chainrules.programs.codegen.matrix_products.blas import library
found = library()
print(found and dict(found.names))
"""


def test_the_environment_chooses():
    assert run_code(CHOOSE, PADDLE_CHAINRULES_BLAS="off").stdout == "None\n"
    done = run_code(CHOOSE, PADDLE_CHAINRULES_BLAS="fastest")
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: the environment has PADDLE_CHAINRULES_BLAS='fastest'; set it to "
        "'off' to have functions and nets run without, or to 'on', as it is where it "
        "is not set; or to 'mkl', 'onednn', 'openblas', 'own'"
    )


@pytest.mark.skipif("mkl" not in FOUND, reason="Paddle brings no MKL here")
def test_a_library_is_chosen_by_name_or_by_time(monkeypatch):
    mkl = blas.choose_library("mkl", FOUND)
    assert dict(mkl.names) == dict.fromkeys(blas.DTYPES, "mkl")
    assert mkl.reasons["float32"] == "by PADDLE_CHAINRULES_BLAS"
    assert blas.choose_library("on", {}).names == dict.fromkeys(blas.DTYPES, "own")
    assert blas.choose_library("off", FOUND) is None
    with pytest.raises(ValueError, match="BLAS='onednn', .* has mkl; set it to 'on'"):
        blas.choose_library("onednn", {"mkl": FOUND["mkl"]})
    alone = blas.choose_library("on", {"mkl": FOUND["mkl"]})
    assert alone.reasons["float64"] == "there is no other"
    at = {"float32": 1, "float64": 2}
    found = {
        "mkl": blas.LoadedLibrary(at, 1),
        "openblas": blas.LoadedLibrary(at, 1),
        "onednn": blas.LoadedLibrary({"float32": 3}, 1),
    }
    took = {"mkl": 1.0, "openblas": 0.81, "onednn": 0.5}
    asked = []

    def seconds(addresses, dtype, shape):
        asked.extend(addresses)
        return {name: took[name] for name in addresses}

    monkeypatch.setattr(blas, "_seconds", seconds)
    monkeypatch.setattr(blas, "processor", lambda: Processor("cascadelake", ""))
    assert blas.choose_library("on", found).max_small_size == gemm.SMALL_GEMM_TWO_DIMS
    monkeypatch.setattr(blas, "processor", lambda: Processor("znver3", ""))
    stays = blas.choose_library("on", found)
    assert stays.names == {"float32": "mkl", "float64": "mkl"}
    assert stays.max_small_size == gemm.SMALL_GEMM_ALL_DIMS
    assert "onednn" not in asked
    took["openblas"] = 0.7
    assert blas.choose_library("on", found).names == dict.fromkeys(at, "openblas")
    assert "onednn" not in asked
    found["openblas"] = blas.LoadedLibrary(at, 2)
    limited = blas.choose_library("on", found)
    assert limited.names == {"float32": "onednn", "float64": "mkl"}
    assert limited.reasons["float64"] == (
        "openblas takes 0.70 of mkl's time, openblas has 2 threads, Paddle 1"
    )
    forced = blas.choose_library("onednn", found)
    assert forced.names == {"float32": "onednn", "float64": "mkl"}
    assert forced.reasons["float64"].startswith("onednn has no float64, openblas takes")
    assert forced.symbols == {
        "paddle_chainrules.onednn.f32": 3,
        "paddle_chainrules.mkl.f64": 2,
    }
    found["mkl"] = blas.LoadedLibrary(at, 2)  # which shares products of some size
    assert blas.choose_library("on", found).max_small_size == gemm.SMALL_GEMM_TWO_DIMS
    del found["mkl"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert blas.choose_library("on", found).names == {
        "float32": "onednn",
        "float64": "openblas",
    }


@pytest.mark.parametrize("dtype", blas.DTYPES)
def test_own_rows_have_the_same_bits_among_few_and_many(dtype):
    product, _ = functions("own", dtype)
    for n, k in ((64, 64), (19, 300), (4, 5), (3, 70)):
        y = randn([k, n], dtype, 1).numpy()
        x = randn([41, k], dtype).numpy()
        whole = np.full((41, n), np.nan, dtype)
        product(
            *(False, False, 41, n, k, x.ctypes.data, k, y.ctypes.data, n),
            *(0.0, whole.ctypes.data, n),
        )
        for m in (1, 2, 7, 13):
            some = np.full((m, n), np.nan, dtype)
            product(
                *(False, False, m, n, k, x.ctypes.data, k, y.ctypes.data, n),
                *(0.0, some.ctypes.data, n),
            )
            np.testing.assert_array_equal(some, whole[:m])


def test_the_same_is_chosen_by_all_threads():
    found = []
    on_threads(lambda: found.append(blas.library()), [()] * 4)
    assert len(found) == 4
    assert all(each is found[0] for each in found)
