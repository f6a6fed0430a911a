"""Trees in files: what is written is read, and what is no tree is refused."""

import collections
import json

import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import FCNet, grad, load, optimizers, save, tensor_files

NET = FCNet((3, 5, 2), "tanh")
PARAMS = NET.init(0)
Pair = collections.namedtuple("Pair", "one other")


def loss(params, x):
    return (NET(params, x) ** 2).mean()


def test_a_run_that_was_stopped_goes_on(tmp_path):
    clip = optimizers.clip_by_global_norm(0.5)
    optimizer = optimizers.chain(clip, optimizers.adamw(1e-2, amsgrad=True))

    def steps(run, count):
        params, state = run["params"], run["state"]
        for k in range(run["step"], run["step"] + count):
            grads = grad(loss)(params, randn([7, 3], seed=k))
            updates, state = optimizer.update(grads, state, params)
            params = optimizers.apply_updates(params, updates)
        return {"params": params, "state": state, "step": run["step"] + count}

    begun = {"params": PARAMS, "state": optimizer.init(PARAMS), "step": 0}
    whole = steps(begun, 9)
    save(tmp_path / "run.safetensors", steps(begun, 4))
    for like in (None, begun):
        again = steps(load(tmp_path / "run.safetensors", like), 5)
        assert_same(again["params"], whole["params"], rtol=1e-5)  # by a program or not
        assert again["step"] == 9
        assert type(again["state"][1]) is type(begun["state"][1])
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]


def test_containers_and_numbers_come_back_as_they_were(tmp_path):
    tree = {
        "a": [1, 2.5, None, True, "x", float("inf")],
        2: (paddle.to_tensor([1 + 2j]), {"empty": {}, "none": ()}),
    }
    save(tmp_path / "t.safetensors", tree)
    for like in (None, tree):
        found = load(tmp_path / "t.safetensors", like)
        assert found["a"] == tree["a"]
        assert [type(x) for x in found["a"]] == [type(x) for x in tree["a"]]
        assert_same(found[2][0], tree[2][0], rtol=0, atol=0)
        assert found[2][1] == tree[2][1]


def test_named_tuples_of_others_need_a_like(tmp_path):
    path = tmp_path / "t.safetensors"
    save(path, Pair(PARAMS["0.bias"], [3]))
    with pytest.raises(ValueError, match=r"tree is a named tuple of .*:Pair.* as like"):
        load(path)
    found = load(path, Pair(PARAMS["0.bias"], [0]))
    assert type(found) is Pair
    assert found.other == [3]


UNLIKE = {
    "another shape": Pair(PARAMS["0.weight"], [3]),
    "another dtype": Pair(PARAMS["0.bias"].astype("float64"), [3]),
    "a longer list": Pair(PARAMS["0.bias"], [3, 4]),
    "a dict": {"one": PARAMS["0.bias"], "other": [3]},
    "a plain tuple": (PARAMS["0.bias"], [3]),
    "a tensor for a number": Pair(PARAMS["0.bias"], [paddle.ones([])]),
}


def test_states_of_another_optimizer_are_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    save(path, optimizers.momentum(0.1).init(PARAMS))
    with pytest.raises(ValueError, match=r"like has a Adagrad of 2"):
        load(path, optimizers.adagrad(0.1).init(PARAMS))
    save(path, optimizers.adam(0.1, amsgrad=True).init(PARAMS))
    with pytest.raises(ValueError, match=r"largest|tree\[5\]"):
        load(path, optimizers.adam(0.1).init(PARAMS))
    ordered = collections.OrderedDict(a=1)
    save(path, ordered)
    assert type(load(path, ordered)) is collections.OrderedDict


@pytest.mark.parametrize("name", UNLIKE)
def test_what_is_unlike_is_refused(name, tmp_path):
    path = tmp_path / "t.safetensors"
    save(path, Pair(PARAMS["0.bias"], [3]))
    with pytest.raises(ValueError, match=r"^tree.* in the file is .*, and like has a"):
        load(path, UNLIKE[name])


BAD = {
    "an object": ({"a": object()}, "t.safetensors", TypeError, "got object at state"),
    "an array": ([PARAMS["0.bias"].numpy()], "t.safetensors", TypeError, "to_tensor"),
    "a key": ({1.5: 1}, "t.safetensors", TypeError, "keys must be strings or ints"),
    "a suffix": ({}, "t.npz", ValueError, "ends in .safetensors"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_file_holds_is_refused_and_nothing_is_written(name, tmp_path):
    tree, file, error, message = BAD[name]
    with pytest.raises(error, match=message):
        save(tmp_path / file, tree)
    assert not list(tmp_path.iterdir())


def named(kind, parts):
    tree = ["named", [kind, parts]]
    return lambda path: tensor_files.write(path, {}, {"state": json.dumps(tree)})


MADE = {
    "a module that is no optimizer's": (named("os:system", [["plain", "x"]]), "like"),
    "no named tuple": (named("paddle_chainrules.optimizers.adaptive:adam", []), "like"),
    "a module of another version": (
        named("paddle_chainrules.optimizers.newer:Lion", [["plain", 1]]),
        "a named tuple of the class paddle_chainrules.optimizers.newer:Lion",
    ),
    "a module beside": (named("paddle_chainrules.optimizers.:x", []), "like"),
    "other fields": (
        named("paddle_chainrules.optimizers.adaptive:Adam", [["plain", 1]]),
        "can't be made here",
    ),
    "no pair": (named("a", None), "kind named"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_file_makes_no_class_of_others(name, tmp_path):
    write, message = MADE[name]
    write(tmp_path / "t.safetensors")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "t.safetensors")


def test_a_file_that_was_cut_is_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    save(path, PARAMS)
    content = path.read_bytes()
    for cut in (0, 7, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="is no checkpoint"):
            load(path)
