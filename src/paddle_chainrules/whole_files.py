"""Files that are written whole or not at all.

We write a new file beside the old one and rename it at the end. The new file is locked
while it is written. So the next save can tell the leftovers of a killed process from a
file that another process is writing, and removes them.
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
MAX_NAME_BYTES = 200
"""Bytes of a file's name that are kept in that of the file beside it."""


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield the path of a new file, which replaces the one at ``path`` at the end.

    The new file has the mode and owner of the old one. File and folder are synced to
    disk. A symbolic link stays a link, and its target is replaced. An error leaves the
    old file as it was.

    Args:
        mode: the mode of a file that was not there, less the umask.

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
    old_status = target.lstat() if os.path.lexists(target) else None
    if old_status is not None and not stat.S_ISREG(old_status.st_mode):
        raise ValueError(
            f"{path} is no regular file, and would be replaced by one; give another "
            "path"
        )
    _remove_leftovers(target)
    if old_status is not None:
        mode = stat.S_IMODE(old_status.st_mode)
    with _locked_new_file(target, mode) as new_file:
        yield new_file
        if old_status is not None:
            with suppress(OSError, AttributeError):  # only root may give files away
                os.chown(new_file, old_status.st_uid, old_status.st_gid)
            os.chmod(new_file, mode)
        _sync(new_file, os.O_RDWR)
        os.replace(new_file, target)
    if fcntl is not None:  # where a folder can be opened
        with suppress(OSError):  # but this one can't be read
            _sync(target.parent, os.O_RDONLY)


TRIES = 100
"""Names to try for the new file, while other processes lock it to see if it is old."""


@contextmanager
def _locked_new_file(target: Path, mode: int) -> Iterator[Path]:
    """Create the new file, keep it locked, and remove it if it was not renamed."""
    mode |= stat.S_IRUSR | stat.S_IWUSR
    for attempt in range(TRIES):
        new_file = target.with_name(
            f"{_leftover_prefix(target)}{secrets.token_hex(6)}{ENDING}"
        )
        file = os.open(new_file, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        if (lock(file) and new_file.exists()) or attempt == TRIES - 1:
            break
        os.close(file)  # somebody looks whether it was left
        new_file.unlink(missing_ok=True)
    if fcntl is None:  # as on Windows, where a file that is open can't be moved
        os.close(file)
    try:
        yield new_file
    finally:
        if fcntl is not None:
            os.close(file)
        new_file.unlink(missing_ok=True)


def _leftover_prefix(target: Path) -> str:
    name = os.fsdecode(os.fsencode(target.name)[:MAX_NAME_BYTES])
    return f".{name}."


def _remove_leftovers(target: Path) -> None:
    """Remove the new files of processes that were killed while they wrote."""
    if fcntl is None:
        return
    prefix_and_suffix = re.escape(_leftover_prefix(target)), re.escape(ENDING)
    leftover_name = re.compile("[0-9a-f]{12}".join(prefix_and_suffix))
    with suppress(OSError):  # a folder that can't be listed
        for name in filter(leftover_name.fullmatch, os.listdir(target.parent)):
            with suppress(OSError):  # it is being written, or is gone already
                file = os.open(target.parent / name, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(target.parent / name)
                finally:
                    os.close(file)


def lock(file: int) -> bool:
    """Try to lock an open file, and return False if another process holds the lock.

    Systems and file systems without locks count as success.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # without locks
        return True
    return True


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
