"""Models of DeepXDE that are trained by second-order methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import paddle
from paddle import Tensor

from ..transforms.containers.tree import flatten_tree
from .deepxde_losses import ModelLosses, as_tensors, loss_functions_cell
from .functional_loss import NetCall, Term
from .searches import Progress, SearchOptimizer, overwrite, state_of
from .second_order import as_settings


class ModelOptimizer(SearchOptimizer):
    """A model's optimizer.

    Attributes:
        seconds: the time of a training, or None.
    """

    seconds: float | None = None

    def step(self, *_: Any) -> None:
        """Refuse a step of the library's own training.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{self.method} trains within taylor_mode() alone; call "
            "model.train(...) there"
        )


class ModelLoss:
    """The loss of a model at the points of a batch.

    Args:
        model: the model.
        batch: points, values, and values at points, as the model's data gives them.
    """

    def __init__(
        self,
        model: Any,
        batch: Sequence[Any],
    ) -> None:
        self._model = model
        self._losses = ModelLosses(model.outputs_losses_train, model)
        self._batch = batch
        self._data = _tensors_of(batch)
        self._state: Any = None
        self.tensors, self.net_tensors = model.opt.trained(model.net)
        inputs = self._data[0]
        is_matrix = isinstance(inputs, Tensor) and inputs.ndim == 2
        self.points = (int(inputs.shape[0]),) if is_matrix else ()

    def total(self) -> Tensor:
        """Return the loss."""
        result: Tensor = self._all()[1].sum()
        return result

    def terms(self, call_net: Callable[[NetCall], NetCall] | None = None) -> list[Term]:
        """Return the weighted means of squares."""
        from deepxde.losses import mean_squared_error, zero

        cell = loss_functions_cell(self._model.outputs_losses_train)
        native, errors = cell.cell_contents, []

        def noted(function: Any) -> Any:
            if function not in (mean_squared_error, zero):
                name = getattr(function, "__name__", function)
                raise ValueError(
                    f"{self._model.opt.method} needs a loss of mean squares, "
                    f'and the model has {name}; compile it with loss="MSE", or with '
                    '"self_scaled_broyden", which takes any loss'
                )

            def note(y_true: Any, y_pred: Any) -> Any:
                errors.append(y_true - y_pred if function is not zero else None)
                return function(y_true, y_pred)

            return note

        with ExitStack() as stack:
            is_list = isinstance(native, list | tuple)
            cell.cell_contents = [*map(noted, native)] if is_list else noted(native)
            stack.callback(setattr, cell, "cell_contents", native)
            if call_net is not None:
                net = self._model.net
                stack.callback(setattr, self._model, "net", net)
                self._model.net = _Called(net, call_net(net))
            losses = self._all()[1]
        if len(errors) != losses.shape[0]:
            raise ValueError(
                f"{self._model.opt.method} needs a loss of mean squares, and "
                f"{type(self._model.data).__name__} computes others beside; compile "
                'the model with "self_scaled_broyden", which takes any loss'
            )
        weights = self._model.loss_weights  # perhaps an array
        if weights is None:
            weights = [1.0] * len(errors)
        return [
            Term(e, float(w))
            for e, w in zip(errors, weights, strict=True)
            if e is not None
        ]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have conditions give tensors, and nets run natively."""
        with self._losses.points.as_tensors(self._model.data):
            yield

    def moved_to(self, batch: Sequence[Any]) -> bool | None:
        """Take other points; tell whether there were others; None if it can't."""
        if self._state is None:
            self._state = state_of(self._losses.loss.state)
        if not self._losses.is_same_as(self._model.outputs_losses_train):
            return None
        if not self._state.is_same():
            self._state = None
            return None
        if self._is_at(batch):
            return False
        if not overwrite(self._data, _tensors_of(batch)):
            return None
        self._batch = batch
        return True

    def _is_at(self, batch: Sequence[Any]) -> bool:
        """Tell whether these are the same arrays."""
        old, new = (flatten_tree(tuple(x))[0] for x in (self._batch, batch))
        return len(old) == len(new) and all(
            a is b for a, b in zip(old, new, strict=True)
        )

    def _all(self) -> Any:
        """Return the model's outputs and losses."""
        return self._losses.loss.fn(*self._data)


class _Called:
    """A net of which calls go elsewhere."""

    def __init__(self, net: Any, call: NetCall) -> None:
        self._net, self._call = net, call

    def __call__(self, inputs: Tensor) -> Any:
        return self._call(inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)


def _tensors_of(batch: Sequence[Any]) -> tuple[Any, ...]:
    with paddle.no_grad():
        inputs, targets, *rest = batch
        result = (
            *map(as_tensors, (inputs, targets)),
            as_tensors(rest[0] if rest else None),
        )
        return result


def optimizers_get(native: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the library's choice of an optimizer by its name, to have ours, too."""

    @wraps(native)
    def get(params: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        settings = as_settings(optimizer)
        if settings is None:
            return native(params, optimizer, *args, **kwargs)
        if kwargs.get("weight_decay") is not None:
            raise ValueError(
                f"{settings.method} takes no regularizer; leave it out of the net"
            )
        if kwargs.get("learning_rate") is not None or kwargs.get("decay") is not None:
            print(f"Warning: learning rate is ignored for {settings.method}")
        return ModelOptimizer(settings.method, settings.options, params)

    return get


def model_train(native: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a model's training, which may be given seconds."""

    @wraps(native)
    def train(
        model: Any, *args: Any, seconds: float | None = None, **kwargs: Any
    ) -> Any:
        ours = isinstance(model.opt, ModelOptimizer)
        if seconds is not None:
            if not ours:
                raise TypeError(
                    "seconds are for second-order methods; give iterations, or the "
                    "callback dde.callbacks.Timer"
                )
            if not args:
                kwargs.setdefault("iterations", sys.maxsize)
        if ours:
            model.opt.seconds = seconds
        return native(model, *args, **kwargs)

    return train


def train_loop(native: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the loop of a model's training."""

    @wraps(native)
    def train(model: Any, iterations: int, display_every: int, verbose: int = 1) -> Any:
        if not isinstance(model.opt, ModelOptimizer):
            return native(model, iterations, display_every, verbose=verbose)
        _Training(model, iterations, display_every, verbose).run()

    return train


class _Training:
    """One training of a model, step by step."""

    def __init__(
        self, model: Any, iterations: int, display_every: int, verbose: int
    ) -> None:
        self._model = model
        self._iterations, self._display_every = iterations, display_every
        self._verbose = verbose
        steps = float(iterations) if iterations < sys.maxsize else float("inf")
        self._progress = Progress(steps, model.opt.seconds)
        if model.opt.search is not None:
            model.opt.search.forget_if_moved()

    def run(self) -> None:
        """Train until the steps or the time are over, or no step goes down."""
        model, progress = self._model, self._progress
        state, callbacks, done = model.train_state, model.callbacks, 0
        try:
            while done < self._iterations and not model.stop_training:
                callbacks.on_epoch_begin()
                callbacks.on_batch_begin()
                batch = model.data.train_next_batch(model.batch_size)
                state.set_data_train(*batch)
                search = model.opt.search_at(batch, partial(ModelLoss, model, batch))
                loss = search.step()
                if loss is None and self._verbose > 0:
                    print(f"{model.opt.method} has ended: {search.reason}.")
                if loss is not None:
                    done += 1
                    state.iteration += 1
                    state.step += 1
                    progress.show(done, loss, search.damping)
                is_last = loss is None or done == self._iterations or progress.is_over
                if is_last or state.step % self._display_every == 0:
                    progress.close()
                    model._test(verbose=self._verbose)
                callbacks.on_batch_end()
                callbacks.on_epoch_end()
                if is_last:
                    break
        finally:
            progress.close()
