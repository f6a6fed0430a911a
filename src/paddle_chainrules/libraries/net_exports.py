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
    requested = (derivatives,) if isinstance(derivatives, str) else tuple(derivatives)
    if unsupported := [
        derivative for derivative in requested if derivative not in DERIVATIVES
    ]:
        raise ValueError(
            f"derivatives are among {', '.join(DERIVATIVES)}, got {unsupported[0]!r}; "
            "use an Export for others"
        )
    theta = args[0] if isinstance(args[0], Tensor) else net.flatten(args[0])
    inputs = args[1:]
    functions = _Functions(net, theta.detach(), inputs, params == "inside")
    if batched is not None:
        argument_positions = positions(batched, len(args))
        if 0 in argument_positions:
            raise ValueError(
                "batched has the position 0, which is that of the parameters; count "
                "the inputs of a net from 1"
            )
        functions.batched = tuple(position - 1 for position in argument_positions)
    results = {name: functions.value()}
    results[name].role = FunctionRole("value", name, params == "given")
    for derivative in requested:
        results[f"{name}_{derivative}"] = getattr(functions, derivative)()
        results[f"{name}_{derivative}"].role = FunctionRole(
            derivative, name, params == "given"
        )
    return results, functions.layout()


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
        """Return the offset of each parameter in the vector."""
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
        extra: Sequence[tuple[str, Any, bool]] = (),
    ) -> Export:
        """Return an export of ``fn(theta, *inputs, *further)``.

        Args:
            extra: names, examples, and whether they have samples.
        """
        theta = self._theta
        first_input = 0 if self._inside else 1
        count = len(self._inputs)
        batched = [first_input + position for position in self.batched]
        has_samples = enumerate((flag for *_, flag in extra), first_input + count)
        batched += [position for position, flag in has_samples if flag]
        names = [*self._names, *(name for name, *_ in extra)]
        example_args = [*self._inputs, *(value for _, value, _ in extra)]
        if self._inside:

            def inner(*args: Any) -> Any:
                return fn(theta, *args)

            return Export(
                inner, *example_args, batched=batched, names=names, results=results
            )
        return Export(
            fn,
            theta,
            *example_args,
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
        y_bar, full_cotangent = _floating_part(self._output)

        def fn(theta: Tensor, *args: Any) -> Any:
            *inputs, cotangent = args
            of_theta, of_inputs = net.vjp(
                theta, tuple(inputs), full_cotangent(cotangent)
            )
            if inside:
                return _floating_gradients(of_inputs, inputs)
            return _floating_gradients([of_theta, of_inputs], [theta, inputs])

        names = [] if inside else ["params_bar"]
        pairs = zip(self._names, self._inputs, strict=True)
        names += [f"{name}_bar" for name, x in pairs if _is_floating(x)]
        are_plain_tensors = len(flatten_tree(self._inputs)[0]) == count
        return self._export(
            fn,
            names if are_plain_tensors else None,
            [("y_bar", y_bar, bool(self.batched))],
        )

    def jvp(self) -> Export:
        """The output, and its tangent along a tangent of the floating inputs."""
        net, count = self._net, len(self._inputs)
        tangent_examples = [_floating_part(x) for x in self._inputs]

        def fn(theta: Tensor, *args: Any) -> Any:
            dots = [
                example[1](x)
                for example, x in zip(tangent_examples, args[count:], strict=True)
            ]
            return jvp(lambda *x: net(theta, *x), args[:count], dots)

        further = [
            (f"{name}_dot", example[0], position in self.batched)
            for position, (name, example) in enumerate(
                zip(self._names, tangent_examples, strict=True)
            )
        ]
        outputs = zip(self._outputs(), flatten_tree(self._output)[0], strict=True)
        dots = [f"{name}_dot" for name, y in outputs if _is_floating(y)]
        return self._export(fn, [*self._outputs(), *dots], further)

    def jacobian(self) -> Export:
        d, m = self._matrix_widths("jacobian")
        net_of_row = self._one_sample_function()
        jacobian_of = jacfwd if d < m else jacrev

        def fn(theta: Tensor, x: Tensor) -> Any:
            return vmap(jacobian_of(lambda row: net_of_row(theta, row)))(x)

        return self._export(fn, ["jacobian"])

    def hessian(self) -> Export:
        self._matrix_widths("hessian")
        net_of_row = self._one_sample_function()

        def fn(theta: Tensor, x: Tensor) -> Any:
            return vmap(jacfwd(jacrev(lambda row: net_of_row(theta, row))))(x)

        return self._export(fn, ["hessian"])

    def laplacian(self) -> Export:
        self._matrix_widths("laplacian")
        net = self._net
        return self._export(lambda theta, x: laplacian(net, theta, x), ["laplacian"])

    def _one_sample_function(self) -> Callable[[Tensor, Tensor], Tensor]:
        net = self._net

        def net_of_row(theta: Tensor, row: Tensor) -> Tensor:
            result: Tensor = net(theta, row.unsqueeze(0))[0]
            return result

        return net_of_row

    def _matrix_widths(self, name: str) -> tuple[int, int]:
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
    default_names = ["x"] if count == 1 else [f"x{i}" for i in range(count)]
    return [*results[:count], *default_names[len(results[:count]) :]]


def _is_floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _floating_part(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return example tangents of a tree, and a function that nests other ones.

    Those are not its values: along these, a net that ignores their size has no slope.
    """
    leaves, spec = flatten_tree(tree)
    examples = {i: _ramp(x) for i, x in enumerate(leaves) if _is_floating(x)}
    if len(examples) == len(leaves):
        return spec.unflatten(examples.values()), lambda given_tangents: given_tangents

    def full_tree(given_tangents: dict[int, Tensor]) -> Any:
        return spec.unflatten([given_tangents.get(i) for i in range(len(leaves))])

    return examples, full_tree


def _ramp(x: Tensor) -> Tensor:
    """Return a tensor of the same shape and dtype, of distinct values."""
    return linspace(0.5, 1.5, x.size).reshape(x.shape).astype(x.dtype)


def _floating_gradients(gradients: Any, values: Any) -> list[Tensor]:
    """Return the gradients by floating tensors, zero where one has no influence."""
    pairs = zip(flatten_tree(gradients)[0], flatten_tree(values)[0], strict=True)
    return [zeros_like(x) if g is None else g for g, x in pairs if _is_floating(x)]
