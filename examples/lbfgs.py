"""L-BFGS of scipy, with a progress bar."""

from collections.abc import Callable

import numpy as np
import paddle
from paddle import Tensor
from scipy.optimize import minimize
from tqdm import tqdm

from paddle_chainrules import value_and_grad


def lbfgs(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    iterations: int,
) -> tuple[np.ndarray, list[float]]:
    """The vector with the least value that was found, and the value by iteration.

    Args:
        evaluate: value and gradient at a vector, in float64.
        start: where to begin.
        iterations: at most.

    Source: Byrd, Lu, Nocedal and Zhu, "A limited memory algorithm for bound constrained
    optimization", SIAM Journal on Scientific Computing 16(5), 1995.
    """
    losses: list[float] = []
    with tqdm(total=iterations, desc="L-BFGS", unit="step", mininterval=0.5) as bar:

        def after(intermediate_result):
            losses.append(float(intermediate_result.fun))
            bar.update()
            bar.set_postfix_str(f"loss {losses[-1]:.2e}", refresh=False)

        found = minimize(
            lambda flat: tuple(np.asarray(part, "float64") for part in evaluate(flat)),
            np.asarray(start, "float64"),
            jac=True,
            method="L-BFGS-B",
            callback=after,
            options={
                "maxiter": iterations,
                "maxfun": 2 * iterations,
                "maxcor": 50,
                "ftol": 0.0,
                "gtol": 0.0,
            },
        )
    return found.x, losses


def fit(
    loss: Callable[[Tensor], Tensor], theta: Tensor, iterations: int
) -> tuple[Tensor, list[float]]:
    """The same for a loss of the flat parameters of a net."""
    gradient = value_and_grad(loss)

    def evaluate(flat):
        value, grad = gradient(paddle.to_tensor(flat))
        return float(value), grad.numpy()

    found, losses = lbfgs(evaluate, theta.numpy(), iterations)
    return paddle.to_tensor(found), losses
