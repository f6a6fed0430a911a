"""What is raised where there is no program."""

from __future__ import annotations


class CaptureError(RuntimeError):
    """A function that is no straight line of known operators.

    Attributes:
        where: file and line of the function's code.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
