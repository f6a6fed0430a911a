"""Taylor mode of nets that depend on more than parameters: they follow the script."""

import collections
import dataclasses
import functools
import operator
import types

import numpy as np
import paddle
import pytest
from both_ways import assert_equal, both_ways, points, steps_of
from paddle import nn
from small_library import Library, Net, compared, derivative, residual, taylor_mode

from paddle_chainrules.adapters import net_calls, state
from paddle_chainrules.adapters.state import ObjectState
from paddle_chainrules.adapters.taylor_mode import NativeWarning

CHANGES = "its attributes change from call to call"


pytestmark = pytest.mark.usefixtures("in_double")


FACTOR, TUPLE, SETTINGS = 1.0, (1.0,), {"factor": 1.0}
TENSOR = paddle.to_tensor(1.0, dtype="float64")
ONES = {v: paddle.to_tensor(v, dtype="float64") for v in (1.0, 2.0, 3.0)}


class Settings:
    factor = 1.0


SOMETHING = Settings()


def scaled(y):
    return FACTOR * y


class Direct(Net):
    def forward(self, x):
        return super().forward(x) * FACTOR


class OfAttribute(Net):
    factor = 1.0

    def forward(self, x):
        return super().forward(x) * self.factor


class OfTensor(Net):
    def forward(self, x):
        return super().forward(x) * TENSOR


class ByFunction(Net):
    def forward(self, x):
        return scaled(super().forward(x))


class ByMethod(Net):
    def forward(self, x):
        return self.scaled(super().forward(x))

    def scaled(self, y):
        return FACTOR * y


class OfDict(Net):
    def forward(self, x):
        return super().forward(x) * SETTINGS["factor"]


class OfTuple(Net):
    def forward(self, x):
        return super().forward(x) * TUPLE[0]


class OfObject(Net):
    def forward(self, x):
        return super().forward(x) * SOMETHING.factor


LARGE = np.ones(20_000)
MODULE = types.ModuleType("of_mine")
MODULE.factor = 1.0


class OfArray(Net):
    def forward(self, x):
        return super().forward(x) * float(LARGE.mean())


class OfPart(Net):
    def __init__(self):
        super().__init__()
        self.part = Settings()

    def forward(self, x):
        return super().forward(x) * self.part.factor


def plain(y, factor=1.0):
    return y * factor


SPACE, QUEUE = types.SimpleNamespace(factor=1.0), collections.deque([1.0])


class ByAnother(Net):
    def forward(self, x):
        return plain(super().forward(x))


class OfSpaces(Net):
    def forward(self, x):
        return super().forward(x) * SPACE.factor * QUEUE[0]


class Slots:
    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 1.0


SLOTS = Slots()


class OfSlots(Net):
    def forward(self, x):
        return super().forward(x) * SLOTS.factor


class ByClassMethod(Net):
    def forward(self, x):
        return self.scaled(super().forward(x))

    @classmethod
    def scaled(cls, y):
        return y


class OfItems(Net):
    factors, by_name = [1.0], {"factor": 1.0}

    def forward(self, x):
        return super().forward(x) * self.factors[0] * self.by_name["factor"]


class OfSign(Net):
    """Of a number's sign, that of zero too."""

    def __init__(self):
        super().__init__()
        self.number, self.array = 0.0, np.zeros(1)

    def forward(self, x):
        signs = np.copysign(1.0, self.number), np.copysign(1.0, self.array[0])
        return super().forward(x) * (3.0 + float(signs[0] + 0.5 * signs[1]))


def set_signs(net, value):
    net.number = 0.0 if value != 2.0 else -0.0
    net.array[0] = 0.0 if value != 3.0 else -0.0


@paddle.no_grad()
def without_gradients(y):
    return paddle.full([1], FACTOR, "float64")


def of_argument(settings, y):
    return settings.factor * y


READ_FACTOR = operator.attrgetter("factor")

WAYS_ROUND = {
    "a helper without gradients": lambda net, y: y * without_gradients(y),
    "a module as an attribute": lambda net, y: y * net.settings.factor,
    "a module in a list": lambda net, y: y * net.rows[0].factor,
    "a module as an argument": lambda net, y: of_argument(MODULE, y),
    "vars of a module": lambda net, y: y * vars(MODULE)["factor"],
    "an attrgetter": lambda net, y: y * READ_FACTOR(MODULE),
    "a partialmethod": lambda net, y: net.once(y),
    "an attribute of a tensor": lambda net, y: y * TENSOR.factor,
}


def way_round(name):
    class WayRound(Net):
        def __init__(self):
            super().__init__()
            self.settings, self.rows, self.way = MODULE, [MODULE], WAYS_ROUND[name]

        def times(self, factor, y):
            return FACTOR * factor * y

        once = functools.partialmethod(times, 1.0)

        def forward(self, x):
            return self.way(self, super().forward(x))

    return WayRound


def change_all(_, value):
    globals()["FACTOR"] = MODULE.factor = TENSOR.factor = value


NATIVE = plain


def of_closures():
    kind, module = type("Kind", (), {"factor": 1.0}), MODULE

    def scaled(y):
        return y * kind.factor * module.factor

    class Closing(Net):
        def forward(self, x):
            return scaled(super().forward(x))

    net = Closing()
    net.kind = kind
    return net


def set_global(name):
    return lambda net, value: globals().__setitem__(name, value)


CODES = {
    1.0: plain.__code__,
    2.0: (lambda y, factor=1.0: 2.0 * y * factor).__code__,
    3.0: (lambda y, factor=1.0: 3.0 * y * factor).__code__,
}

CLASS_METHODS = {
    1.0: vars(ByClassMethod)["scaled"],
    2.0: classmethod(lambda cls, y: 2.0 * y),
    3.0: classmethod(lambda cls, y: 3.0 * y),
}

FUNCTIONS = {
    1.0: NATIVE,
    2.0: types.FunctionType(CODES[2.0], {}, "twice", (1.0,)),
    3.0: types.FunctionType(CODES[3.0], {}, "thrice", (1.0,)),
}

FOLLOWED = {
    "a global number": (Direct, set_global("FACTOR")),
    "an attribute": (OfAttribute, lambda net, v: setattr(net, "factor", v)),
    "a global tensor": (OfTensor, lambda _, v: TENSOR.set_value(paddle.to_tensor(v))),
    "a function of a global number": (ByFunction, set_global("FACTOR")),
    "a method of a global number": (ByMethod, set_global("FACTOR")),
    "a global dict": (OfDict, lambda _, v: SETTINGS.__setitem__("factor", v)),
    "a global tuple": (OfTuple, lambda _, v: set_global("TUPLE")(_, (v,))),
    "a global object": (OfObject, lambda _, v: setattr(SOMETHING, "factor", v)),
    "a class": (OfAttribute, lambda net, v: setattr(type(net), "factor", v)),
    "the class of a part": (OfPart, lambda _, v: setattr(Settings, "factor", v)),
    "a large array": (OfArray, lambda _, v: LARGE.fill(v)),
    "a class in a closure": (
        of_closures,
        lambda net, v: setattr(net.kind, "factor", v),
    ),
    "a module in a closure": (of_closures, lambda _, v: setattr(MODULE, "factor", v)),
    "another function": (
        ByAnother,
        lambda _, v: set_global("plain")(_, FUNCTIONS[v]),
    ),
    "a default": (ByAnother, lambda _, v: setattr(NATIVE, "__defaults__", (v,))),
    "code": (
        ByAnother,
        lambda _, v: setattr(NATIVE, "__code__", CODES[v]),
    ),
    "a namespace": (OfSpaces, lambda _, v: setattr(SPACE, "factor", v)),
    "a queue": (OfSpaces, lambda _, v: QUEUE.__setitem__(0, v)),
    "a slot": (OfSlots, lambda _, v: setattr(SLOTS, "factor", v)),
    "a method of a class": (
        ByClassMethod,
        lambda _, v: setattr(ByClassMethod, "scaled", CLASS_METHODS[v]),
    ),
    "a list of a class": (OfItems, lambda _, v: OfItems.factors.__setitem__(0, v)),
    "a dict of a class": (
        OfItems,
        lambda _, v: OfItems.by_name.__setitem__("factor", v),
    ),
    "the sign of zero": (OfSign, set_signs),
    "another global tensor": (OfTensor, lambda _, v: set_global("TENSOR")(_, ONES[v])),
    **{name: (way_round(name), change_all) for name in WAYS_ROUND},
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_net_follows(name):
    kind, change = FOLLOWED[name]
    net = kind()

    def loss(k):
        change(net, 1.0 + k // 3)
        return residual(net, k)

    try:
        compared(loss, net, count=9)
    finally:
        change(net, 1.0)
        vars(net).pop("factor", None)


class Counting(Net):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


class OfNothing(Net):
    """Holds what is not equal to itself."""

    def __init__(self):
        super().__init__()
        self.missing, self.array = float("nan"), np.full(2, np.nan)


def test_numbers_that_are_none_are_no_change():
    net = OfNothing()
    mode = compared(lambda k: residual(net, k), net, count=5)
    assert mode.programs > mode.natively


class Drawing(Net):
    def forward(self, x):
        return super().forward(x) * float(np.random.default_rng().random())


class Deciding(Net):
    def forward(self, x):
        y = super().forward(x)
        return y if float(x.mean()) > 0.5 else 2 * y


@pytest.mark.parametrize(
    ("kind", "warns"), [(Counting, CHANGES), (Deciding, "a value leaves the program")]
)
def test_nets_that_run_as_ever(kind, warns):
    found = []
    for _ in range(2):  # each with a net of its own, since calls count
        paddle.seed(1)
        net = kind()
        script = steps_of([net], lambda k, net=net: residual(net, k), Library.clear)
        if not found:
            found.append(script())
            continue
        with taylor_mode() as mode, pytest.warns(NativeWarning, match=warns):
            found.append(script())
    assert_equal(*found, rtol=0)
    assert mode.programs == 0


def test_a_net_that_draws_without_paddle():
    net, x = Drawing(), points(3, 2)

    def drawn():
        y = net(x)
        derivative(y, x, 0, 0)
        Library.clear()
        return float(y[0, 0])

    with taylor_mode(), pytest.warns(NativeWarning, match="no operator shows"):
        found = {drawn() for _ in range(6)}
    assert len(found) == 6


@pytest.mark.parametrize("way", ["forward_post_hook", "forward_pre_hook"])
@pytest.mark.parametrize("part", [lambda net: net, lambda net: net.inner])
def test_hooks_come_and_go(way, part):
    net, held = Net(), []
    hook = {
        "forward_post_hook": lambda layer, x, y: y * 0.5,
        "forward_pre_hook": lambda layer, x: (x[0] * 0.5,),
    }[way]

    def loss(k):
        if k == 3:
            held.append(getattr(part(net), f"register_{way}")(hook))
        if k == 6:
            held.pop().remove()
        return residual(net, k)

    compared(loss, net, count=9)


def test_hooks_are_called_each_time():
    net, seen = Net(), []
    net.inner.register_forward_post_hook(lambda *_: seen.append(1))
    script = steps_of([net], lambda k: residual(net, k), Library.clear, 7)
    with taylor_mode(), pytest.warns(NativeWarning, match=CHANGES):
        script()
    assert len(seen) == 7


def test_parameters_that_are_replaced():
    net = Net()

    def loss(k):
        if k == 3:
            paddle.seed(3)
            net.inner = nn.Linear(2, 7)
        return residual(net, k)

    def again():
        paddle.seed(2)
        net.inner = nn.Linear(2, 7)
        return steps_of([net], loss, Library.clear)()

    found, expected, mode = both_ways(again, taylor_mode)
    assert_equal(found, expected, 1e-9)
    assert mode.programs == 4


def test_code_that_does_not_tell_what_it_reads_is_refused():
    class ByGlobals(Net):
        def forward(self, x):
            return super().forward(x) * globals()["FACTOR"]

    net = ByGlobals()
    mode = compared(lambda k: residual(net, k), net, warns=["calls globals"])
    assert (mode.programs, mode.natively) == (0, 6)


def test_a_refusal_is_remembered(monkeypatch):
    """What is refused once costs no look at the net any more."""
    looks = []
    build = net_calls.ObjectState.__init__

    def counted(self, *args):
        looks.append(args)
        build(self, *args)

    monkeypatch.setattr(net_calls.ObjectState, "__init__", counted)
    monkeypatch.setattr(state, "MAX_READS", 50)
    net = Net()
    mode = compared(
        lambda k: residual(net, k), net, warns=["reads more than 50 things"]
    )
    assert (mode.programs, mode.natively) == (0, 6)
    assert len(looks) == 1


class Unreadable(collections.abc.Mapping):
    """As a configuration one of whose values is missing."""

    def __getitem__(self, name):
        raise LookupError("a value is missing")

    def __iter__(self):
        return iter(["width"])

    def __len__(self):
        return 1


def test_what_cannot_be_read_is_refused():
    net = Net()
    net.settings = Unreadable()
    mode = compared(lambda k: residual(net, k), net, warns=["a value is missing"])
    assert (mode.programs, mode.natively) == (0, 6)


@dataclasses.dataclass
class Sizes:
    names: list
    width: float = 0.5


CONFIGURATIONS = {
    "dataclasses": lambda lib: Sizes(["x", "y"]),
    "argparse": lambda lib: lib.Namespace(names=["x", "y"], width=0.5),
    "omegaconf": lambda lib: lib.OmegaConf.create(
        {"names": ["x", "y"], "width": 0.5, "other": {"of": "${names}"}}
    ),
    "easydict": lambda lib: lib.EasyDict(names=["x", "y"], width=0.5),
}


class OfConfiguration(Net):
    """With one, and a part of it, as models of PaddleScience have it by Hydra."""

    def __init__(self, settings):
        super().__init__()
        self.settings, self.names = settings, settings.names

    def forward(self, x):
        return super().forward(x) * self.settings.width * len(self.names)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_data(name):
    lib = pytest.importorskip(name, reason=f"{name} is not installed")
    net = OfConfiguration(CONFIGURATIONS[name](lib))

    def loss_of(k):
        net.settings.width = 0.5 if k < 4 else 2.0
        return residual(net, k)

    mode = compared(loss_of, net, count=8)
    assert (mode.programs, mode.natively) == (6, 2)
    assert len(ObjectState(net, frozenset())._reads) < 500
