"""Solutions where no formula has one, to seven digits and more; ``check`` refines them.

Methods as in Trefethen, "Spectral Methods in MATLAB", 2000.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.integrate import solve_ivp
from scipy.interpolate import BarycentricInterpolator
from scipy.special import logsumexp

Array = np.ndarray
PI = np.pi
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


def cole_hopf(t: Array, x: Array, nu: float, nodes: int = 200) -> Array:
    """Burgers' equation from ``-sin(pi x)``, by Gauss and Hermite's quadrature.

    Cole 1951: u is a quotient of integrals of Gaussians times exponentials.
    """
    z, weight = np.polynomial.hermite.hermgauss(nodes)
    y = x[:, None] - np.sqrt(4 * nu * t)[:, None] * z
    size = np.log(weight + 1e-300) - np.cos(PI * y) / (2 * PI * nu)
    part = np.exp(size - logsumexp(size, 1, keepdims=True))
    return -(np.sin(PI * y) * part).sum(1)


def at_times(points: Array, values: Array, times: Array, along: Array) -> Array:
    """From values [times, places] of Chebyshev's places to points [n, 2]."""
    found = np.empty(len(points))
    for time, row in zip(times, values, strict=True):
        here = points[:, 0] == time
        found[here] = BarycentricInterpolator(along, row)(points[here, 1])
    return found[:, None]


def cheb(n: int) -> tuple[Array, Array]:
    """Chebyshev's places, n + 1 of them from 1 to -1, and d/dx there."""
    x = np.cos(PI * np.arange(n + 1) / n)
    c = np.r_[2.0, np.ones(n - 1), 2.0] * (-1.0) ** np.arange(n + 1)
    apart = x[:, None] - x + np.eye(n + 1)
    matrix = np.outer(c, 1 / c) / apart
    return x, matrix - np.diag(matrix.sum(1))


def allen_cahn(points: Array, n: int = 600) -> Array:
    """``u_t = 0.001 u_xx + 5 (u - u^3)``, -1 at both ends, by collocation."""
    x, d = cheb(n)
    d2 = (d @ d)[1:-1]
    start = x**2 * np.cos(PI * x)

    def whole(u: Array) -> Array:
        return np.r_[-1.0, u, -1.0]

    found = solve_ivp(
        lambda _, u: 0.001 * d2 @ whole(u) + 5.0 * (u - u**3),
        (0.0, 1.0),
        start[1:-1],
        "BDF",
        np.unique(points[:, 0]),
        jac=lambda _, u: 0.001 * d2[:, 1:-1] + np.diag(5.0 - 15.0 * u**2),
        rtol=1e-9,
        atol=1e-10,
    )
    values = np.stack([whole(u) for u in found.y.T])
    return at_times(points, values, found.t, x)


def waves(n: int, length: float) -> Array:
    """Wave numbers of a real function at n even places."""
    return 2 * PI / length * np.arange(n // 2 + 1)


def periodic_at(points: Array, spectra: Array, times: Array, k: Array) -> Array:
    """Values at points [n, 2] of Fourier series, one for each time."""
    found = np.empty(len(points))
    twice = np.r_[1.0, np.full(len(k) - 2, 2.0), 1.0] / (2 * len(k) - 2)
    for time, row in zip(times, spectra, strict=True):
        here = points[:, 0] == time
        found[here] = (np.exp(1j * points[here, 1:] * k) @ (twice * row)).real
    return found[:, None]


def korteweg_de_vries(points: Array, n: int = 512) -> Array:
    """From ``cos(pi x)``, by Fourier series with the dispersion integrated exactly."""
    k = waves(n, 2.0)
    turn = 0.0025j * k**3
    kept = k < 2 / 3 * k[-1]  # what products of two would bring back
    x = -1.0 + 2.0 * np.arange(n) / n
    shift = np.exp(1j * k)  # of places from -1 on

    def slope(t: float, packed: Array) -> Array:
        u = np.fft.irfft(packed.view(complex) * np.exp(turn * t), n)
        made = -0.5j * k * kept * np.fft.rfft(u * u) * np.exp(-turn * t)
        return made.view(float)

    start = np.fft.rfft(np.cos(PI * x))
    times = np.unique(points[:, 0])
    found = solve_ivp(slope, (0.0, 1.0), start.view(float), "DOP853", times, **TIGHT)
    spectra = found.y.T.copy().view(complex) * np.exp(turn * found.t[:, None])
    return periodic_at(points, spectra * shift, found.t, k)


def bump(x: Array) -> Array:
    """A Gaussian of width pi / 4 around pi, with those of the next periods."""
    shifts = 2 * PI * np.arange(-2, 3)
    return sum(np.exp(-((x - PI - s) ** 2) / (2 * (PI / 4) ** 2)) for s in shifts)


def reaction_diffusion(points: Array, n: int = 128) -> Array:
    """``u_t = 3 u_xx + 5 u (1 - u)`` from :func:`bump`, by Fourier's collocation."""
    k = waves(n, 2 * PI)
    x = 2 * PI * np.arange(n) / n
    d2 = np.fft.irfft(-(k**2)[:, None] * np.fft.rfft(np.eye(n), axis=0), n, axis=0)
    found = solve_ivp(
        lambda _, u: 3.0 * d2 @ u + 5.0 * u * (1.0 - u),
        (0.0, 1.0),
        bump(x),
        "Radau",
        np.unique(points[:, 0]),
        jac=lambda _, u: 3.0 * d2 + np.diag(5.0 - 10.0 * u),
        rtol=1e-9,
        atol=1e-11,
    )
    return periodic_at(points, np.fft.rfft(found.y.T, axis=1), found.t, k)


def lid(x: Array) -> Array:
    """Shen's lid, at rest in the corners with its slope."""
    return 16.0 * x**2 * (1.0 - x) ** 2


def clamped(n: int) -> tuple[Array, list[Array]]:
    """Places inside of [-1, 1], and derivatives of order 0 to 4 there.

    Of functions ``(1 - x^2) p``, p zero at both ends, which are so with their slopes.
    """
    x, d = cheb(n)
    powers = [np.linalg.matrix_power(d, k)[1:-1, 1:-1] for k in range(5)]
    x = x[1:-1]
    hat = 1.0 - x**2
    first, second = -2.0 * x, -2.0
    of = [
        sum(
            binomial * np.multiply.outer(factor, np.ones(len(x))) * powers[k - j]
            for j, (binomial, factor) in enumerate(
                ((1, hat), (k, first), (k * (k - 1) / 2, second + 0.0 * x))
            )
            if k >= j
        )
        for k in range(5)
    ]
    return x, [matrix / hat for matrix in of]


def cavity(points: Array, n: int = 40, reynolds: float = 100.0) -> Array:
    """Velocity in a cavity whose lid moves, by Newton on the stream function.

    To five digits, since the fourth derivatives of more places round the rest away.
    """
    places, by = clamped(n)
    one = np.eye(len(places))
    y, x = (a.ravel() for a in np.meshgrid(places, places, indexing="ij"))
    scale = 2.0  # of [-1, 1] to [0, 1]

    def of(i: int, j: int) -> Array:
        """The derivative i times along and j times across, at all places."""
        return scale ** (i + j) * np.kron(by[j] if j else one, by[i] if i else one)

    # The lid's own part, which meets the conditions: lid(x) (y - 1) y^2.
    p = np.polynomial.Polynomial
    along, across = 16.0 * p([0, 0, 1, -2, 1]), p([0, 0, -1, 1])

    def given(i: int, j: int, x: Array = (x + 1) / 2, y: Array = (y + 1) / 2) -> Array:
        return along.deriv(i)(x) * across.deriv(j)(y)

    orders = [(i, j) for i in range(5) for j in range(5 - i)]
    ops = {order: of(*order) for order in orders}
    base = {order: given(*order) for order in orders}
    bilaplace = ops[4, 0] + 2 * ops[2, 2] + ops[0, 4]
    curl_x, curl_y = ops[3, 0] + ops[1, 2], ops[2, 1] + ops[0, 3]
    phi = np.zeros(len(x))
    for _ in range(30):
        d = {order: ops[order] @ phi + base[order] for order in orders}
        wx, wy = d[3, 0] + d[1, 2], d[2, 1] + d[0, 3]
        left = (d[4, 0] + 2 * d[2, 2] + d[0, 4]) / reynolds
        residual = left - (d[0, 1] * wx - d[1, 0] * wy)
        slope = bilaplace / reynolds - (
            d[0, 1][:, None] * curl_x
            + wx[:, None] * ops[0, 1]
            - d[1, 0][:, None] * curl_y
            - wy[:, None] * ops[1, 0]
        )
        step = np.linalg.solve(slope, residual)
        phi -= step
        if np.abs(step).max() < 1e-12:
            break
    # (1 - x^2)(1 - y^2) p, with p as Chebyshev's series of both.
    inner = phi.reshape(len(places), -1) / np.outer(1 - places**2, 1 - places**2)
    full = np.zeros((n + 1, n + 1))
    full[1:-1, 1:-1] = inner
    nodes = np.cos(PI * np.arange(n + 1) / n)
    fit = np.linalg.inv(chebyshev.chebvander(nodes, n))
    series = fit @ full @ fit.T  # [across, along]
    at_x, at_y = 2 * points[:, 0] - 1, 2 * points[:, 1] - 1
    value = chebyshev.chebval2d(at_y, at_x, series)
    p_y = chebyshev.chebval2d(at_y, at_x, chebyshev.chebder(series, axis=0))
    p_x = chebyshev.chebval2d(at_y, at_x, chebyshev.chebder(series, axis=1))
    hat_x, hat_y = 1 - at_x**2, 1 - at_y**2
    u = scale * hat_x * (hat_y * p_y - 2 * at_y * value)
    v = -scale * hat_y * (hat_x * p_x - 2 * at_x * value)
    x, y = points.T
    return np.stack([u + given(0, 1, x, y), v - given(1, 0, x, y)], 1)


def check() -> dict[str, float]:
    """How far each is from itself at two thirds of the resolution."""

    def apart(fine: Array, coarse: Array) -> float:
        return float(np.abs(fine - coarse).max() / np.abs(fine).max())

    t, x = (
        a.ravel() for a in np.meshgrid(np.linspace(0, 1, 6), np.linspace(-1, 1, 41))
    )
    line = np.stack([t, x], 1)
    ring = np.stack([t, PI * (x + 1)], 1)
    square = np.stack([t, (x + 1) / 2], 1)
    nu = 0.01 / PI
    return {
        "Burgers": apart(cole_hopf(t, x, nu), cole_hopf(t, x, nu, 134)),
        "Allen-Cahn": apart(allen_cahn(line), allen_cahn(line, 400)),
        "KdV": apart(korteweg_de_vries(line), korteweg_de_vries(line, 342)),
        "reaction": apart(reaction_diffusion(ring), reaction_diffusion(ring, 86)),
        "cavity": apart(cavity(square), cavity(square, 27)),
    }


if __name__ == "__main__":
    for name, far in check().items():
        print(f"{name} {far:.1e}")
