"""All problems and all sides, by their names on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import evolving, flows, neural_ode, steady
from .problem import Problem


class Side(NamedTuple):
    """Who trains: the function of a module, and what its process is told."""

    module: str
    function: str
    variables: Mapping[str, str] = {}


PADDLE, TORCH = {"DDE_BACKEND": "paddle"}, {"DDE_BACKEND": "pytorch"}

SIDES: dict[str, Side] = {
    "PaddleScience": Side("in_paddlescience", "adam"),
    "DeepXDE, Paddle": Side("in_deepxde", "adam", PADDLE),
    "DeepXDE, PyTorch, L-BFGS": Side("in_deepxde", "adam_lbfgs", TORCH),
    "JAX, optax": Side("in_jax", "adam"),
    "JAX, L-BFGS": Side("in_jax", "adam_lbfgs"),
    "JAX, self-scaled Broyden": Side("in_jax", "adam_broyden"),
    "JAX, Levenberg-Marquardt": Side("in_jax", "least_squares"),
    "PyTorch, Levenberg-Marquardt": Side("in_torch", "least_squares"),
    "PaddleScience, Taylor mode": Side("in_paddlescience", "adam_in_taylor_mode"),
    "DeepXDE, Taylor mode": Side("in_deepxde", "adam_in_taylor_mode", PADDLE),
    "ours, scan": Side("by_functions", "adam"),
    "ours, L-BFGS": Side("by_functions", "adam_lbfgs"),
    "ours, self-scaled Broyden": Side("by_functions", "adam_broyden"),
    "ours, Levenberg-Marquardt": Side("by_least_squares", "least_squares"),
}
IN_FLOAT64: dict[str, Side] = {
    "DeepXDE, PyTorch, L-BFGS, float64": Side(
        "in_deepxde", "adam_lbfgs_in_float64", TORCH
    ),
}
"""Where it ends by itself in float32, before its time; and where ours are a hundred
times nearer by little."""
IN_SPANS: dict[str, Side] = {
    "ours, L-BFGS in spans": Side("by_functions", "lbfgs_in_spans"),
}
"""Of problems in time whose nets end elsewhere if all times are asked for at once."""
IN_JULIA: dict[str, Side] = {
    "Julia: Lux": Side("in_julia.jl", "lux"),
    "Julia: train!": Side("in_julia.jl", "paddle_chain_rules"),
}
"""Of the problems that in_julia.jl has, where there is Julia with what it takes."""

BY_HAND = "JAX, L-BFGS", "JAX, self-scaled Broyden", "JAX, Levenberg-Marquardt"
BY_HAND += "JAX, optax", "PyTorch, Levenberg-Marquardt"
"""Problems written by hand in libraries that have such methods."""

OURS = *tuple(SIDES)[-6:], *IN_SPANS, "Julia: train!"
NATIVE = "native Paddle"

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "Poisson, sharp source": steady.sharp_poisson,
    "Helmholtz": steady.helmholtz,
    "Burgers": evolving.burgers,
    "Allen-Cahn": evolving.allen_cahn,
    "Korteweg-de Vries": evolving.korteweg_de_vries,
    "convection": evolving.convection,
    "reaction-diffusion": evolving.reaction_diffusion,
    "wave": evolving.wave,
    "Klein-Gordon": evolving.klein_gordon,
    "Kovasznay flow": flows.kovasznay,
    "lid-driven cavity": flows.cavity,
    "Euler beam": steady.beam,
    "biharmonic plate": steady.plate,
    "Poisson, 10 dimensions": steady.ten_dimensions,
    "heat, inverse": evolving.heat_from_data,
    "neural ODE": neural_ode.neural_ode,
}

OF_ODES: dict[str, Side] = {
    "native Paddle": Side("neural_ode", "native"),
    "JAX, optax": Side("neural_ode", "in_jax"),
    "ours, scan": Side("neural_ode", "by_scan"),
}


DOUBLE = ("Helmholtz", "Burgers", "Klein-Gordon", "lid-driven cavity", "Euler beam")
SPANNED = ("convection", "reaction-diffusion")
FROM_JULIA = ("Helmholtz", "Burgers", "wave", "Klein-Gordon")


def sides_of(problem: str) -> dict[str, Side]:
    """Who solves a problem; what is no equation of a net's derivatives has others."""
    if problem == "neural ODE":
        return OF_ODES
    found = SIDES | (IN_FLOAT64 if problem in DOUBLE else {})
    if problem in SPANNED:
        found |= IN_SPANS
    return found | IN_JULIA if problem in FROM_JULIA else found
