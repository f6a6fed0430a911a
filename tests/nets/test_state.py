"""What a layer counts or remembers anywhere is as at first for every call."""

import functools
from collections import deque

import numpy as np
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import stateless


class Slotted:
    __slots__ = ("last", "n")


class Counting(nn.Layer):
    """Multiplies by a parameter and by how many calls there have been."""

    def __init__(self, how):
        super().__init__()
        self.w = self.create_parameter(
            [3], default_initializer=nn.initializer.Uniform(1, 2)
        )
        getattr(self, how)()

    def forward(self, x):
        return self.act(x)

    def attribute_of_a_function(self):
        def act(x):
            act.n += 1
            return x * act.w * act.n

        act.w, act.n = self.w, 0
        self.act = act

    def attribute_of_a_function_alone(self):
        def count():
            count.seen.append(count.n)
            count.n += 1
            return len(count.seen)

        count.n, count.seen = 0, []
        self.count = count
        self.act = lambda x: x * self.w * self.count()

    def attribute_that_a_call_makes(self):
        def act(x):
            act.n = getattr(act, "n", 0) + 1
            return x * act.w * act.n

        act.w = self.w
        self.act = act

    def variable_outside(self):
        n, w = 0, self.w

        def act(x):
            nonlocal n
            n += 1
            return x * w * n

        self.act = act

    def array_of_objects(self):
        self.held = np.array([[self.w, 0]], object)

        def act(x):
            self.held[0, 1] += 1
            return x * self.held[0, 0] * self.held[0, 1]

        self.act = act

    def partial_argument(self):
        def act(held, x):
            held["n"] = held.get("n", 0) + 1
            return x * held["w"] * held["n"]

        self.act = functools.partial(act, {"w": self.w})

    def partial_keyword(self):
        def act(x, held):
            held.append(0)
            return x * self.w * len(held)

        self.act = functools.partial(act, held=deque())

    def list_with_a_parameter(self):
        self.held = [self.w, {0}]

        def act(x):
            self.held[1].add(len(self.held[1]))
            self.held.append(self.held[0])
            return x * self.held.pop(0) * (len(self.held[0]) - 1)

        self.act = act

    def object_of_slots(self):
        self.held = Slotted()
        self.held.n = 0

        def act(x):
            self.held.n += 1
            assert not hasattr(self.held, "last")
            self.held.last = x
            return x * self.w * self.held.n

        self.act = act


HOWS = [n for n in vars(Counting) if n[0] != "_" and n != "forward"]


@pytest.mark.parametrize("how", HOWS)
def test_what_is_counted_anywhere_is_put_back(how):
    layer = Counting(how)
    net, params, _ = stateless(layer)
    x, expected = randn([4, 3]), layer.w.numpy()
    for _ in range(3):
        assert_same(net.forward(params, x), x * expected)
        y, back = net.pullback(params, x)
        assert_same(y, x * expected)
        assert_same(back(x)[0]["w"], (x * x).sum(0), rtol=1e-5)
    assert_same(layer(x), x * expected)  # the net's calls are none of the layer's
    assert_same(net.forward(params, x), x * expected)


def test_what_is_returned_is_not_put_back():
    class Remembering(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = self.create_parameter([3])
            self.seen = {"all": []}

        def forward(self, x):
            self.seen["all"].append(x * self.w)
            return self.seen

    net, params, _ = stateless(Remembering())
    x = randn([4, 3])
    for factor in (1.0, 2.0, 3.0):
        (found,) = net.forward(params, factor * x)["all"]
        assert_same(found, factor * x * params["w"])


def test_what_functions_share_with_others_is_theirs():
    seen, layer = [], nn.Linear(3, 2)
    layer.register_forward_post_hook(lambda layer, x, y: seen.append(y.shape))
    net, params, _ = stateless(layer)
    for _ in range(3):
        net.forward(params, randn([4, 3]))
    assert seen == [[4, 2]] * 3


def test_containers_that_hold_themselves():
    class Tree(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = self.create_parameter([3])
            self.n, self.held = 0, [self.w]
            self.held.append(self.held)
            self.root = {"n": 0}
            self.root["child"] = {"parent": self.root}

        def forward(self, x):
            root = self.root["child"]["parent"]
            root["n"] += 1
            self.n += 1
            return x * self.held[1][0] * (root["n"] + self.n)

    net, params, _ = stateless(Tree())
    x = randn([4, 3])
    for _ in range(3):
        assert_same(net.forward(params, x), 2 * x * params["w"])
