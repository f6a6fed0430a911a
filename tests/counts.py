"""How often functions are called: for the tests of both languages."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter


class counted:
    """Count the calls of ``"module:attribute"`` within a ``with``."""

    def __init__(self, *names):
        self.calls = [0] * len(names)
        self._names = names

    def __enter__(self):
        self._kept = []
        for i, name in enumerate(self._names):
            module, _, path = name.partition(":")
            *owners, last = path.split(".")
            owner = import_module(module)
            if owners:
                owner = attrgetter(".".join(owners))(owner)
            original = getattr(owner, last)
            self._kept.append((owner, last, original))
            setattr(owner, last, self._counting(i, original))
        return self

    def __exit__(self, *error):
        for owner, last, original in self._kept:
            setattr(owner, last, original)

    def _counting(self, i, original):
        def call(*args, **kwargs):
            self.calls[i] += 1
            return original(*args, **kwargs)

        return call
