"""Files that are written whole or not at all, whatever happens to who writes."""

import os
import signal
import stat
import subprocess
import sys

import paddle
import pytest

from paddle_chainrules import FCNet, distributed, load_params, save_params
from paddle_chainrules.whole_files import replacing

NET = FCNet((3, 5, 2))
PARAMS, OTHERS = NET.init(0), NET.init(1)
SAVERS = {
    ".npz": save_params,
    ".safetensors": save_params,
    "": distributed.save_checkpoint,
}
saver = pytest.mark.parametrize("suffix", SAVERS, ids=["npz", "safetensors", "run"])


def load(path):
    return load_params(path, NET) if path.suffix else distributed.load_checkpoint(path)


def are(params, path):
    found = load(path)
    return all(found[name].equal_all(value) for name, value in params.items())


@saver
def test_a_link_stays_one_and_a_file_keeps_its_mode(suffix, tmp_path):
    save = SAVERS[suffix]
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / f"net{suffix}", tmp_path / f"link{suffix}"
    link.symlink_to(target)
    save(link, PARAMS)
    assert link.is_symlink()
    assert target.is_file()
    usual = os.umask(0)
    os.umask(usual)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~usual
    target.chmod(0o604)
    save(link, OTHERS)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert are(OTHERS, target)
    assert [file.name for file in target.parent.iterdir()] == [target.name]


@saver
def test_what_is_no_file_is_left_alone(suffix, tmp_path):
    pipe, folder = tmp_path / f"pipe{suffix}", tmp_path / f"folder{suffix}"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in pipe, folder:
        with pytest.raises(ValueError, match="no regular file"):
            SAVERS[suffix](path, PARAMS)
        with pytest.raises(ValueError, match="no regular file"):
            are(PARAMS, path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [folder, pipe]


KILLED = """
import os, signal, sys
from pathlib import Path
from paddle_chainrules.whole_files import replacing

with replacing(Path(sys.argv[1])) as beside:
    beside.write_bytes(b"half")
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    print("writing", flush=True)
    sys.stdin.read()
    beside.write_bytes(b"whole")
"""


def writer(path, what):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", KILLED, path, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_next_save_removes_what_a_killed_one_left(tmp_path):
    path = tmp_path / "net.npz"
    save_params(path, PARAMS)
    for _ in range(2):
        process = writer(path, "killed")
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert len([*tmp_path.iterdir()]) == 2  # the second has removed the first's
    assert are(PARAMS, path)
    writing = writer(path, "to its end")
    assert writing.stdout.readline() == "writing\n"
    save_params(path, OTHERS)
    assert are(OTHERS, path)
    assert len([*tmp_path.iterdir()]) == 2  # what is being written is left alone
    writing.communicate()
    assert writing.returncode == 0
    assert path.read_bytes() == b"whole"
    assert [*tmp_path.iterdir()] == [path]


def test_an_error_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted():
        with replacing(path) as beside:
            beside.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_the_longest_name(tmp_path):
    path = tmp_path / ("é" * 127)
    save = distributed.save_checkpoint
    save(path, {"step": 1})
    save(path, {"step": 2})
    assert distributed.load_checkpoint(path) == {"step": 2}


FULL = """
import resource, sys
import paddle
from pathlib import Path
from paddle_chainrules import distributed, save_params

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
path = Path(sys.argv[1])
save = save_params if path.suffix else distributed.save_checkpoint
try:
    save(path, {"w": paddle.ones([100_000])})
except OSError as error:
    print(type(error).__name__, error.errno)
"""


@saver
def test_a_full_disk_is_an_error_of_the_system(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    SAVERS[suffix](path, PARAMS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FULL, path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "OSError 27\n", done
    assert are(PARAMS, path)
    assert [*tmp_path.iterdir()] == [path]


@saver
def test_what_could_not_be_read_again_is_not_written(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    SAVERS[suffix](path, PARAMS)
    one = paddle.ones([2])
    indices, values = paddle.to_tensor([[0, 1]]), paddle.ones([2])
    sparse = paddle.sparse.sparse_coo_tensor(indices, values, [3])
    refused = [
        ({"\ud800": one}, ValueError, "text|name"),
        ({"w": sparse}, TypeError, "sparse"),
        ({"w": one.astype("float8_e4m3fn")}, TypeError, "float8_e4m3fn"),
    ]
    refused += {
        ".npz": [({"a\0b": one}, ValueError, r"the name 'a\\x00b'; rename")],
        ".safetensors": [
            ({"__metadata__": one}, ValueError, "has for its own; rename"),
            ({"w": one.astype("complex128")}, TypeError, "complex128.*as_real"),
        ],
        "": [
            ({"w": {"x": (one, object())}}, TypeError, r"object at state\['w'\]"),
        ],
    }[suffix]
    if not suffix:
        del refused[0]  # names are in JSON there
    for params, kind, told in refused:
        with pytest.raises(kind, match=told):
            SAVERS[suffix]({"": path}.get(suffix, path), params)
    assert are(PARAMS, path)
    assert [*tmp_path.iterdir()] == [path]


def test_a_circle_of_links_is_left_alone(tmp_path):
    path = tmp_path / "net.npz"
    path.symlink_to(path)
    with pytest.raises(ValueError, match="no regular file"):
        save_params(path, PARAMS)
    assert path.is_symlink()


def test_files_of_the_user_s_own_are_left_alone(tmp_path):
    own = tmp_path / ".net.npz.mine.part"
    own.write_text("of the user")
    save_params(tmp_path / "net.npz", PARAMS)
    assert own.read_text() == "of the user"


def test_who_holds_the_lock_of_a_new_file_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr("paddle_chainrules.whole_files.lock", lambda file: False)
    save_params(tmp_path / "net.npz", PARAMS)
    assert are(PARAMS, tmp_path / "net.npz")
    assert len([*tmp_path.iterdir()]) == 1


def test_a_file_is_as_private_as_before_while_it_is_written(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as beside:
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        beside.write_text("new")
