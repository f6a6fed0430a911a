"""Files that are written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside, which takes the place of the one at path at the end.

    Raises:
        FileNotFoundError: the folder is not there.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"a file is written into a folder that exists, but for {str(path)!r} there "
            f"is no folder {str(path.parent)!r}; make it first"
        )
    with tempfile.TemporaryDirectory(
        dir=path.parent, prefix=f".{path.name}."
    ) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        temporary.replace(path)
