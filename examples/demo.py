"""The whole of it on real data: train in Python, again from Julia, compare, draw.

``make demo`` runs it and leaves output/digits.png. Where Julia or its packages are
missing it says what to do, and does the Python part.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np

import digits
from paddle_chainrules import julia

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
FIRST_STEPS = 50


def run_julia(found: julia.Environment, script: str):
    """What a Julia script leaves as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = found.command(HERE / script, out)
        subprocess.run(command, env=found.variables(), check=True)
        return json.loads(out.read_text())


def draw(path, losses, losses_julia, examples, predicted):
    """Loss curves on the left, digits not seen in training on the right."""
    figure = plt.figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.35, 1])
    axes = left.subplots()
    axes.semilogy(losses, color="C0", linewidth=2.6, label="Python")
    if losses_julia is not None:
        axes.semilogy(
            losses_julia, color="C1", linewidth=1.0, linestyle="--", label="Julia"
        )
    axes.set(
        xlabel="batch",
        ylabel="cross entropy",
        title="Training loss, same net, data and initial parameters",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    wrong = sum(predicted != examples[1])
    right.suptitle(f"Digits not seen; the {wrong} wrong ones first: predicted (true)")
    for cell, image, label, guess in zip(
        right.subplots(4, 6).flat, *examples, predicted, strict=True
    ):
        cell.imshow(image.reshape(8, 8), cmap="gray_r")
        cell.set_axis_off()
        right_guess = guess == label
        cell.set_title(
            f"{guess}" if right_guess else f"{guess} ({label})",
            color="black" if right_guess else "C3",
            fontsize=11,
        )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    sys.stdout.reconfigure(line_buffering=True)  # in step with the programs it starts
    data = digits.load()
    print("Training in Python, through the stateless API")
    params, losses = digits.train(data)
    guess = digits.predict(params, data.x_test)
    accuracy = (guess == data.labels_test).mean()
    print(f"accuracy on {len(guess)} digits not seen: {accuracy:.1%}\n")
    assert accuracy > 0.95

    from_julia = None
    try:
        found = julia.environment("Optimisers", "Zygote")
    except FileNotFoundError as why:
        print(f"The Julia part is left out: {why}")
        print("Then run make demo again.\n")
    else:
        print("Training from Julia, with Zygote and Optimisers")
        from_julia = run_julia(found, "digits.jl")
        ours, theirs = np.array(losses), np.array(from_julia["losses"])
        difference = np.abs(theirs - ours) / ours
        print(
            f"largest relative difference of the first {FIRST_STEPS} losses: "
            f"{difference[:FIRST_STEPS].max():.1e}\n"
        )
        assert difference[:FIRST_STEPS].max() < 1e-5

    print("Timing all sides in turn, one thread each")
    benchmark = HERE.parent / "benchmarks" / "run.py"
    subprocess.run(
        [sys.executable, "-W", "ignore", benchmark],
        env={**os.environ, "QUICK": "1"},
        check=True,
    )

    shown = np.concatenate(
        [np.flatnonzero(guess != data.labels_test), np.arange(len(guess))]
    )[:24]
    path = HERE.parent / "output" / "digits.png"
    draw(
        path,
        losses,
        from_julia and from_julia["losses"],
        (data.x_test[shown], data.labels_test[shown]),
        guess[shown],
    )
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
