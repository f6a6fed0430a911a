"""Machine code kept in a folder, for later processes; for who names one.

A file is called by a digest of all that its code was made of: the text in LLVM's
language, the processor and the versions. What is in it runs, so that it must be ours:

- The folder is looked at before each use, by its absolute path: it belongs to this
  user, and each folder above it to this user or root. Nobody else may write into any of
  them, but for those like ``/tmp`` where nobody can rename what is another's. From the
  top down, nobody else can therefore change what the next name leads to.
- A file is opened without following links, belongs to this user, and nobody else may
  write into it.
- It begins with a signature by a key that lies in the folder and that nobody else may
  read, so that a file of this user's that was made elsewhere does not run, nor a
  damaged one.
- A file that ended the process when it was loaded is not loaded again: a mark beside it
  says that somebody had begun.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...whole_files import replacing
from ..switch import CODE, code_folder

LENGTH = hashlib.sha256().digest_size
KEY = "key"
MARK = ".loading"
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ANYTHING_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def name_of(*parts: str) -> str:
    """Of the file whose code is made of these."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def kept(name: str) -> bytes | None:
    """The code of this name, if it is there, whole and ours."""
    folder = _folder()
    key = None if folder is None else _key(folder)
    if folder is None or key is None:
        return None
    file, mark = folder / name, folder / f"{name}{MARK}"
    if mark.exists():
        _remove(file)
        _remove(mark)
        return None
    data = _own_bytes(file, WRITTEN_BY_OTHERS)
    if data is None:
        return None
    signature, code = data[:LENGTH], data[LENGTH:]
    return code if hmac.compare_digest(_signature(key, name, code), signature) else None


def keep(name: str, code: bytes) -> None:
    """Put code into the folder, whole or not at all; a warning where that can't be."""
    folder = _folder()
    key = None if folder is None else _key(folder)
    if folder is None or key is None:
        return
    try:
        _remove(folder / name)
        _write(folder / name, _signature(key, name, code) + code)
    except OSError as error:
        _warn(folder, str(error))


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Mark a file while it becomes part of this process, which may end by that."""
    folder = _folder()
    if folder is None:
        yield
        return
    mark = folder / f"{name}{MARK}"
    with suppress(OSError):  # a folder that can only be read
        mark.touch(mode=0o600)
    yield
    _remove(mark)


def _signature(key: bytes, name: str, code: bytes) -> bytes:
    return hmac.digest(key, name.encode() + b"\0" + code, "sha256")


def _key(folder: Path) -> bytes | None:
    """What files are signed with, which is made where there is none."""
    file = folder / KEY
    found = _own_bytes(file, ANYTHING_BY_OTHERS)
    if found is None or len(found) != LENGTH:
        try:
            _write(file, secrets.token_bytes(LENGTH))
        except OSError as error:
            _warn(folder, str(error))
            return None
        found = _own_bytes(file, ANYTHING_BY_OTHERS)  # perhaps another process's
    return found


def _write(file: Path, data: bytes) -> None:
    """Write a file that nobody else may read, whole or not at all."""
    with replacing(file) as beside:
        beside.chmod(0o600)
        beside.write_bytes(data)


def _own_bytes(file: Path, forbidden: int) -> bytes | None:
    """What is in a file of this user's; one that is none of ours is removed."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        _refuse(file, "it can't be opened, or is a link")
        return None
    with open(number, "rb") as stream:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            _refuse(file, "it is no regular file")
        elif found.st_uid != os.geteuid():
            _refuse(file, "it belongs to somebody else")
        elif found.st_mode & forbidden:
            _refuse(file, "others may write into it, or read a key")
        else:
            return stream.read()
    return None


def _refuse(file: Path, why: str) -> None:
    _warn(file.parent, f"{file.name} is made anew: {why}")
    _remove(file)


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


_resolved: dict[str, Path] = {}
"""Folders by what the environment says of them, as they were at the first use."""


def _folder() -> Path | None:
    """Where code is kept, if nobody else can put anything there."""
    given = code_folder()
    if not given:
        return None
    expanded = os.path.expanduser(given)
    if given not in _resolved:
        _resolved[given] = Path(os.path.realpath(expanded))
    folder = _resolved[given]
    if expanded.startswith("~"):
        why = "there is no such user"
    elif not hasattr(os, "geteuid"):
        why = "this system does not tell who may write into a folder"
    else:
        try:
            _make(folder)
            why = _trouble_with(folder)
        except OSError as error:
            why = str(error)
    if why:
        _warn(folder, why)
        return None
    return folder


def _make(folder: Path) -> None:
    """A folder, and those above it that are missing, for this user alone."""
    if not folder.parent.is_dir():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _trouble_with(folder: Path) -> str:
    """Who else could put something into a folder, or nothing."""
    user = os.geteuid()
    for place in (*reversed(folder.parents), folder):
        found = place.lstat()
        owners = (user,) if place == folder else (user, 0)
        is_sticky = found.st_mode & stat.S_ISVTX and place != folder
        if not stat.S_ISDIR(found.st_mode):
            return f"{place} is no folder any more"
        if found.st_uid not in owners:
            return f"{place} belongs to somebody else, and what is in it runs"
        if found.st_mode & WRITTEN_BY_OTHERS and not is_sticky:
            return f"others may write into {place}, and what is in it runs"
    return ""


_told: set[str] = set()


def _warn(folder: Path, why: str) -> None:
    text = (
        f"machine code is not kept in {folder} ({why}); set {CODE} to a folder of your "
        "own that others may not write into, or unset it"
    )
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=2)
