"""Machine code in a folder, by which later processes compile nothing."""

import hashlib
import os
import stat
from pathlib import Path

import paddle
import pytest

from conftest import programs_on, randn, run_code
from paddle_chainrules import make_program
from paddle_chainrules.programs.codegen import jit_engine, object_cache
from paddle_chainrules.programs.codegen.fused_kernels import entries

pytestmark = programs_on

STEP = """
import sys
import paddle
from paddle_chainrules import FCNet, jit, value_and_grad
from paddle_chainrules.programs.codegen import jit_engine as machine

made = []
native = machine._emit_object
machine._emit_object = lambda *args: made.append(1) or native(*args)
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
    entries._builtin_method()  # compiled once a process, and kept where that happens
    found = tmp_path / "in" / "code"
    monkeypatch.setenv("PADDLE_CHAINRULES_CODE", str(found))
    monkeypatch.setattr(object_cache, "_absolute", {})
    monkeypatch.setattr(object_cache, "_warned", set())
    return found


def code_in(folder):
    """The file of code in it, beside the key."""
    (file,) = (file for file in folder.iterdir() if file.name != object_cache.KEY)
    return file


@pytest.fixture
def forgetful(monkeypatch):
    """A function that has this process forget what it has compiled."""

    def forget():
        monkeypatch.setattr(jit_engine, "_functions_by_text", {})
        monkeypatch.setattr(jit_engine, "_recent", type(jit_engine._recent)())

    forget()
    return forget


def made(x):
    """What a program gives as machine code, of numbers that no other has."""
    fn = make_program(lambda x: paddle.tanh(x * 1.28125) * 0.40625 + x)
    return fn(x).with_loops.function(x)[0]


def refuse(monkeypatch):
    monkeypatch.setattr(
        jit_engine, "_emit_object", lambda *args: pytest.fail("compiled")
    )


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
    file = code_in(folder)
    assert file.stat().st_mode & 0o77 == 0
    assert (folder / object_cache.KEY).stat().st_mode & 0o77 == 0
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
    file = code_in(folder)
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


@pytest.mark.parametrize("mode", [0o757, 0o775])
def test_nor_one_below_a_folder_that_others_may_write_into(folder, forgetful, mode):
    """They could put another in its place."""
    made(randn([13, 6]))
    folder.parent.chmod(mode)
    forgetful()
    with pytest.warns(UserWarning, match=f"others may write into {folder.parent},"):
        made(randn([13, 6]))
    folder.parent.chmod(0o1777)  # as /tmp, where they can't
    forgetful()
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch)
        made(randn([13, 6]))


def test_a_relative_path_is_that_of_the_first_use(
    folder, forgetful, monkeypatch, tmp_path
):
    trap = tmp_path / "trap"
    (trap / "code").mkdir(parents=True)
    folder.parent.mkdir()
    monkeypatch.setenv("PADDLE_CHAINRULES_CODE", "code")
    monkeypatch.chdir(folder.parent)
    x = randn([13, 5])
    made(x)
    file = code_in(folder)
    (trap / "code" / file.name).write_bytes(b"of somebody else")
    monkeypatch.chdir(trap)
    forgetful()
    refuse(monkeypatch)
    made(x)


def as_link(file, other):
    file.rename(other)
    file.symlink_to(other)


def written_by_others(file, other):
    file.chmod(0o666)


def of_somebody_else(file, other):
    os.chown(file, 4321, 4321)


def signed_by_nobody(file, other):
    code = file.read_bytes()[object_cache.LENGTH :]
    file.write_bytes(hashlib.sha256(code).digest() + code)


def of_another_name(file, other):
    """Code that was made, and signed, for another text."""
    made(randn([13, 3]))
    (there,) = {*file.parent.iterdir()} - {file, file.parent / object_cache.KEY}
    there.replace(file)


ATTACKS = (
    as_link,
    written_by_others,
    of_somebody_else,
    signed_by_nobody,
    of_another_name,
)


@pytest.mark.filterwarnings("ignore:machine code is not kept")
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_somebody_else_could_have_put_there_does_not_run(
    attack, folder, forgetful, tmp_path, monkeypatch
):
    if attack is of_somebody_else and os.getuid() != 0:
        pytest.skip("only root can give a file away")
    x = randn([13, 4])
    first = made(x)
    file = code_in(folder)
    attack(file, tmp_path / "other")
    forgetful()
    counts = []
    native = jit_engine._emit_object
    monkeypatch.setattr(
        jit_engine, "_emit_object", lambda *args: counts.append(1) or native(*args)
    )
    assert made(x).tolist() == first.tolist()
    assert counts == [1]
    assert stat.S_ISREG(file.lstat().st_mode)
    assert (file.stat().st_uid, file.stat().st_mode & 0o77) == (os.getuid(), 0)
    forgetful()
    made(x)
    assert counts == [1]


def test_a_key_that_others_can_read_signs_nothing(folder, forgetful):
    x = randn([14, 3])
    made(x)
    (folder / object_cache.KEY).chmod(0o644)
    forgetful()
    with pytest.warns(UserWarning, match="or read a key"):
        made(x)


@pytest.mark.parametrize("there", [b"of the user's own", bytes(32), b""])
def test_what_is_no_key_is_left_alone(folder, forgetful, there):
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    (folder / object_cache.KEY).write_bytes(there)
    (folder / object_cache.KEY).chmod(0o600)
    with pytest.warns(UserWarning, match=r"key in it is none"):
        made(randn([14, 4]))
    assert (folder / object_cache.KEY).read_bytes() == there


def test_links_of_somebody_else_lead_nowhere(folder, forgetful, tmp_path):
    """In a folder such as /tmp, to a folder of the user's."""
    if os.getuid() != 0:
        pytest.skip("only root can give a link away")
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    folder.symlink_to(secret)
    made(randn([14, 5]))  # root's own link
    assert len([*secret.iterdir()]) == 2
    os.chown(folder, 4321, 4321, follow_symlinks=False)
    forgetful()
    with pytest.warns(UserWarning, match=f"{folder} belongs to somebody else"):
        made(randn([14, 6]))
    assert len([*secret.iterdir()]) == 2


def test_links_in_a_circle_lead_nowhere(folder, forgetful):
    folder.parent.mkdir(mode=0o755)
    folder.symlink_to(folder.parent / "other")
    (folder.parent / "other").symlink_to(folder)
    with pytest.warns(UserWarning, match="too many links"):
        made(randn([14, 7]))


@pytest.mark.parametrize("which", ["code", "key"])
def test_a_folder_in_a_file_s_place_is_told(folder, forgetful, which):
    x = randn([14, 8])
    first = made(x)
    file = code_in(folder) if which == "code" else folder / object_cache.KEY
    file.unlink()
    file.mkdir()
    forgetful()
    with pytest.warns(UserWarning, match="no regular file"):
        assert made(x).tolist() == first.tolist()


def test_who_loads_at_the_same_time_takes_nothing_away(folder, forgetful, monkeypatch):
    x = randn([14, 9])
    made(x)
    name = code_in(folder).name
    forgetful()
    refuse(monkeypatch)
    with object_cache.loading(name):  # another process
        made(x)
    assert code_in(folder).name == name


DAMAGED = """
import sys
from pathlib import Path
from paddle_chainrules.programs.codegen import object_cache as kept_code

for file in Path(sys.argv[1]).iterdir():
    if file.name != kept_code.KEY:
        kept_code.store(file.name, b"no code at all")
"""


def test_a_signed_file_that_ends_the_process_is_loaded_once(tmp_path):
    """LLVM reads beyond the end of what is no code, which mostly ends the process."""
    folder = str(tmp_path / "code")
    more = {"PADDLE_CHAINRULES_CODE": folder, "PADDLE_CHAINRULES_LOOPS": "on"}
    first = run_code(STEP, **more).stdout.split()
    assert int(first[0]) > 0
    damage = f"import sys; sys.argv[1:] = [{folder!r}]\n{DAMAGED}"
    assert run_code(damage, **more).returncode == 0
    files = len([*Path(folder).iterdir()]) - 1  # beside the key
    for _ in range(files):
        died = run_code(STEP, **more)
        assert died.returncode <= 0, died
    again = run_code(STEP, **more).stdout.split()
    assert int(again[0]) > 0
    assert again[1:] == first[1:]


def test_what_is_no_folder_is_told_once(folder, forgetful):
    folder.parent.mkdir()
    folder.write_text("a file")
    with pytest.warns(UserWarning, match="is not kept in .*own"):
        made(randn([13, 8]))
    forgetful()
    made(randn([13, 8]))


def test_a_user_that_is_not_there_is_told(folder, forgetful, monkeypatch):
    monkeypatch.setenv("PADDLE_CHAINRULES_CODE", "~nosuchuser/code")
    with pytest.warns(UserWarning, match="there is no such user"):
        made(randn([13, 1]))


def test_a_full_disk_leaves_nothing_behind(folder, forgetful, monkeypatch):
    made(randn([12, 6]))
    before = {*folder.iterdir()}

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        made(randn([13, 7]))
    assert {*folder.iterdir()} == before
