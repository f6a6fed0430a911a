"""Errors and warnings about functions, which other rooms meet by their type."""

from __future__ import annotations


class CaptureError(RuntimeError):
    """Raised for a function that is not a straight line of known operators.

    Attributes:
        reason: the message without the location.
        where: file and line of the function's code.
        raised: whether the function raised an error of its own, which may pass.
    """

    def __init__(self, reason: str, where: str = "", raised: bool = False) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.reason, self.where, self.raised = reason, where, raised


class BatchWarning(UserWarning):
    """Warns that an operator runs for one sample after another."""


class NoRule(Exception):
    """Raised for a variant of an operator without a rule; names a remedy."""
