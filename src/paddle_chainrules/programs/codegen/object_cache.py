"""A cache of machine code in a folder for later processes, if the user names one.

The name of a file is a digest of everything its code was made from: the LLVM text, the
processor and the versions. The code in it runs with the user's rights, so we make sure
that nobody else could have written it:

- We check the folder before each use, along its absolute path. The folder belongs to
  the user. Every folder above it and every link on the way belongs to the user or root.
  Nobody else may write into any of them, except sticky folders such as ``/tmp``. We
  check from the root down, so nobody else can change what the next name leads to.
- We open files without following links. They belong to the user, and nobody else may
  write into them.
- Each file starts with a signature. The key lies in the folder, and only the user can
  read it. Damaged files and files made elsewhere do not run.
- A file that crashed a process while it was loaded is not loaded again. A locked mark
  beside it exists only while it is being loaded.
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

from ...settings import CODE, code_folder
from ...whole_files import lock, replacing

LENGTH = hashlib.sha256().digest_size
KEY = "paddle_chainrules.key"
FIRST_LINE = b"the key that signs the machine code in this folder\n"
MARK = ".loading"
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ANYTHING_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
MAX_LINKS = 40
"""The most links on the way to the folder."""


class CacheUnusable(Exception):
    """The reason why the folder can't be used."""


def cache_key(*inputs: str) -> str:
    """Return the file name of code, a digest of all its inputs."""
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()


def lookup(name: str) -> bytes | None:
    """Return the cached code of this name, if it is undamaged and signed."""
    folder_and_key = _folder_and_key()
    if folder_and_key is None:
        return None
    folder, key = folder_and_key
    file = folder / name
    if _crashed_while_loading(folder / f"{name}{MARK}"):
        _remove(file)
        return None
    try:
        data = _read_owned_file(file, WRITTEN_BY_OTHERS)
    except CacheUnusable as reason:
        _warn(folder, f"a file in it is made anew: {reason}")
        _remove(file)
        return None
    if data is None:
        return None
    signature, code = data[:LENGTH], data[LENGTH:]
    return code if hmac.compare_digest(_signature(key, name, code), signature) else None


def store(name: str, code: bytes) -> None:
    """Save code in the folder, and warn if that fails."""
    folder_and_key = _folder_and_key()
    if folder_and_key is None:
        return
    folder, key = folder_and_key
    try:
        _remove(folder / name)
        _write(folder / name, _signature(key, name, code) + code)
    except (OSError, ValueError) as error:
        _warn(folder, _reason(error))


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Mark a file while it is loaded, which may crash this process."""
    folder_and_key = _folder_and_key()
    if folder_and_key is None:
        yield
        return
    mark, descriptor = folder_and_key[0] / f"{name}{MARK}", None
    with suppress(OSError):  # a folder that can only be read
        descriptor = os.open(mark, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        is_locked = descriptor is not None and lock(
            descriptor
        )  # or another loads it, too
        yield
        if is_locked:
            _remove(mark)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _crashed_while_loading(mark: Path) -> bool:
    """Tell whether a crash left a mark, and remove the mark."""
    try:
        descriptor = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not lock(descriptor):
            return False
        _remove(mark)
        return True
    finally:
        os.close(descriptor)


def _signature(key: bytes, name: str, code: bytes) -> bytes:
    return hmac.digest(key, name.encode() + b"\0" + code, "sha256")


def _folder_and_key() -> tuple[Path, bytes] | None:
    """Return the folder and its key, or None after a warning."""
    setting = code_folder()
    if not setting:
        return None
    expanded = os.path.expanduser(setting)
    absolute = Path(_absolute.setdefault(setting, os.path.abspath(expanded)))
    try:
        if expanded.startswith("~"):
            raise CacheUnusable("there is no such user")
        if not hasattr(os, "geteuid"):
            raise CacheUnusable("this system does not tell who may write into a folder")
        folder = _trusted_folder(absolute)
        return folder, _signing_key(folder)
    except (CacheUnusable, OSError, ValueError) as error:
        _warn(absolute, _reason(error))
        return None


_absolute: dict[str, str] = {}
"""Folders by their names in the environment, resolved at the first use."""


def _trusted_folder(path: Path) -> Path:
    """Return the folder that a path leads to, and create it if it is missing.

    Raises:
        CacheUnusable: somebody else could put something into it.
        OSError: it is missing and can't be made.
    """
    user, links = os.geteuid(), 0
    current, remaining = Path(path.anchor), [*reversed(path.parts[1:])]
    status = current.lstat()
    while remaining:
        component = remaining.pop()
        if component == "..":
            current = current.parent
            continue
        candidate = current / component
        if not os.path.lexists(candidate):
            candidate.mkdir(mode=0o700, exist_ok=True)
        status = candidate.lstat()
        if status.st_uid not in (user, 0):
            raise CacheUnusable(
                f"{candidate} belongs to somebody else, and what is in it runs"
            )
        if stat.S_ISLNK(status.st_mode):
            links += 1
            target = Path(os.readlink(candidate))
            if links > MAX_LINKS:
                raise CacheUnusable(f"{candidate} is one of too many links")
            current = Path(target.anchor) if target.is_absolute() else current
            remaining += reversed(target.parts[target.is_absolute() :])
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise CacheUnusable(f"{candidate} is no folder")
        if status.st_mode & WRITTEN_BY_OTHERS and not status.st_mode & stat.S_ISVTX:
            raise CacheUnusable(
                f"others may write into {candidate}, and what is in it runs"
            )
        current = candidate
    status = current.lstat()
    if status.st_uid != user or status.st_mode & WRITTEN_BY_OTHERS:
        raise CacheUnusable(f"others may write into {current}, and what is in it runs")
    return current


def _signing_key(folder: Path) -> bytes:
    """Return the key that signs files, and create it if there is none.

    Raises:
        CacheUnusable: the file is not such a key, or others may read it.
        OSError: it can't be made.
    """
    file = folder / KEY
    content = _read_owned_file(file, ANYTHING_BY_OTHERS)
    if content is None:
        _write(file, FIRST_LINE + secrets.token_bytes(LENGTH))
        content = _read_owned_file(
            file, ANYTHING_BY_OTHERS
        )  # perhaps another process's
    if content is None or not content.startswith(FIRST_LINE):
        raise CacheUnusable(f"{KEY} in it is none")
    return content[len(FIRST_LINE) :]


def _write(file: Path, data: bytes) -> None:
    """Write a file that only this user may read."""
    with replacing(file, 0o600) as beside:
        beside.write_bytes(data)


def _read_owned_file(file: Path, forbidden: int) -> bytes | None:
    """Return the content of a file of this user's, or None if it is missing.

    Raises:
        CacheUnusable: others could have put it there, or can read it.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CacheUnusable(f"{file.name} is a link, or {_reason(error)}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CacheUnusable(f"{file.name} is no regular file")
        if status.st_uid != os.geteuid():
            raise CacheUnusable(f"{file.name} belongs to somebody else")
        if status.st_mode & forbidden:
            raise CacheUnusable(f"others may write into {file.name}, or read a key")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def _reason(error: Exception) -> str:
    """Return the error's text without file names, which change from call to call."""
    return getattr(error, "strerror", None) or str(error)


_warned: set[str] = set()


def _warn(folder: Path, reason: str) -> None:
    message = (
        f"machine code is not kept in {folder} ({reason}); set {CODE} to a folder of "
        "your own that others may not write into, or unset it"
    )
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=2)
