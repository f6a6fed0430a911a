"""A net's value and derivatives as functions of a library."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor, linspace, zeros_like

from ..nets.derivatives.laplacians import laplacian
from ..nets.layers.stateless import StatelessLayer
from ..nets.net import Net
from ..transforms.containers.tree import flatten_tree
from ..transforms.derivatives.jacobian import jacfwd, jacrev
from ..transforms.derivatives.jvp import jvp
from ..transforms.vmap import vmap
from .exports import Export, FunctionRole, positions

DERIVATIVES = ("vjp", "jvp", "jacobian", "hessian", "laplacian")


def net_exports(
    name: str,
    net: Net,
    args: tuple[Any, ...],
    derivatives: Sequence[str],
    params: str,
    batched: int | Sequence[int] | None,
) -> tuple[dict[str, Export], list[dict[str, Any]]]:
    """Return a net's functions by name, and the layout of its parameters.

    Raises:
        TypeError: parameters or inputs are missing.
        ValueError: an option that there is not, or a derivative that the shapes of
            input and output do not allow.
    """
    if len(args) < 2:
        raise TypeError(
            "a net is saved with its parameters and an example of each input; write "
            "save_library(path, net, params, x)"
        )
    if params not in ("given", "inside"):
        raise ValueError(
            f"params is 'given' or 'inside', got {params!r}; use one of these"
        )
    if not isinstance(derivatives, str | list | tuple | set | frozenset):
        raise TypeError(
            f"derivatives is a list of names, got {derivatives!r}; give some of "
            f"{', '.join(DERIVATIVES)}, or [] for none"
        )
    wanted = (derivatives,) if isinstance(derivatives, str) else tuple(derivatives)
    if unknown := [each for each in wanted if each not in DERIVATIVES]:
        raise ValueError(
            f"derivatives are among {', '.join(DERIVATIVES)}, got {unknown[0]!r}; use "
            "an Export for others"
        )
    theta = args[0] if isinstance(args[0], Tensor) else net.flatten(args[0])
    inputs = args[1:]
    made = _Functions(net, theta.detach(), inputs, params == "inside")
    if batched is not None:
        places = positions(batched, len(args))
        if 0 in places:
            raise ValueError(
                "batched has the position 0, which is that of the parameters; count "
                "the inputs of a net from 1"
            )
        made.batched = tuple(place - 1 for place in places)
    results = {name: made.value()}
    results[name].role = FunctionRole("value", name, params == "given")
    for each in wanted:
        results[f"{name}_{each}"] = getattr(made, each)()
        results[f"{name}_{each}"].role = FunctionRole(each, name, params == "given")
    return results, made.layout()


class _Functions:
    """Functions of ``(theta, *inputs, *further)``, or of the latter with theta inside.

    Attributes:
        batched: the positions of inputs with samples, among the inputs.
    """

    def __init__(
        self, net: Net, theta: Tensor, inputs: tuple[Any, ...], inside: bool
    ) -> None:
        self._net, self._theta, self._inputs = net, theta, inputs
        self._inside = inside
        self._names = _input_names(net, len(inputs))
        self.batched: tuple[int, ...] = tuple(range(len(inputs)))
        self._output = net(theta, *inputs)

    def layout(self) -> list[dict[str, Any]]:
        """Return the place of each parameter in the vector."""
        if self._inside:
            return []
        results, offset = [], 0
        spec = self._net.spec
        for name, shape in zip(spec.names, spec.shapes, strict=True):
            results.append({"name": name, "shape": [*shape], "offset": offset})
            offset += math.prod(shape)
        return results

    def _export(
        self,
        fn: Callable[..., Any],
        results: Sequence[str] | None,
        further: Sequence[tuple[str, Any, bool]] = (),
    ) -> Export:
        """Return an export of ``fn(theta, *inputs, *further)``.

        Args:
            further: names, examples, and whether they have samples.
        """
        theta = self._theta
        first = 0 if self._inside else 1
        count = len(self._inputs)
        batched = [first + place for place in self.batched]
        has_samples = enumerate((flag for *_, flag in further), first + count)
        batched += [place for place, flag in has_samples if flag]
        names = [*self._names, *(name for name, *_ in further)]
        given = [*self._inputs, *(value for _, value, _ in further)]
        if self._inside:

            def inner(*args: Any) -> Any:
                return fn(theta, *args)

            return Export(inner, *given, batched=batched, names=names, results=results)
        return Export(
            fn,
            theta,
            *given,
            batched=batched,
            names=["params", *names],
            results=results,
        )

    def value(self) -> Export:
        return self._export(lambda theta, *x: self._net(theta, *x), self._outputs())

    def _outputs(self, prefix: str = "") -> list[str]:
        leaves, _ = flatten_tree(self._output)
        if len(leaves) == 1:
            return [f"{prefix}y"]
        return [f"{prefix}y{i}" for i in range(len(leaves))]

    def vjp(self) -> Export:
        """Gradients by parameters, unless they are inside, and by floating inputs."""
        net, count, inside = self._net, len(self._inputs), self._inside
        y_bar, whole = _floating_part(self._output)

        def fn(theta: Tensor, *args: Any) -> Any:
            *inputs, given = args
            of_theta, of_inputs = net.vjp(theta, tuple(inputs), whole(given))
            if inside:
                return _without_none(of_inputs, inputs)
            return _without_none([of_theta, of_inputs], [theta, inputs])

        names = [] if inside else ["params_bar"]
        pairs = zip(self._names, self._inputs, strict=True)
        names += [f"{name}_bar" for name, x in pairs if _is_floating(x)]
        alone = len(flatten_tree(self._inputs)[0]) == count
        return self._export(
            fn, names if alone else None, [("y_bar", y_bar, bool(self.batched))]
        )

    def jvp(self) -> Export:
        """The output, and its tangent along a tangent of the floating inputs."""
        net, count = self._net, len(self._inputs)
        parts = [_floating_part(x) for x in self._inputs]

        def fn(theta: Tensor, *args: Any) -> Any:
            dots = [part[1](x) for part, x in zip(parts, args[count:], strict=True)]
            return jvp(lambda *x: net(theta, *x), args[:count], dots)

        further = [
            (f"{name}_dot", part[0], place in self.batched)
            for place, (name, part) in enumerate(zip(self._names, parts, strict=True))
        ]
        outputs = zip(self._outputs(), flatten_tree(self._output)[0], strict=True)
        dots = [f"{name}_dot" for name, y in outputs if _is_floating(y)]
        return self._export(fn, [*self._outputs(), *dots], further)

    def jacobian(self) -> Export:
        d, m = self._matrix("jacobian")
        one = self._of_one()
        by = jacfwd if d < m else jacrev

        def fn(theta: Tensor, x: Tensor) -> Any:
            return vmap(by(lambda row: one(theta, row)))(x)

        return self._export(fn, ["jacobian"])

    def hessian(self) -> Export:
        self._matrix("hessian")
        one = self._of_one()

        def fn(theta: Tensor, x: Tensor) -> Any:
            return vmap(jacfwd(jacrev(lambda row: one(theta, row))))(x)

        return self._export(fn, ["hessian"])

    def laplacian(self) -> Export:
        self._matrix("laplacian")
        net = self._net
        return self._export(lambda theta, x: laplacian(net, theta, x), ["laplacian"])

    def _of_one(self) -> Callable[[Tensor, Tensor], Tensor]:
        net = self._net

        def one(theta: Tensor, row: Tensor) -> Tensor:
            result: Tensor = net(theta, row.unsqueeze(0))[0]
            return result

        return one

    def _matrix(self, name: str) -> tuple[int, int]:
        """Return the widths of the one input and the one output.

        Raises:
            ValueError: there are others.
        """
        x = self._inputs[0]
        tensors = len(self._inputs) == 1 and isinstance(x, Tensor)
        y = self._output
        if not tensors or x.ndim != 2 or not isinstance(y, Tensor) or y.ndim != 2:
            raise ValueError(
                f"a {name} is of a net with one input [n, d] and one output [n, m]; "
                "export a function of your own instead: save_library(path, "
                "{'name': Export(fn, *args)})"
            )
        return x.shape[1], y.shape[1]


def _input_names(net: Net, count: int) -> list[str]:
    """Return the names of a net's inputs: those of its layer, or x."""
    if isinstance(net, StatelessLayer):
        results = [*inspect.signature(net._layer.forward).parameters]
    else:
        results = []
    results = [name if name != "input" else "x" for name in results]
    plain = ["x"] if count == 1 else [f"x{i}" for i in range(count)]
    return [*results[:count], *plain[len(results[:count]) :]]


def _is_floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _floating_part(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return example tangents of a tree, and how to put others in their places.

    Those are not its values: along these, a net that ignores their size has no slope.
    """
    leaves, spec = flatten_tree(tree)
    kept = {i: _ramp(x) for i, x in enumerate(leaves) if _is_floating(x)}
    if len(kept) == len(leaves):
        return spec.unflatten(kept.values()), lambda tangents: tangents

    def whole(tangents: dict[int, Tensor]) -> Any:
        return spec.unflatten([tangents.get(i) for i in range(len(leaves))])

    return kept, whole


def _ramp(x: Tensor) -> Tensor:
    """Return a tensor of the same shape and dtype, of distinct values."""
    return linspace(0.5, 1.5, x.size).reshape(x.shape).astype(x.dtype)


def _without_none(gradients: Any, values: Any) -> list[Tensor]:
    """Return the gradients by floating tensors, zero where one has no influence."""
    pairs = zip(flatten_tree(gradients)[0], flatten_tree(values)[0], strict=True)
    return [zeros_like(x) if g is None else g for g, x in pairs if _is_floating(x)]
