"""Parameters in files: round trips, and files that are corrupt or hostile."""

import io
import os
import pickle
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import paddle
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import randn
from paddle_chainrules import FCNet, ParamSpec, load_params, save_params, stateless

NET = FCNet((3, 5, 2), "tanh")
PARAMS = NET.init(0)
SUFFIXES = (".npz", ".safetensors")
DTYPES = (
    *("float16", "bfloat16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8", "bool"),
)


def written(suffix, folder, params=PARAMS):
    path = folder / f"net{suffix}"
    save_params(path, params)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_says_itself_what_it_has(suffix, tmp_path):
    given = {
        "w": randn([3, 5], "float64"),
        "b": paddle.to_tensor([1.5, -2.0], "bfloat16"),
        "count": paddle.to_tensor(7),
        "none": paddle.zeros([0, 4]),
    }
    found = load_params(written(suffix, tmp_path, given))
    assert {*found} == {*given}
    for name, tensor in given.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert bool((found[name] == tensor).all())


def test_an_array_of_objects_is_no_parameter(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, w=np.zeros([2]), names=np.array(["a", "bc"]))
    with pytest.raises(ValueError, match="names is of the dtype"):
        load_params(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(suffix, tmp_path):
    path = written(suffix, tmp_path)
    found = load_params(path, NET)
    assert list(found) == list(PARAMS)
    for name, value in PARAMS.items():
        assert found[name].equal_all(value)
        assert found[name].stop_gradient
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    for like in (NET.spec, PARAMS, dict(reversed(PARAMS.items()))):
        again = load_params(path, like)
        assert all(again[n].equal_all(v) for n, v in PARAMS.items())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("shape", [[], [0], [1], [2, 3], [2, 0, 3], [1, 1, 4]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(suffix, shape, dtype, tmp_path):
    values = paddle.to_tensor(np.random.default_rng(0).integers(0, 2, shape))
    given = {"a/b.c": values.astype(dtype), "ü": values.astype(dtype).T}
    found = load_params(written(suffix, tmp_path, given), given)
    for name, value in given.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert bool((found[name] == value).all())


def test_peers_read_and_write_them(tmp_path):
    from safetensors.paddle import load_file, save_file

    with np.load(written(".npz", tmp_path), allow_pickle=False) as found:
        assert list(found) == list(PARAMS)
        for name, value in PARAMS.items():
            np.testing.assert_array_equal(found[name], value.numpy())
    found = load_file(written(".safetensors", tmp_path))
    assert all(found[n].equal_all(v) for n, v in PARAMS.items())

    arrays = {n: v.numpy() for n, v in PARAMS.items()}
    turned = {n: np.asfortranarray(a).astype(">f4") for n, a in arrays.items()}
    for save, each in ((np.savez, arrays), (np.savez_compressed, turned)):
        save(tmp_path / "peer.npz", **each)
        found = load_params(tmp_path / "peer.npz", NET)
        assert all(found[n].equal_all(v) for n, v in PARAMS.items())
    save_file({**PARAMS}, tmp_path / "peer.safetensors", metadata={"made": "by a peer"})
    found = load_params(tmp_path / "peer.safetensors", NET)
    assert all(found[n].equal_all(v) for n, v in PARAMS.items())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_buffers_go_the_same_way(suffix, tmp_path):
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4))
    _, _, buffers = stateless(layer)
    found = load_params(written(suffix, tmp_path, buffers), buffers)
    assert all(found[n].equal_all(b) for n, b in buffers.items())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_net_is_told_what_differs(suffix, tmp_path):
    path = written(suffix, tmp_path)
    with pytest.raises(ValueError, match=r"unknown: \['1.bias', '1.weight'\]"):
        load_params(path, FCNet((3, 5)))
    with pytest.raises(ValueError, match=r"\[3, 5\].*float32.*\[3, 4\].*float32"):
        load_params(path, FCNet((3, 4, 2)))
    with pytest.raises(ValueError, match=r"0.weight.*float32.*needs.*float64"):
        load_params(path, FCNet((3, 5, 2), dtype="float64"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_error_while_writing_leaves_what_was_there(suffix, tmp_path, monkeypatch):
    path = written(suffix, tmp_path)
    before = path.read_bytes()
    target = (
        "numpy.lib.format.write_array"
        if suffix == ".npz"
        else ("paddle_chainrules.tensor_files.memory")
    )

    def fail(file, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target, fail)
    with pytest.raises(OSError, match="No space left"):
        save_params(path, NET.init(1))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(header, content=b""):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


class Hostile:
    def __reduce__(self):
        return open, ("/tmp/paddle-chainrules-was-here", "w")


SPEC = ParamSpec(("w",), ((2,),), ("float32",))
HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"
GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"


def packed(method):
    """A file of few bytes that is much when it is unpacked, and says otherwise."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("w.npy", npy(GOOD, bytes(8)) + bytes(100_000_000))
    data = bytearray(file.getvalue())
    place = data.rfind(b"PK\1\2") + 24
    data[place : place + 4] = struct.pack("<I", len(npy(GOOD, bytes(8))))
    return bytes(data)


HOSTILE = {
    "packed by bzip2": packed(zipfile.ZIP_BZIP2),
    "nothing": b"",
    "no archive": b"PK\x03\x04" + bytes(100),
    "a pickle": pickle.dumps(Hostile()),
    "a pickled array": npz(
        w=npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}")
        + pickle.dumps(np.array([Hostile(), Hostile()]))
    ),
    "code for a header": npz(w=npy("__import__('os').system('true')")),
    "deep nesting": npz(w=npy("(" * 300 + ")" * 300)),
    "a huge shape": npz(w=npy(HUGE)),
    "a bomb": npz(w=npy(GOOD, bytes(50_000_000))),
    "too short": npz(w=npy(GOOD, bytes(7))),
    "too long": npz(w=npy(GOOD, bytes(9))),
    "a negative shape": npz(w=npy(GOOD.replace("2", "-1"), bytes(8))),
    "another version": npz(w=b"\x93NUMPY\x09\x00" + bytes(100)),
    "no header": npz(w=b"\x93NUM"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_archives_are_refused(content, tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=str(path)):
        load_params(path, SPEC)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10_000_000


def safetensors_file(header, content=b""):
    return struct.pack("<Q", len(header)) + header + content


def test_an_entry_that_swallows_the_next_is_refused(tmp_path):
    """A bit in the length of an entry's comment makes the next one a comment."""
    path = tmp_path / "net.npz"
    save_params(path, {"a": randn([2]), "b": randn([3])})
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\x01\x02")
    content[first + 32] = content.index(b"PK\x05\x06") - content.index(
        b"PK\x01\x02", first + 4
    )
    path.write_bytes(content)
    with pytest.raises(ValueError, match="an entry has a comment"):
        load_params(path)


HOSTILE_SAFETENSORS = {
    "nothing": b"",
    "a huge header": struct.pack("<Q", 2**62) + b"{}",
    "no JSON": safetensors_file(b"{nonsense"),
    "a pickle": pickle.dumps(Hostile()),
    "a huge shape": safetensors_file(
        b'{"w":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,8]}}', bytes(8)
    ),
    "overlap": safetensors_file(
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,80]}}', bytes(8)
    ),
    "too much": safetensors_file(
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(500_000)
    ),
    "deep nesting": safetensors_file(b"[" * 5000),
}


@pytest.mark.parametrize(
    "content", HOSTILE_SAFETENSORS.values(), ids=HOSTILE_SAFETENSORS
)
def test_hostile_safetensors_are_refused(content, tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=str(path)):
        load_params(path, SPEC)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    return {suffix: written(suffix, folder).read_bytes() for suffix in SUFFIXES}, folder


edits = st.lists(
    st.tuples(
        st.sampled_from(["change", "cut", "insert", "move"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=6,
)


NO_TEXT = [
    ("change", 0.8036652705882408, b"\0\0\1"),
    ("move", 0.0, b"\0\0"),
    ("move", 0.0, b"\0\0\0"),
    ("change", 0.8036652705882408, b"\0\0\x08"),
]
"""These leave an archive with a name that is no text."""


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=int(os.environ.get("EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(edits=edits)
@example(edits=NO_TEXT)
def test_a_corrupt_file_is_refused_or_well_formed(suffix, edits, files):
    contents, folder = files
    content = bytearray(contents[suffix])
    for kind, where, data in edits:
        i = int(where * len(content))
        if kind == "change":
            content[i : i + len(data)] = data
        elif kind == "cut":
            del content[i : i + 7 * len(data)]
        elif kind == "insert":
            content[i:i] = data
        else:
            content[i:i] = content[i // 2 : i // 2 + 20 * len(data)]
    path = folder / f"corrupt{suffix}"
    path.write_bytes(content)
    found = None
    try:
        found = load_params(path, NET)
    except ValueError as error:
        message = str(error)
    assert str(path) in message if found is None else ParamSpec.of(found) == NET.spec


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_no_file_of_parameters_is_refused_at_once(tmp_path, suffix):
    net = FCNet((3, 4, 2))
    pipe, device, sparse = (
        tmp_path / f"{n}{suffix}" for n in ("pipe", "dev", "sparse")
    )
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with open(sparse, "wb") as file:
        file.truncate(3 * 2**30)
    tracemalloc.start()
    for path, why in (
        (pipe, "no regular file"),
        (device, "no regular file"),
        (sparse, "3221225472 bytes, the parameters of the net are 104"),
        (tmp_path, "parameters are kept in files"),
    ):
        with pytest.raises(ValueError, match=why):
            load_params(path, net)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_name_twice_is_refused(tmp_path):
    net = FCNet((3, 4, 2))
    params, path = net.init(0), tmp_path / "twice.npz"
    save_params(path, params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("0.weight.npy", b"of somebody else")
    with pytest.raises(ValueError, match="some twice"):
        load_params(path, net)
