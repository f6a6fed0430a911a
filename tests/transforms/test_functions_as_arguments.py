"""State of functions among the arguments: what they close over and name."""

import dataclasses
import functools

import paddle
import pytest

from paddle_chainrules import grad, jit, vmap

X = paddle.to_tensor([1.0, 2.0, 3.0])
factor = 2.0


class Scaled:
    def __init__(self):
        self.factor = 2.0

    def times(self, x):
        return x * self.factor


def closed_over():
    k = 2.0

    def fn(x):
        return x * k

    def put(value):
        nonlocal k
        k = value

    return fn, put


def of_global():
    def put(value):
        globals()["factor"] = value

    put(2.0)
    return (lambda x: x * factor), put


def of_method():
    scaled = Scaled()
    return scaled.times, lambda value: setattr(scaled, "factor", value)


def of_attribute():
    def fn(x):
        return x * fn.factor

    fn.factor = 2.0
    return fn, lambda value: setattr(fn, "factor", value)


def of_defaults():
    def fn(x, k=2.0):
        return x * k

    return fn, lambda value: setattr(fn, "__defaults__", (value,))


def of_defaults_by_name():
    def fn(x, *, k=2.0):
        return x * k

    return fn, lambda value: setattr(fn, "__kwdefaults__", {"k": value})


class Base:
    factor = 2.0


class Derived(Base):
    pass


def of_a_base():
    """Where the class may come to have an attribute of its own."""
    kind = type("Kind", (Derived,), {})
    instance = kind()

    def put(value):
        if value != 2.0:
            kind.factor = value
        elif "factor" in vars(kind):
            del kind.factor

    return (lambda x: x * instance.factor), put


def of_a_name_to_come():
    def fn(x):
        try:
            return x * to_come
        except NameError:
            return x * 2.0

    def put(value):
        globals().pop("to_come", None)
        if value != 2.0:
            globals()["to_come"] = value

    return fn, put


def of_code():
    def fn(x):
        return x * 2.0

    def other(x):
        return x * factor

    def put(value):
        globals()["factor"] = value
        fn.__code__ = other.__code__

    return fn, put


def of_keywords():
    fn = functools.partial(lambda x, k: x * k, k=2.0)
    return fn, lambda value: fn.keywords.update(k=value)


@dataclasses.dataclass(frozen=True)
class Frozen:
    fn: object

    def __call__(self, x):
        return self.fn(x)


class Members(frozenset):
    def __call__(self, x):
        (fn,) = self
        return fn(x)


def within_frozen():
    fn, put = closed_over()
    return Frozen(fn), put


def within_a_set():
    fn, put = closed_over()
    return Members([fn]), put


KINDS = {
    "its defaults": of_defaults,
    "its defaults by name": of_defaults_by_name,
    "an attribute of a base": of_a_base,
    "a name to come": of_a_name_to_come,
    "its code": of_code,
    "keywords of a partial": of_keywords,
    "in a frozen dataclass": within_frozen,
    "in a frozenset": within_a_set,
    "closed over": closed_over,
    "a global": of_global,
    "a method": of_method,
    "its own attribute": of_attribute,
}

CALLS = {
    "itself": lambda fn: (jit(lambda f, x: f(x)), (fn, X)),
    "static": lambda fn: (jit(lambda f, x: f(x), static_argnums=0), (fn, X)),
    "in a dict": lambda fn: (jit(lambda d, x: d["f"](x)), ({"f": fn}, X)),
    "in a list": lambda fn: (jit(lambda d, x: d[0](x)), ([fn], X)),
    "partial": lambda fn: (
        jit(lambda f, x: f(x)),
        (functools.partial(lambda g, x: g(x), fn), X),
    ),
    "default": lambda fn: (jit(lambda f, x: f(x)), (lambda x, g=fn: g(x), X)),
    "within": lambda fn: (jit(lambda f, x: f(x)), (lambda x: fn(x), X)),
    "vmap": lambda fn: (jit(lambda f, x: vmap(f)(x)), (fn, X)),
    "grad": lambda fn: (jit(grad(lambda x, f: f(x**2).sum() / 2.0)), (X, fn)),
    "by name": lambda fn: (functools.partial(jit(lambda x, f: f(x)), f=fn), (X,)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("calls", [1, 40])
def test_changes_are_seen(kind, name, calls):
    fn, put = KINDS[kind]()
    call, args = CALLS[name](fn)
    for value in (2.0, 3.0, 2.0):
        put(value)
        for _ in range(calls):
            assert call(*args).tolist() == (X * value).tolist()


def test_a_program_of_the_same_state_is_found_again():
    calls = []

    def outer(f, x):
        calls.append(1)
        return f(x)

    fn, put = closed_over()
    compiled = jit(outer)
    for value in (2.0, 3.0, 2.0, 3.0):
        put(value)
        for _ in range(3):
            compiled(fn, X)
    assert len(calls) == 2
