"""Functions of tensors as programs: captured at their first call, then run."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from ...programs import Program
from .dependencies import JITTED
from .jitted import Jitted, new_jitted

P = ParamSpec("P")
T = TypeVar("T")


@overload
def jit(
    fn: Callable[P, T],
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    *,
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, T]: ...


@overload
def jit(
    *,
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    static_argnames: str | Sequence[str] = (),
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def jit(
    fn: Any = None,
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    *,
    static_argnames: str | Sequence[str] = (),
) -> Any:
    """Compile a function to programs of Paddle's operators, one per kind of arguments.

    The first call with tensors of new dtypes and shapes captures what the function does
    to them. Later calls run the program, without Python's and Paddle's layers in
    between. If two calls differ in the number of samples alone, and the function names
    no size, the program serves any number of samples. Values computed from shapes and
    from Python objects are part of the program. If an attribute, a closed-over variable
    or a global that the code names gets another value, the call gets another program.
    Tensors that the function closes over are read at every call. Changes that the
    function makes to Python objects happen once for each program.

    ``@jit`` on a method keeps programs for each instance. A method that sets its own
    attributes at each call runs as it is.

    A number among the arguments is part of the program at first. With its second value
    it becomes an input, unless the function needs the value: for a shape or a branch.

    The function is called once for each program, with the arguments of that call. Then
    the program's results are compared with the function's. The function is called once
    more if it makes tensors that no operator shows (``paddle.to_tensor`` of a list is
    one), and if a number becomes an input.

    Derivatives inside, by this package or ``paddle.grad``, become part of the program:
    ``jit(value_and_grad(loss))`` is one program, and so is a whole training step.

    A function that can't be captured runs as it is. An :class:`EagerWarning` says so at
    the second call, and :func:`explain` says why at any time. With
    ``PADDLE_CHAINRULES_PROGRAMS=off`` in the environment all functions do, except
    strict ones.

    Args:
        fn: function of trees of tensors. Without it, jit returns a decorator with these
            options: ``@jit(static_argnums=1)``.
        static_argnums: position or positions of arguments that are compared by value,
            and objects that have no value by identity, and go to fn as they are. Other
            arguments' leaves that are neither tensors nor numbers are compared so, too.
            Of a method, ``self`` is argument 0.
        strict: raise an error if the function can't be captured.
        static_argnames: the same by name. An argument that fn has by name is static
            however it is given, by position or by keyword.

    Returns:
        A function with the same results. They are on the caller's graph where fn's are.

    Raises:
        CaptureError: from a call, if ``strict``.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jit, value_and_grad
        >>> step = jit(value_and_grad(lambda w, x: (w * x).sum()))
        >>> value, grad = step(paddle.ones([2]), paddle.to_tensor([3.0, 4.0]))
        >>> grad.tolist()
        [3.0, 4.0]
    """
    if fn is None:
        options = {"static_argnums": static_argnums, "strict": strict}
        return functools.partial(jit, **options, static_argnames=static_argnames)
    jitted = new_jitted(fn, static_argnums, strict, static_argnames)
    return _jitted_by_options(fn).setdefault(jitted.options, jitted)


def _jitted_by_options(fn: Any) -> dict[Any, Any]:
    """Return the jitted functions that jit has already made of fn, by options.

    This is kept from the second time on. So a function that is gone after one use does
    not wait, with its programs, for Python's collector.
    """
    if type(fn) is not types.FunctionType:
        return {}
    owner, by_options = vars(fn).get(JITTED, (None, None))
    if owner is not None and owner() is fn:
        return by_options
    vars(fn)[JITTED] = weakref.ref(fn), {}  # others take over what a function has
    return {}


def make_program(
    fn: Callable[..., Any], static_argnums: Sequence[int] = ()
) -> Callable[..., Program]:
    """Return a function that gives the program of ``fn(*args)``, to be read.

    It is like ``jax.make_jaxpr``. A printed program has a line for each operator, with
    its place in the code; ``.python()`` is the source that runs.

    Raises:
        CaptureError: from a call, if the function can't be captured.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import make_program
        >>> program = make_program(lambda x: paddle.tanh(x) * 2.0)(paddle.ones([3]))
        >>> [op.operator.name for op in program.ops]
        ['tanh', 'Tensor.__mul__']
    """

    def make(*args: Any, **kwargs: Any) -> Program:
        return Jitted(fn, static_argnums, True, explicit=True).program(*args, **kwargs)

    return make
