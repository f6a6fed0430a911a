"""Machine code in a folder, by which later processes compile nothing."""

import paddle
import pytest

from conftest import programs_on, randn, run_code
from paddle_chainrules import make_program
from paddle_chainrules.programs.loops import kept_code, machine

pytestmark = programs_on

STEP = """
import sys
import paddle
from paddle_chainrules import FCNet, jit, value_and_grad
from paddle_chainrules.programs.loops import machine

made = []
native = machine._object
machine._object = lambda *args: made.append(1) or native(*args)
net = FCNet((3, 7, 2), "tanh")
params, x = net.init(0), paddle.arange(15.0).reshape([5, 3]) / 7
step = jit(value_and_grad(lambda params, x: (net(params, x) ** 2).mean()))
for _ in range(40):
    value, grads = step(params, x)
print(len(made), value.item(), *(float(g.sum()) for g in grads.values()))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is used by programs as if this process began with it."""
    found = tmp_path / "in" / "code"
    monkeypatch.setenv("PADDLE_CHAINRULES_CODE", str(found))
    kept_code._folder.cache_clear()
    yield found
    kept_code._folder.cache_clear()


@pytest.fixture
def forgetful(monkeypatch):
    """A function that has this process forget what it has compiled."""

    def forget():
        monkeypatch.setattr(machine, "_known", {})
        monkeypatch.setattr(machine, "_last", type(machine._last)())

    forget()
    return forget


def made(x):
    """What a program gives as machine code, of numbers that no other has."""
    fn = make_program(lambda x: paddle.tanh(x * 1.28125) * 0.40625 + x)
    return fn(x).with_loops.function(x)[0]


def refuse(monkeypatch):
    monkeypatch.setattr(machine, "_object", lambda *args: pytest.fail("compiled"))


def test_another_process_compiles_nothing(tmp_path):
    variables = {"CODE": str(tmp_path / "code"), "LOOPS": "on", "PROGRAMS": "on"}
    more = {f"PADDLE_CHAINRULES_{name}": value for name, value in variables.items()}

    def run():
        done = run_code(STEP, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, second = run(), run()
    assert int(first[0]) > 0
    assert int(second[0]) == 0
    assert first[1:] == second[1:]


def test_code_is_kept_for_its_text(folder, forgetful, monkeypatch):
    x = randn([13, 11])
    first = made(x)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o77 == 0
    assert folder.stat().st_mode & 0o77 == 0
    forgetful()
    refuse(monkeypatch)
    assert made(x).tolist() == first.tolist()
    with pytest.raises(pytest.fail.Exception):
        made(randn([13, 12]))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_what_is_damaged_is_made_anew(folder, forgetful, damage):
    x = randn([13, 10])
    first = made(x)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    bad = {"cut": whole[:-9], "changed": whole[:-9] + b"\0" * 9, "empty": b""}[damage]
    file.write_bytes(bad)
    forgetful()
    assert made(x).tolist() == first.tolist()
    assert file.read_bytes() == whole


def test_a_folder_that_others_may_write_into_is_not_used(folder, forgetful):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write.*CHAINRULES_CODE"):
        made(randn([13, 9]))
    assert not [*folder.iterdir()]


def test_what_is_no_folder_is_told_once(folder, forgetful):
    folder.parent.mkdir()
    folder.write_text("a file")
    with pytest.warns(UserWarning, match="is not kept in .*own"):
        made(randn([13, 8]))
    forgetful()
    made(randn([13, 8]))


def test_a_full_disk_leaves_nothing_behind(folder, forgetful, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_code.Path, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        made(randn([13, 7]))
    assert not [*folder.iterdir()]
