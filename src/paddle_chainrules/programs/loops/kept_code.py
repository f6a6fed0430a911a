"""Machine code kept in a folder, for later processes; for who names one.

A file is called by a digest of all that its code was made of: the text in LLVM's
language, the processor and the versions. It begins with a digest of the code, so that
what is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path

from ...whole_files import replacing
from ..switch import CODE, code_folder

LENGTH = hashlib.sha256().digest_size


def name_of(*parts: str) -> str:
    """Of the file whose code is made of these."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def kept(name: str) -> bytes | None:
    """The code of this name, if it is there and whole."""
    folder = _folder()
    if folder is None:
        return None
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    digest, code = data[:LENGTH], data[LENGTH:]
    return code if hashlib.sha256(code).digest() == digest else None


def keep(name: str, code: bytes) -> None:
    """Put code into the folder, whole or not at all; a warning where that can't be."""
    folder = _folder()
    if folder is None:
        return
    try:
        with replacing(folder / name) as file:
            file.touch(mode=0o600)
            file.write_bytes(hashlib.sha256(code).digest() + code)
    except OSError as error:
        _warn(folder, str(error))


@cache
def _folder() -> Path | None:
    """Where code is kept, which is of nobody else."""
    given = code_folder()
    if not given:
        return None
    folder = Path(given).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        _warn(folder, str(error))
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o22):
        _warn(folder, "others may write into it, and what is in it runs")
        return None
    return folder


def _warn(folder: Path, why: str) -> None:
    warnings.warn(
        f"machine code is not kept in {folder} ({why}); set {CODE} to a folder of "
        "your own that others may not write into, or unset it",
        stacklevel=2,
    )
