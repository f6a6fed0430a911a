"""Runs of two and four processes beside one, on gloo."""

import json
import os
import subprocess
import sys
import time

import paddle
import pytest

from distributed.processes import WORKER, finish, free_ports, results, start
from paddle_chainrules import distributed

DISAGREEMENTS = {
    "order": "rank 0 has value_and_grad, rank 1 has broadcast from rank 0",
    "shape": "rank 0 has ['a']: float32 [3, 2], rank 1 has ['a']: float32 [3, 3]",
    "number": "rank 0 has 2 tensors, rank 1 has 3 tensors",
    "dtype": "rank 0 has ['a']: float32 [3], rank 1 has ['a']: float64 [3]",
    "names": "rank 0 has ['a']: float32 [3], rank 1 has ['b']: float32 [3]",
    "samples": "rank 0 has ['arguments'][1]['z']: float32 [samples, 3], rank 1 has",
    "loss": "rank 0 has the loss failing.<locals>.loss",
    "reduction": "rank 0 has reduction='mean', rank 1 has reduction='sum'",
    "kind of weight": "rank 0 has weight=a number, rank 1 has weight=None",
    "weight's constant": "default 0 of the weight = 2.0, rank 1 has default 0 of",
    "constant": "rank 0 has c of the loss = 0.1, rank 1 has c of the loss = 1.1",
    "constant of a module": "rank 0 has GLOBAL of the loss = 0.5, rank 1 has GLOBAL of",
    "constant of a helper": "has inner of helper of the loss = 3.0, rank 1 has inner",
    "one element": "rank 0 has one of the loss = 1.0, rank 1 has one of the loss = 2.0",
    "config": "1 of weights of config of the loss = 2.0, rank 1 has 1 of weights",
    "argument of a partial": "has power of the loss = 2, rank 1 has power of the loss",
}
TOLD = "RankError"
FAILURES = {  # rank 0's, rank 1's
    "raises": (
        (TOLD, "rank 1 (ZeroDivisionError: of"),
        ("ZeroDivisionError", "of rank"),
    ),
    "weight": ((TOLD, "rank 1 (ValueError: the weight"), ("ValueError", "got 0")),
    "integers": (("TypeError", "got paddle.int64 at ['count']"),) * 2,
    "no file": (("FileNotFoundError", "missing"), (TOLD, "rank 0 (FileNotFoundError")),
    "no folder": (("FileNotFoundError", "missing"), (TOLD, "rank 0 (FileNotFound")),
    "no checkpoint": (("ValueError", "is no checkpoint"), (TOLD, "rank 0 (ValueError")),
}


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_equal_one(n, tmp_path):
    ranks = results(n, "equal", tmp_path)
    assert len(ranks[0]) == 14
    for name, (error, _) in ranks[0].items():
        assert error < 1e-12, (name, error)
    assert all(rank == ranks[0] for rank in ranks)  # bit for bit


def test_averages_broadcasts_shards_and_seeds(tmp_path):
    ranks = results(2, "kinds", tmp_path)
    limits = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-7, "float64": 1e-15}
    limits |= {"complex64": 3e-7, "complex128": 1e-15}
    for rank in ranks:
        assert rank["errors"].keys() == limits.keys()
        assert all(rank["errors"][dtype] < limits[dtype] for dtype in limits)
    assert [x for rank in ranks for x in rank["shard"]] == list(range(11))
    seeds = [seed for rank in ranks for seed in rank["seeds"]]
    assert len(set(seeds)) == len(seeds)


@pytest.fixture(scope="module")
def slips(tmp_path_factory):
    """What both ranks are told of each slip, one after another in the same run."""
    folder = tmp_path_factory.mktemp("slips")
    kinds = (*DISAGREEMENTS, *FAILURES, "nothing that counts")
    return results(2, "slips", folder, *kinds)


@pytest.mark.parametrize("kind", DISAGREEMENTS)
def test_ranks_that_disagree_are_told(kind, slips):
    here, there = slips[0][kind], slips[1][kind]
    assert here == there
    assert here["type"] == "RankError"
    assert DISAGREEMENTS[kind] in here["text"]


def test_what_may_differ_is_not_told(slips):
    assert [rank["nothing that counts"] for rank in slips] == [None, None]


@pytest.mark.parametrize("kind", FAILURES)
def test_what_fails_on_one_rank_is_told_on_all(kind, slips):
    for rank, (kind_of_error, text) in zip(slips, FAILURES[kind], strict=True):
        assert rank[kind]["type"] == kind_of_error
        assert text in rank[kind]["text"]


def test_a_killed_rank_ends_the_others_and_the_run_goes_on_from_its_checkpoint(
    tmp_path,
):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    begun = time.time()
    survivor, killed = start(
        2, "train", cut, 5, 0, 2
    )  # rank 1 is killed in its third step
    text, _ = survivor.communicate(timeout=90)
    killed.communicate(timeout=30)
    assert killed.returncode == -9
    assert survivor.returncode == 1
    assert "RankError: rank 0 of 2 lost the others in value_and_grad" in text
    assert time.time() - begun < 90
    resumed = results(2, "train", cut, 5, 1)
    assert resumed[0] == resumed[1]
    assert resumed == results(2, "train", whole, 5, 0)
    assert os.listdir(cut).count("run.safetensors") == 1
    assert not [name for name in os.listdir(cut) if name.startswith(".")]


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_others_within_a_minute(tmp_path):
    waiting, hanging = start(2, "silent", tmp_path)
    text, _ = waiting.communicate(timeout=100)
    hanging.kill()
    hanging.communicate()
    assert waiting.returncode == 0, text
    found = json.loads((tmp_path / "silent-0.json").read_text())
    assert found["seconds"] < 60
    assert "half a minute behind" in found["text"]


@pytest.mark.slow
def test_paddles_launcher_on_two_machines_of_two(tmp_path):
    (port,) = free_ports(1)
    machines = []
    for node in (0, 1):
        command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]
        command += [
            "--master",
            f"127.0.0.1:{port}",
            "--nnodes",
            "2",
            "--rank",
            str(node),
        ]
        command += ["--nproc_per_node", "2", "--log_dir", str(tmp_path / f"log{node}")]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        command += [str(WORKER), "train", str(tmp_path), "2", "0"]
        machines.append(
            subprocess.Popen(
                command,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    texts = [machine.communicate(timeout=200)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], texts
    ranks = [json.loads((tmp_path / f"train-{i}.json").read_text()) for i in range(4)]
    assert all(rank == ranks[0] for rank in ranks)
    (tmp_path / "run.safetensors").unlink()
    assert ranks == finish(start(4, "train", tmp_path, 2, 0), "train", tmp_path)


def test_one_process_needs_no_launcher(tmp_path):
    distributed.start()
    assert (distributed.rank(), distributed.size()) == (0, 1)
    state = {
        "params": {"w": paddle.to_tensor([1.5, float("nan")]), 3: paddle.zeros([0, 2])},
        "list": [None, True, 2**70, 0.1, "é", (paddle.to_tensor(2, dtype="bfloat16"),)],
    }
    path = tmp_path / "run.safetensors"
    distributed.save_checkpoint(path, state)
    found = distributed.load_checkpoint(path)
    assert list(found) == list(state)
    assert list(found["params"]) == ["w", 3]
    assert (
        found["params"]["w"].numpy().tobytes() == state["params"]["w"].numpy().tobytes()
    )
    assert found["params"][3].shape == [0, 2]
    assert found["list"][:5] == state["list"][:5]
    (half,) = found["list"][5]
    assert (half.dtype, half.shape, float(half)) == (paddle.bfloat16, [], 2.0)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=r"got object at state\['x'\]"):
        distributed.save_checkpoint(path, {"x": object()})
    with pytest.raises(TypeError, match="keys must be strings or ints, got 1.5"):
        distributed.save_checkpoint(path, {1.5: 1})
    assert path.read_bytes() == before
    path.write_bytes(before[:-1])
    with pytest.raises(ValueError, match="is no checkpoint"):
        distributed.load_checkpoint(path)


def test_what_only_some_micro_batches_use_has_its_gradient():
    params = {"a": paddle.to_tensor([1.5, 2.0]), "b": paddle.to_tensor([0.5, 3.0])}

    def loss(p, x):
        return (p["a" if float(x.sum()) > 0 else "b"] * x**2).sum()

    x = paddle.to_tensor([[-1.0, -2.0], [3.0, 4.0], [5.0, 6.0]])
    parts = x[:1], x[1:]
    for reduction, weights in (("sum", (1, 1)), ("mean", (1 / 3, 2 / 3))):
        step = distributed.value_and_grad(loss, reduction=reduction, micro_batches=2)
        value, grads = step(params, x)
        expected = sum(
            float(loss(params, part)) * k
            for part, k in zip(parts, weights, strict=True)
        )
        assert float(value) == pytest.approx(expected, rel=1e-6)
        squares = [(part**2).sum(0) * k for part, k in zip(parts, weights, strict=True)]
        assert grads["b"].tolist() == pytest.approx(squares[0].tolist(), rel=1e-6)
        assert grads["a"].tolist() == pytest.approx(squares[1].tolist(), rel=1e-6)
