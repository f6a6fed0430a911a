"""Functional modules of a layer, one for every call at a time, and a call with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import optree
import paddle
from paddle import Tensor

from ...paddle_side.listener import not_listening
from ...paddle_side.locks import new_lock
from ...transforms.containers.tree import Tree
from ...transforms.recordings.effects import Effects, differ, versions
from .functional_module import FunctionalModule, StateKey, copied


class FunctionalModules:
    """A layer's structure and copies of it, each for one call at a time.

    Attributes:
        free: those that no call has at the moment.
        changed: attributes and containers that the layer changes, put back after
            every call.
        read: buffers that the layer only reads.
    """

    def __init__(self, layer: paddle.nn.Layer) -> None:
        self._first = FunctionalModule(layer)
        self._lock = new_lock()
        self.free: list[FunctionalModule] = []
        self.changed: set[StateKey] = set()
        self.read: set[str] = set()

    @contextmanager
    def marked(self) -> Iterator[paddle.nn.Layer]:
        """Give the layer with marks where its tensors belong, to be copied."""
        with self._lock:
            try:
                self._first.mark()
                yield self._first.layer
            finally:
                self._first.release()

    def acquire(self) -> FunctionalModule:
        """Return a functional module that no other call has."""
        try:
            return self.free.pop()
        except IndexError:
            with self.marked() as layer, not_listening():
                return FunctionalModule(
                    copied(layer, {}, shared=True), original=self._first
                )


class BoundModule:
    """A functional module with a call's tensors in their slots.

    The first call learns which buffers the layer only reads, and which of its
    attributes and containers it changes; those are put back after every call.

    Args:
        frozen: where the call's buffers are a caller's, those never written into.

    Raises:
        RuntimeError: a buffer that was only read has been written into.
        TypeError: the first call has made parameters.
    """

    def __init__(
        self,
        modules: FunctionalModules,
        effects: Effects,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        frozen: Set[str] | None,
    ) -> None:
        self._modules, self._effects = modules, effects
        self._params, self._buffers = params, buffers
        self._first = effects.writes is None
        # Buffers that need no copies, since a call only reads them.
        self._read_only: Set[str] = set()
        if not effects.copies:
            self._read_only = modules.read if frozen is None else modules.read & frozen

    def __enter__(self) -> BoundModule:
        self._module = self._modules.acquire()
        try:
            self._set_tensors()
        except BaseException:  # an interrupt
            self._module.release()
            self._modules.free.append(self._module)
            raise
        return self

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
        """Return the layer's output, in new containers if some are put back."""
        output = self._module.layer(*args, **kwargs)
        if isinstance(output, Tensor) or not (self._first or self._modules.changed):
            return output
        return optree.tree_map(lambda leaf: leaf, output, none_is_leaf=True)

    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers as the call has left them, off the graph."""
        return {name: self._module.buffer(name) for name in self._buffers}

    def _set_tensors(self) -> None:
        self._module.set_tensors(self._params)
        if self._buffers:
            read_only = self._read_only
            self._call_buffers = {
                n: _detached(b, n in read_only) for n, b in self._buffers.items()
            }
            self._before = versions(map(self._call_buffers.__getitem__, read_only))
            self._module.set_tensors(self._call_buffers)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        modules = self._modules
        try:
            if self._buffers and kind is None:
                self._learn() if self._first else self._check()
        finally:
            new_parameters: list[str] = []
            if self._first:
                new_parameters = self._module.new_parameters()
                modules.changed = self._module.changed_keys()
            if modules.changed:
                self._module.restore(modules.changed)
            self._module.release()
            modules.free.append(self._module)
        if new_parameters and kind is None:
            kind_of = type(self._module.layer).__name__
            raise TypeError(
                f"{kind_of}.forward has made the parameters {new_parameters} at its "
                "first call, which are none of the net's and would not be trained; "
                "call the layer once before stateless(layer), so that it has them"
            )

    def _learn(self) -> None:
        fresh, originals = self._call_buffers, self._buffers
        self._modules.read = {n for n in fresh if not differ(fresh[n], originals[n])}

    def _check(self) -> None:
        if (
            versions(map(self._call_buffers.__getitem__, self._read_only))
            == self._before
        ):
            return
        self._effects.writes = True
        raise RuntimeError(
            f"{type(self._module.layer).__name__}.forward has written into one of the "
            f"buffers {sorted(self._read_only)}, which it only read at its first call; "
            "the value there is changed. From now on it works on copies: make the net "
            "anew by stateless(layer), or give buffers=... with the value restored"
        )


def _detached(buffer: Tensor, shares_memory: bool) -> Tensor:
    return buffer.detach() if shares_memory else buffer.detach().clone()
