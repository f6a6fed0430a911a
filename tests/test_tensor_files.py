"""Tensors in .safetensors files: every bit counts, and no byte is held twice."""

import json
import subprocess
import sys
import threading
import time

import numpy as np
import paddle
import pytest
import safetensors.numpy

from paddle_chainrules import distributed, load_params, save_params
from paddle_chainrules.tensor_files import CHECKSUM, DTYPES

GENERATOR = np.random.default_rng(0)
COMPLEX = GENERATOR.standard_normal((3, 2)) + 1j * GENERATOR.standard_normal((3, 2))
STATE = {
    "w": paddle.to_tensor(GENERATOR.standard_normal((2, 3)).astype("float32")),
    "z": paddle.to_tensor(COMPLEX),
    "step": 3,
    "more": [None, 0.5, "name", (paddle.to_tensor(2, dtype="bfloat16"),)],
}


def same(a, b):
    """Whether two states are equal to the bit."""
    if isinstance(a, paddle.Tensor):
        if not isinstance(b, paddle.Tensor) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, dict):
        return type(b) is dict and [*a] == [*b] and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def flips(content):
    for place in range(len(content)):
        for bit in range(8):
            found = bytearray(content)
            found[place] ^= 1 << bit
            yield bytes(found)


def test_every_bit_of_a_checkpoint_counts(tmp_path):
    path = tmp_path / "run"
    distributed.save_checkpoint(path, STATE)
    assert same(distributed.load_checkpoint(path), STATE)
    content = path.read_bytes()
    count = 0
    for flipped in flips(content):
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match="is no checkpoint"):
            distributed.load_checkpoint(path)
        count += 1
    assert count == 8 * len(content) > 5000


def test_a_flipped_bit_never_changes_a_parameter(tmp_path):
    params = {name: STATE[name] for name in ("w",)}
    path = tmp_path / "net.safetensors"
    save_params(path, params)
    refused = 0
    for flipped in flips(content := path.read_bytes()):
        path.write_bytes(flipped)
        try:
            found = load_params(path, params)
        except ValueError:
            refused += 1
        else:  # in the checksum's name
            assert same(found, params)
    assert refused >= 8 * (len(content) - len(CHECKSUM))


def test_a_checkpoint_without_checksum_is_read(tmp_path):
    path = tmp_path / "run"
    tree = '["dict", [["w", ["tensor", "at"]], ["step", ["plain", 3]]]]'
    safetensors.numpy.save_file({"at": np.ones(2)}, path, {"state": tree})
    found = distributed.load_checkpoint(path)
    assert (found["w"].tolist(), found["step"]) == ([1.0, 1.0], 3)


@pytest.mark.parametrize(
    "tree",
    [
        '["dict", [["w", ["tensor", "at"]], ["w", ["tensor", "at"]]]]',
        '["dict", [["w", ["tensor", "at"]], ["w", ["plain", 1]]]]',
        '["list", [["tensor", "at"], ["tensor", "other"]]]',
        '["list", []]',
        '["set", [["tensor", "at"]]]',
        '["tensor", "at", 3]',
        '["list", [["tensor", "at"], ["plain", [1]]]]',
        '["dict", [["w", ["tensor", "at"]], [1.5, ["plain", 1]]]]',
        '{"list": [["tensor", "at"]]}',
        "[" * 5000,
        "nothing",
    ],
)
def test_containers_that_save_never_makes_are_refused(tree, tmp_path):
    path = tmp_path / "run"
    safetensors.numpy.save_file({"at": np.ones(2)}, path, {"state": tree})
    with pytest.raises(ValueError, match="is no checkpoint"):
        distributed.load_checkpoint(path)


def test_the_library_reads_every_dtype(tmp_path):
    path = tmp_path / "net.safetensors"
    params = {
        dtype: paddle.to_tensor(GENERATOR.integers(0, 2, (5, 3))).astype(dtype)
        for dtype in DTYPES
    }
    params["none"] = paddle.zeros([0, 2])
    params["turned"] = params["float32"].T
    save_params(path, params)
    found = safetensors.deserialize(path.read_bytes())
    assert {name for name, _ in found} == {*params}
    for name, part in found:
        value = params[name]
        assert part["shape"] == value.shape
        assert part["dtype"] == DTYPES[str(value.dtype).removeprefix("paddle.")][0]
        assert bytes(part["data"]) == value.contiguous().numpy().tobytes()
    assert same(load_params(path, params), params)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_complex_numbers(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    kinds = ["complex64"] + ["complex128"] * (suffix == ".npz")
    params = {kind: STATE["z"].astype(kind) for kind in kinds}
    save_params(path, params)
    assert same(load_params(path, params), params)


MEMORY = """
import resource, sys
import paddle
from paddle_chainrules import distributed, load_params, save_params

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = most()
like = {str(i): paddle.empty([25_000_000 + i]) for i in range(4)}
if sys.argv[1] == "save":
    like = {name: value.uniform_() for name, value in like.items()}
    for path in sys.argv[2:]:
        is_run = path.endswith("run")
        (distributed.save_checkpoint if is_run else save_params)(path, like)
elif sys.argv[1] == "load":
    found = distributed.load_checkpoint(sys.argv[2])
else:
    found = load_params(sys.argv[2], like)
print((most() - before) / 400e6)
"""


def test_files_take_no_second_copy_in_memory(tmp_path):
    run, net = str(tmp_path / "run"), str(tmp_path / "net.safetensors")
    for given in (["save", run, net], ["load", run], ["params", net]):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", MEMORY, *given],
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(done.stdout) < 1.2, (given, done.stdout)


def test_what_changes_while_it_is_saved_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "net.safetensors"
    w, stop = paddle.zeros([300_000]), []

    def change():
        while not stop:
            w.add_(paddle.ones([]))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(10):
            save_params(path, {"w": w})
            found = load_params(path, {"w": w})["w"]
            assert 0 <= float(found.min()) <= float(found.max())
    finally:
        stop.append(True)
        thread.join()


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ([2**61] * 100_000, "no shape that a tensor has"),
        ([1] * 12, "no shape that a tensor has"),
        ([0, 2**61, 4], "no shape that a tensor has"),
        ([True], "has no sizes"),
        ([-1], "has no sizes"),
        ([1.0], "has no sizes"),
    ],
)
def test_shapes_that_no_tensor_has(shape, told, tmp_path):
    path = tmp_path / "run"
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    state = {"state": '["tensor", "w"]'}
    header = json.dumps({"__metadata__": state, "w": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=told):
        distributed.load_checkpoint(path)
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize("array", [np.ones(2, "int32"), np.ones(3), np.float64(1.0)])
def test_what_is_no_complex_tensor(array, tmp_path):
    path = tmp_path / "run"
    arrays = {"w": np.asarray(array)}
    safetensors.numpy.save_file(arrays, path, {"state": '["complex", "w"]'})
    with pytest.raises(ValueError, match="no complex tensor"):
        distributed.load_checkpoint(path)
