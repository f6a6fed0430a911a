"""Two trained nets as libraries for Fortran and C++: an equation and a material.

``rhs.so`` has the right-hand side of Van der Pol's equation, learned from points, and
its Jacobian; ode.f90 integrates it. ``material.so`` has a hyperelastic law: a net is
the energy of a strain, its gradient is the stress, its Hessian the tangent; umat.f90
and grid.cpp call it. Run it: python examples/libraries/save.py FOLDER, then

    cmake -S examples/libraries -B FOLDER/build -DLIBRARIES=FOLDER
    cmake --build FOLDER/build
    ctest --test-dir FOLDER/build
    python examples/libraries/plot.py FOLDER

``QUICK=1`` takes a quarter of the steps.
"""

import os
import sys
from pathlib import Path

import numpy as np
import paddle
from scipy.integrate import solve_ivp
from tqdm import tqdm

from paddle_chainrules import (
    FCNet,
    grad,
    hessian,
    optimizers,
    scan,
    stateless,
    value_and_grad,
    vmap,
)
from paddle_chainrules.libraries import Export, load_library, save_library

STEPS = 2000 if "QUICK" in os.environ else 8000
MU, SPAN = 3.0, np.array([2.5, 6.0])
BULK, SHEAR, LIMIT = 3000.0, 1000.0, 0.01
"""Moduli in MPa for small strains, and the strain at which shear softens."""
LARGEST = 0.03
"""The largest strain that the net learns."""


def van_der_pol(states):
    """The derivative with respect to time of states [n, 2]: position and velocity."""
    x, v = states.T
    return np.stack([v, MU * (1 - x**2) * v - x], axis=-1)


def trajectory(start, ticks):
    """The states [n, 2] at these times."""
    found = solve_ivp(
        lambda _, state: van_der_pol(state[None])[0],
        (0.0, ticks[-1]),
        start,
        t_eval=ticks,
        rtol=1e-9,
        atol=1e-9,
    )
    return found.y.T


class Field(paddle.nn.Layer):
    """A tanh net between states and derivatives of ordinary size."""

    def __init__(self, span, size):
        super().__init__()
        self.span, self.size = span, size
        self.net = paddle.nn.Sequential(
            *(paddle.nn.Linear(2, 32), paddle.nn.Tanh()),
            *(paddle.nn.Linear(32, 32), paddle.nn.Tanh()),
            paddle.nn.Linear(32, 2),
        )

    def forward(self, x):
        return self.size * self.net(x / self.span)


def trained(name, loss, params):
    """Parameters after Adam's steps, which one loop of machine code takes."""
    optimizer = optimizers.adam(optimizers.schedules.one_cycle(2e-2, STEPS))

    def step(carry, _):
        params, state = carry
        value, grads = value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optimizers.apply_updates(params, updates), state), value

    with tqdm(total=STEPS, desc=name, unit="step") as bar:

        def report(count, carry, values):
            bar.update(count - bar.n)

        carry = params, optimizer.init(params)
        (params, _), _ = scan(
            step, carry, None, length=STEPS, on_step=report, every=STEPS // 20
        )
    return params


def save_rhs(folder):
    """Learn Van der Pol's equation at points of a box and on some trajectories."""
    random = np.random.default_rng(0)
    ticks = np.linspace(0, 6, 60)
    starts = random.uniform(-0.5, 0.5, (10, 2)) * SPAN
    states = [random.uniform(-SPAN, SPAN, (600, 2))]
    states = np.concatenate([*states, *(trajectory(each, ticks) for each in starts)])
    x, y = paddle.to_tensor(states), paddle.to_tensor(van_der_pol(states))
    size = paddle.sqrt((y**2).mean(0))
    net, params, _ = stateless(Field(paddle.to_tensor(SPAN), size))
    params = trained(
        "equation", lambda params: (((net(params, x) - y) / size) ** 2).mean(), params
    )
    save_library(
        folder / "rhs.so",
        net,
        params,
        x[:5],
        derivatives=["jacobian"],
        params="inside",
    )
    rhs = load_library(folder / "rhs.so").rhs
    seen = random.uniform(-SPAN, SPAN, (1000, 2))
    error = np.linalg.norm(rhs(seen) - van_der_pol(seen))
    error /= np.linalg.norm(van_der_pol(seen))
    print(f"equation: relative error {error:.1e} at points not seen")
    assert error < 0.03


def invariants(strain):
    """The squares of volumetric and deviatoric strain.

    A strain is [6]: 11, 22, 33, and twice 12, 13, 23, as in ABAQUS. The gradient of an
    energy with respect to it is then the stress 11, 22, 33, 12, 13, 23.
    """
    volume = strain[:3].sum()
    squares = (strain[:3] ** 2).sum() + (strain[3:] ** 2).sum() / 2
    return paddle.stack([volume**2, squares - volume**2 / 3])


def true_energy(strain):
    """The energy that data come from: linear in volume, softening in shear."""
    volume, shear = invariants(strain).unbind()
    softened = paddle.sqrt(1 + shear / LIMIT**2) - 1
    return BULK / 2 * volume + 2 * SHEAR * LIMIT**2 * softened


def save_material(folder):
    """Learn an energy from stresses at random strains."""
    net = FCNet((2, 16, 16, 1), "tanh", "float64")
    origin = paddle.zeros([1, 2], "float64")
    scale = BULK * LARGEST**2

    def energy(params, strain):
        """Zero for no strain, as is its gradient."""
        at = invariants(strain / LARGEST).unsqueeze(0)
        return scale * (net(params, at) - net(params, origin)).sum()

    def stress(params, strain):
        return grad(energy, 1)(params, strain)

    def tangent(params, strain):
        return hessian(energy, 1)(params, strain)

    random = np.random.default_rng(0)
    directions = random.normal(size=(500, 6))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    strains = LARGEST * random.uniform(size=(500, 1)) * directions
    seen, unseen = map(paddle.to_tensor, (strains[:400], strains[400:]))
    expected = vmap(grad(true_energy))(seen)
    size = paddle.sqrt((expected**2).mean())

    def loss(params):
        found = vmap(stress, (None, 0))(params, seen)
        return (((found - expected) / size) ** 2).mean()

    params = trained("material", loss, net.flatten(net.init(0)))
    exports = {}
    for function in (energy, stress, tangent):
        name = function.__name__
        exports[name] = Export(
            lambda strain, function=function: function(params, strain),
            seen[0],
            results=[name],
        )
    exports["stresses"] = Export(
        lambda strain: vmap(stress, (None, 0))(params, strain),
        seen[:5],
        batched=0,
        results=["stress"],
    )
    exports["tangents"] = Export(
        lambda strain: vmap(tangent, (None, 0))(params, strain),
        seen[:5],
        batched=0,
        results=["tangent"],
    )
    save_library(folder / "material.so", exports)
    found = load_library(folder / "material.so").material_stresses(unseen.numpy())
    wanted = vmap(grad(true_energy))(unseen).numpy()
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    print(f"material: relative error {error:.1e} of stresses not seen")
    assert error < 0.05


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give a folder: python examples/libraries/save.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    paddle.seed(0)
    paddle.set_default_dtype("float64")
    save_rhs(folder)
    save_material(folder)
