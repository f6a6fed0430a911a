"""How often functions are called, and what programs run: for both languages' tests."""

from __future__ import annotations

import sys
from importlib import import_module
from operator import attrgetter

from paddle_chainrules.transforms.as_programs.program_recording import run


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


class operators_run:
    """The names of the operators that programs run within a ``with``, in turn."""

    def __init__(self):
        self.names = []

    def __enter__(self):
        loaded = [m for name, m in sys.modules.items() if name.startswith("paddle_")]
        self._patched = [m for m in loaded if vars(m).get("run") is run]
        for module in self._patched:
            module.run = self._running
        return self

    def __exit__(self, *error):
        for module in self._patched:
            module.run = run

    def _running(self, program, tensors):
        self.names += [op.operator.name for op in program.ops]
        return run(program, tensors)
