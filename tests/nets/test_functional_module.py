"""Where a layer may hold what it trains; nets that are copied, pickled, sent away."""

import copy
import dataclasses
import functools
import itertools
import multiprocessing
import operator
import pickle
import weakref
from typing import ClassVar, NamedTuple

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import FCNet, stateless, value_and_grad


class Holder:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Scaled(nn.Layer):
    """Multiplies by a parameter that it reaches in a way of one's choice."""

    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.alpha = self.create_parameter(
            [3], default_initializer=nn.initializer.Uniform(1, 2)
        )
        getattr(self, how)()

    def forward(self, x):
        return self.act(self.linear(x))

    def attribute(self):
        self.holder = Holder(self.alpha)
        self.act = lambda z, held=self.holder: z * held.value

    def slotted(self):
        holder = Slotted(self.alpha)
        self.act = lambda z: z * holder.value

    def closure_of_self(self):
        self.act = lambda z: z * self.alpha

    def closure_of_tensor(self):
        alpha = self.alpha
        self.act = lambda z: z * alpha

    def nested_closure(self):
        alpha = self.alpha

        def inner(z):
            return z * alpha

        def outer(z):
            return inner(z)

        self.act = outer

    def partial_of_layer(self):
        def scale(layer, z):
            return z * layer.alpha

        self.act = functools.partial(scale, self)

    def partial_keyword(self):
        self.act = functools.partial(lambda z, alpha: z * alpha, alpha=self.alpha)

    def bound_method(self):
        self.act = self.times

    def times(self, z):
        return z * self.alpha

    def dict_of_functions(self):
        self.acts = {"it": [lambda z: z * self.alpha]}
        self.act = lambda z: self.acts["it"][0](z)

    def hook(self):
        self.act = lambda z: z
        self.linear.register_forward_post_hook(lambda layer, x, y: y * self.alpha)

    def default(self):
        def act(z, *, layer=self):
            return z * layer.alpha

        self.act = act

    def tuple(self):
        self.held = (1, self.alpha)
        self.again = self.held
        self.act = lambda z: z * self.again[1]

    def named_tuple(self):
        self.held = [(0, Named(self.alpha, {"it": self}))]
        self.act = lambda z: z * self.held[0][1].one

    def tuple_of_functions(self):
        self.held = (lambda z: z * self.alpha, 0)
        self.act = lambda z: self.held[0](z)

    def richer_tuple(self):
        self.held = Richer(self.alpha, 1)
        self.act = lambda z: z * self.held.one

    def frozen(self):
        self.held = Frozen(self.alpha)
        self.act = lambda z: z * self.held.value

    def function_in_frozen(self):
        self.held = Frozen(lambda z: z * self.alpha)
        self.act = lambda z: self.held.value(z)

    def attribute_of_a_function(self):
        def act(z):
            return z * act.alpha[0]

        act.alpha = [self.alpha]
        self.act = act

    def partial_argument(self):
        self.act = functools.partial(lambda alpha, _, z: z * alpha, self.alpha, 1)

    def tuple_in_partial(self):
        self.act = functools.partial(lambda held, z: z * held[1], (1, self.alpha))

    def array_of_objects(self):
        self.held = np.array([[1, self.alpha]], object)
        self.act = lambda z: z * self.held[0, 1]


class Named(NamedTuple):
    one: object
    other: object


class Richer(Named):
    """A named tuple that may hold more than its parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: object


HOWS = [
    *("attribute", "slotted", "closure_of_self", "closure_of_tensor", "nested_closure"),
    *("partial_of_layer", "partial_keyword", "bound_method", "dict_of_functions"),
    *("hook", "default", "tuple", "named_tuple", "tuple_of_functions"),
    *("richer_tuple", "frozen", "function_in_frozen", "attribute_of_a_function"),
    *("partial_argument", "tuple_in_partial", "array_of_objects"),
]


@pytest.mark.parametrize("how", HOWS)
def test_a_parameter_wherever_it_is_held(how):
    paddle.seed(0)
    layer = Scaled(how)
    x, before = randn([4, 3]), layer.alpha.numpy().copy()
    net, params, _ = stateless(layer)
    other = {n: randn(p.shape, seed=i) for i, (n, p) in enumerate(params.items())}
    for given in (params, other):
        y, pullback = net.pullback(given, x)
        w, b, alpha = (given[n] for n in ("linear.weight", "linear.bias", "alpha"))
        assert_same(y, (x @ w + b) * alpha, rtol=1e-5, atol=1e-6)
        assert_same(net.forward(given, x), (x @ w + b) * alpha, rtol=1e-5, atol=1e-6)
        cotangent = randn(y.shape, seed=9)
        grads, _ = pullback(cotangent)
        expected = (cotangent * (x @ w + b)).sum(0)
        assert_same(grads["alpha"], expected, rtol=1e-5, atol=1e-6)
    # The layer itself is as it was, and its functions its own.
    assert (layer.alpha.numpy() == before).all()
    assert_same(
        layer(x).detach(), (layer.linear(x) * layer.alpha).detach(), rtol=1e-5
    ) if how != "hook" else None
    evaluated = net.in_mode(False)
    assert_same(evaluated.forward(other, x), net.forward(other, x))


GLOBAL = nn.Linear(3, 3)


class ReadsGlobal(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = GLOBAL

    def forward(self, x):
        return GLOBAL(x)


def test_places_that_are_refused():
    with pytest.raises(TypeError, match=r"global variable 'GLOBAL'.*attribute of"):
        stateless(ReadsGlobal())

    class InMethod(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.act = self.linear.bias.add

    with pytest.raises(TypeError, match="parameter or buffer 'linear.bias' in a tuple"):
        stateless(InMethod())

    class InRicher(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.held = Richer(self.linear.weight, 1)
            self.held.more = 2

    with pytest.raises(TypeError, match=r"in a Richer \(InRicher.held\[0\]\)"):
        stateless(InRicher())


NETS = {
    "fcnet": lambda: (FCNet((3, 4, 2), "gelu"), FCNet((3, 4, 2), "gelu").init(0)),
    "chain": lambda: stateless(nn.Sequential(nn.Linear(3, 4), nn.Tanh())),
    "norms": lambda: stateless(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4), nn.Dropout(0.5)), "0.weight"
    ),
    "lstm": lambda: stateless(nn.LSTM(3, 4)),
}


def outputs(net, params, x):
    kwargs = {} if isinstance(net, FCNet) else {"seed": 3}
    y, pullback = net.pullback(params, x, **kwargs)
    y = y[0] if isinstance(y, tuple) else y
    seeds = paddle.ones_like(y)
    grads, _ = pullback((seeds, None) if len(x.shape) == 3 else seeds)
    return [y.numpy(), *(g.numpy() for g in grads.values())]


def remote(pair):
    return outputs(*pair)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_copies_and_pickles(name, used):
    paddle.seed(0)
    net, params, *_ = NETS[name]()
    x = randn([5, 2, 3] if name == "lstm" else [5, 3])
    expected = outputs(net, params, x)
    if not used:
        paddle.seed(0)
        net, params, *_ = NETS[name]()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.copy(net)):
        found = outputs(other, params, x)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        assert other.spec == net.spec
    for a, b in zip(outputs(net, params, x), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nets_go_to_another_process():
    paddle.seed(0)
    net, params, _ = NETS["norms"]()
    x = randn([5, 3])
    expected = outputs(net, params, x)
    given = net, params, x
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(remote, [given])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


class Base(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)


class Weak(Base):
    def __init__(self):
        super().__init__()
        self.reference = weakref.ref(self.a)

    def forward(self, x):
        return self.reference()(x)


class OfClass(Base):
    shared: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self.shared["weight"] = self.a.weight

    def forward(self, x):
        return x @ self.shared["weight"]


KEPT: list = []


class InList(Base):
    def __init__(self):
        super().__init__()
        KEPT[:] = [self.a]

    def forward(self, x):
        return KEPT[0](x)


def of_closure():
    weight = paddle.create_parameter([3, 4], "float32")

    class Closing(nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return x @ weight

    return Closing()


@pytest.mark.parametrize("make", [Weak, OfClass, InList, of_closure])
@pytest.mark.parametrize("call", ["forward", "pullback"])
def test_parameters_reached_past_those_given_are_refused(make, call):
    layer = make()
    net, params, _ = stateless(layer)
    for same in (net, net.in_mode(False), copy.deepcopy(net)):
        with pytest.raises(TypeError, match=r"uses its own parameter '(a\.)?weight'"):
            getattr(same, call)(params, randn([2, 3]))
    assert layer(randn([2, 3])).shape == [2, 4]


class Remembering(Base):
    """Keeps what it derives from a parameter, in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.kept = how, None

    @functools.cached_property
    def cached(self):
        return self.a.weight * 2

    @functools.lru_cache(None)  # noqa: B019
    def remembered(self):
        return self.a.weight * 2

    def forward(self, x):
        if self.how == "cached_property":
            return x @ self.cached
        if self.how == "lru_cache":
            return x @ self.remembered()
        if self.kept is None:
            self.kept = self.a.weight * 2
        return x @ self.kept


@pytest.mark.parametrize("how", ["cached_property", "lru_cache", "attribute"])
def test_what_a_layer_keeps_is_forgotten(how):
    net, params, _ = stateless(Remembering(how))
    x = randn([2, 3])
    net.pullback(params, x)
    for factor in (0.0, 3.0):
        moved = {n: factor * p for n, p in params.items()}
        y, back = net.pullback(moved, x)
        assert_same(y, 2 * x @ moved["a.weight"], rtol=1e-5, atol=1e-6)
        grad = back(paddle.ones_like(y))[0]["a.weight"]
        assert_same(grad, 2 * x.T @ paddle.ones([2, 4]), rtol=1e-5)


class Nesting(Base):
    """Sums up all that it has been called with, in a list in a dict."""

    def __init__(self):
        super().__init__()
        self.seen = {"x": []}

    def forward(self, x):
        self.seen["x"].append(x)
        return self.a(sum(self.seen["x"]))


def test_a_memory_in_a_list_in_a_dict_is_forgotten():
    net, params, _ = stateless(Nesting())
    x = randn([2, 3])
    first = net.forward(params, x)
    for _ in range(2):
        assert_same(net.pullback(params, x)[0], first)


class Calling(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, again=None):
        return self.linear(x if again is None else self.linear(x) + again(x))


def test_a_net_called_within_its_own_call():
    net, params, _ = stateless(Calling())
    x = randn([2, 3])
    found = net.forward(params, x, again=lambda h: net.forward(params, h))
    once = net.forward(params, x)
    assert_same(found, net.forward(params, once + once), rtol=1e-6)


class Derived(nn.Layer):
    """Keeps what it has computed from a parameter."""

    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([3, 2])
        self.row = self.w[0]

    def forward(self, x):
        return x @ self.w + self.row


class Keyed(nn.Layer):
    """Finds its parameter among the keys of a dict, or in an array of objects."""

    def __init__(self, keep):
        super().__init__()
        self.w = self.create_parameter([3, 2])
        self.kept = keep(self.w)


def test_what_was_computed_from_a_parameter_beforehand_is_refused():
    for name in ("forward", "pullback"):
        net, params, buffers = stateless(Derived())
        assert not buffers
        with pytest.raises(TypeError, match="computed from it beforehand"):
            getattr(net, name)(params, randn([4, 3]))


def test_the_same_within_a_recording_and_without_gradients():
    x = randn([4, 3])
    net, params, _ = stateless(Derived())
    with pytest.raises(TypeError, match="computed from it beforehand"):
        value_and_grad(lambda p: net.forward(p, x).sum())(params)
    net, params, _ = stateless(Derived())
    quiet = paddle.no_grad()(net.forward)
    with pytest.raises(TypeError, match="computed from it beforehand"):
        quiet(params, x)


def test_a_net_with_derived_tensors_is_pickled_when_it_has_been_called():
    net, _, _ = stateless(Derived())
    with pytest.raises(TypeError, match="call the net once before it is pickled"):
        pickle.dumps(net)
    layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    layer.eval()
    net, params, _ = stateless(layer)
    x = randn([4, 3])
    y = net.forward(params, x)
    again = pickle.loads(pickle.dumps(net))
    other = {name: 3 * value for name, value in params.items()}
    assert_same(again.forward(params, x), y)
    assert_same(again.forward(other, x), net.forward(other, x))


class Two(nn.Layer):
    def __init__(self, encoder, head):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x):
        return self.head(self.encoder(x))


encoder, head = nn.Linear(3, 4), nn.Linear(4, 2)


def test_attributes_may_have_the_names_of_global_variables():
    net, params, _ = stateless(Two(encoder, head))
    x = randn([2, 3])
    assert_same(net.forward(params, x), head(encoder(x)).detach())


KEPT = [
    lambda w: {w: 1},
    itertools.repeat,
    lambda w: slice(w, None),
    lambda w: operator.methodcaller("add", w),
    ValueError,
]


@pytest.mark.filterwarnings("ignore:Pickle, copy:DeprecationWarning")  # of repeat
@pytest.mark.parametrize("keep", KEPT, ids=[*map(str, range(len(KEPT)))])
def test_parameters_where_none_can_be_put_are_refused(keep):
    with pytest.raises(TypeError, match="where stateless can't replace it"):
        stateless(Keyed(keep))


def test_a_buffer_that_is_put_away():
    class Forgets(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", paddle.full([3], 2.0))

        def forward(self, x):
            y = x * self.scale
            self.scale = None
            return y

    net, params, buffers = stateless(Forgets())
    x = paddle.ones([2, 3])
    for _ in range(2):
        assert net.forward(params, x).tolist() == [[2.0] * 3] * 2
        for call in (net.forward, net.pullback):
            with pytest.raises(TypeError, match="NoneType in the place of its buffer"):
                call(params, x, buffers=buffers)
