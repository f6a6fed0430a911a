"""Files that are written whole or not at all.

What is written is a file beside, which takes the place of the old one at the end. It is
locked meanwhile, so that what a killed process has left can be told from what another
is writing, and is removed at the next save.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where nothing that is left is removed
    fcntl = None  # type: ignore[assignment]

ENDING = ".part"
LONGEST = 200
"""Bytes of a file's name that are kept in that of the file beside it."""


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Give a new, empty file beside; it takes the place of that at path at the end.

    It has the mode and owner of the old one, from its beginning on, and both file and
    folder are on disk when this ends. A symbolic link stays one: what it points to is
    replaced. An error leaves what was there before.

    Args:
        mode: of a file that was not there, less the umask.

    Raises:
        FileNotFoundError: the folder is not there.
        ValueError: what is there is no regular file.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"a file is written into a folder that exists, but for {str(path)!r} there "
            f"is no folder {str(path.parent)!r}; make it first"
        )
    before = target.lstat() if os.path.lexists(target) else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ValueError(
            f"{path} is no regular file, and would be replaced by one; give another "
            "path"
        )
    _remove_what_was_left(target)
    if before is not None:
        mode = stat.S_IMODE(before.st_mode)
    with _locked_beside(target, mode) as beside:
        yield beside
        if before is not None:
            with suppress(OSError, AttributeError):  # only root may give files away
                os.chown(beside, before.st_uid, before.st_gid)
            os.chmod(beside, mode)
        _to_disk(beside, os.O_RDWR)
        os.replace(beside, target)
    if fcntl is not None:  # where a folder can be opened
        with suppress(OSError):  # but this one can't be read
            _to_disk(target.parent, os.O_RDONLY)


TRIES = 100
"""Names for the file beside, of which another process takes each for one left."""


@contextmanager
def _locked_beside(target: Path, mode: int) -> Iterator[Path]:
    """A new file beside, locked as long as it is written, and gone at the end."""
    mode |= stat.S_IRUSR | stat.S_IWUSR
    for attempt in range(TRIES):
        beside = target.with_name(f"{_beginning(target)}{secrets.token_hex(6)}{ENDING}")
        file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        if (lock(file) and beside.exists()) or attempt == TRIES - 1:
            break
        os.close(file)  # somebody looks whether it was left
        beside.unlink(missing_ok=True)
    if fcntl is None:  # as on Windows, where a file that is open can't be moved
        os.close(file)
    try:
        yield beside
    finally:
        if fcntl is not None:
            os.close(file)
        beside.unlink(missing_ok=True)


def _beginning(target: Path) -> str:
    name = os.fsdecode(os.fsencode(target.name)[:LONGEST])
    return f".{name}."


def _remove_what_was_left(target: Path) -> None:
    """Files that a process wrote beside this one, and was killed."""
    if fcntl is None:
        return
    ends = re.escape(_beginning(target)), re.escape(ENDING)
    left = re.compile("[0-9a-f]{12}".join(ends))
    with suppress(OSError):  # a folder that can't be listed
        for name in filter(left.fullmatch, os.listdir(target.parent)):
            with suppress(OSError):  # it is being written, or is gone already
                file = os.open(target.parent / name, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(target.parent / name)
                finally:
                    os.close(file)


def lock(file: int) -> bool:
    """Lock an open file; whether nobody else has, as far as this system tells."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # without locks
        return True
    return True


def _to_disk(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
