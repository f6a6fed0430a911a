"""What optimizers, their schedules and searches for minima refuse."""

import paddle
from paddle import nn
from paddle import optimizer as P

from paddle_chainrules import FCNet, jacrev, optimizers
from paddle_chainrules.optimizers import (
    bfgs,
    from_paddle,
    gauss_newton,
    lbfgs,
    levenberg_marquardt,
    natural_gradient,
    schedules,
    sgd,
    to_paddle,
)

# fmt: off
SLIP = TypeError, ValueError, AttributeError
LR = P.lr

PARAMS = FCNet((3, 8, 2), "tanh").init(0)
WEIGHTS = {name: p for name, p in PARAMS.items() if "bias" not in name}
BOTH = {"a": paddle.ones([]), "b": paddle.ones([2])}
ADAM, ADAMW = optimizers.adam(0.1), optimizers.adamw(0.1)
STATE = ADAMW.init(PARAMS)
ONES = paddle.ones([2])
AT = paddle.to_tensor([1.0, 2.0], "float64")
LAYER = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
OTHER = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))


def rosenbrock(x):
    return paddle.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def half_squares(residual):
    return lambda x: 0.5 * (residual(x) ** 2).sum()


def by_metric(residual, params, **options):
    return natural_gradient(half_squares(residual), params, metric=residual, **options)


def updated(optimizer, grads, params):
    return optimizer.update(grads, optimizer.init(params), params)


class Mine(P.SGD):
    pass


REFUSED = {
    "a subclass": lambda: Mine(0.1, parameters=LAYER.parameters()),
    "RAdam": lambda: P.RAdam(0.1, parameters=LAYER.parameters()),
    "groups": lambda: P.SGD(0.1, parameters=[{"params": LAYER.parameters()}]),
    "another penalty": lambda: P.SGD(0.1, LAYER.parameters(), weight_decay=paddle.regularizer.L1Decay(0.1)),
    "a function for decay": lambda: P.AdamW(0.1, parameters=LAYER.parameters(), apply_decay_param_fun=lambda name: True),
    "losses": lambda: P.SGD(LR.ReduceOnPlateau(0.1), parameters=LAYER.parameters()),
}


def other_state():
    momentum, adam = (kind(learning_rate=0.1, parameters=LAYER.parameters()) for kind in (P.Momentum, P.Adam))
    to_paddle(from_paddle(momentum, LAYER)[1], adam, LAYER)


def not_clipped():
    layer = nn.Linear(3, 2, weight_attr=paddle.ParamAttr(need_clip=False))
    clip = nn.ClipGradByValue(0.01)
    from_paddle(P.SGD(0.1, parameters=layer.parameters(), grad_clip=clip), layer)


SEARCHES = levenberg_marquardt, gauss_newton, by_metric


def residual(p):
    return paddle.concat([p["x"], p["x"] ** 2])[:3]


def with_jacobian(method, of):
    return method(residual, {"x": AT}, jacobian=lambda p: of(jacrev(residual)(p)["x"]))


def natural(loss=half_squares(rosenbrock), **options):  # noqa: B008
    return natural_gradient(loss, AT, **options)


ROWS = [
    # Names of other libraries.
    ("adam lr", lambda: optimizers.adam(lr=0.1), SLIP, "no argument lr; .* learning_rate"),
    ("adam betas", lambda: optimizers.adam(0.1, betas=(0.9, 0.99)), SLIP, "beta1 and beta2"),
    ("optimizers.Adam", lambda: optimizers.Adam, SLIP, "here it is the function adam"),
    ("optimizers.no", lambda: optimizers.no, SLIP, "__all__ has all"),

    # Updates and their options.
    ("two rates", lambda: updated(sgd(paddle.to_tensor([0.1, 0.2])), BOTH, BOTH), ValueError, "one number"),
    ("an update of another shape", lambda: optimizers.apply_updates(BOTH, {**BOTH, "a": paddle.ones([1])}),
     ValueError, "none of a parameter"),
    ("a small part up", lambda: schedules.one_cycle(1.0, 10, up_part=0.1), ValueError, "up_part that leaves"),
    ("no parameters", lambda: ADAMW.update(PARAMS, STATE), ValueError, r"give them to update"),
    ("gradients of weights", lambda: ADAMW.update(WEIGHTS, STATE, PARAMS), ValueError, "nested alike"),
    ("a list of gradients", lambda: ADAMW.update([*PARAMS.values()], STATE, PARAMS), ValueError, "nested alike"),
    ("updates of weights", lambda: optimizers.apply_updates(PARAMS, WEIGHTS), ValueError, "nested alike"),
    ("a state of one", lambda: optimizers.chain(sgd(0.1), optimizers.scale(2.0)).update(PARAMS, (STATE,), PARAMS),
     ValueError, "state of 1"),
    ("another state", lambda: ADAM.update(BOTH, (), BOTH), TypeError, "the state of this optimizer"),
    ("no steps to accumulate", lambda: optimizers.accumulate(sgd(0.1), 0), ValueError, "from 1 on"),
    ("a beta of one", lambda: optimizers.adam(0.1, beta1=1.0), ValueError, "from 0 to below 1"),
    ("a norm of nothing", lambda: optimizers.global_norm([None]), ValueError, "give one with gradients"),
    *((f"adam in {d}", lambda d=d: updated(ADAM, {"w": ONES.astype(d)}, {"w": ONES.astype(d)}),
       NotImplementedError, f"{d} on CPU.*keep the param")
       for d in ("float16", "bfloat16")),
    ("a complex gradient", lambda: updated(ADAM, [paddle.to_tensor([1.0j])], [paddle.to_tensor([1.0])]),
     TypeError, "its parameter is real"),
    ("a value too few", lambda: schedules.piecewise_decay([1, 2], [0.1]), ValueError, "one value more than boundaries"),
    ("cosines of no steps", lambda: schedules.cosine_annealing(0.1, 0), ValueError, "must be"),
    ("decay below zero", lambda: schedules.exponential_decay(0.1, -1.0), ValueError, "must be"),
    ("a cycle by sines", lambda: schedules.one_cycle(0.1, 10, anneal="sine"), ValueError, "must be"),
    ("square cycles", lambda: schedules.cyclic(0.1, 0.2, 3, mode="square"), ValueError, "must be"),

    # Paddle's optimizers.
    *((name, lambda make=make: from_paddle(make(), LAYER), NotImplementedError, r"; (use|call|write|add)") for name, make in REFUSED.items()),
    ("parameters of another layer", lambda: from_paddle(P.SGD(0.1, parameters=OTHER.parameters()), LAYER),
     ValueError, "moves other parameters"),
    ("some parameters", lambda: from_paddle(P.SGD(0.1, parameters=LAYER.parameters()[:2]), LAYER), ValueError, "all of them"),
    ("the state of another kind", other_state, ValueError, "state of the same kind"),
    ("what is not clipped", not_clipped, NotImplementedError, "not clipped"),

    # L-BFGS and BFGS.
    ("update dfp", lambda: bfgs(half_squares(rosenbrock), ONES, update="dfp"), ValueError, "ssbroyden, ssbfgs, bfgs, and is given 'dfp'"),
    ("bfgs of a number", lambda: bfgs(lambda p: p[0].sum(), [3]), TypeError, "bfgs moves tensors of floating point"),
    ("bfgs of nothing", lambda: bfgs(lambda x: x.sum(), paddle.zeros([0])), ValueError, "give one that has elements"),
    ("a complex loss", lambda: lbfgs(lambda x: paddle.complex(x, x).sum(), ONES), TypeError, "a real number, and the function gives"),
    ("two losses", lambda: lbfgs(lambda x: x * 2.0, ONES), ValueError, "loss of one element"),
    ("a loss of nan", lambda: lbfgs(lambda x: paddle.log(-x).sum(), ONES), ValueError, "where it is finite"),
    ("a number among parameters", lambda: lbfgs(lambda p: p[0].sum(), [ONES, 3]), TypeError, "floating point"),
    ("two dtypes", lambda: lbfgs(lambda p: p[0].sum(), [ONES, ONES.astype("float64")]), TypeError, "one dtype"),

    # Least squares and natural gradients.
    *((f"{m.__name__}: {name}", lambda m=m, call=call: call(m), error, words) for m in SEARCHES for name, call, error, words in (
        ("residuals of nan", lambda m: m(lambda x: paddle.log(-x), AT), ValueError, "begins"),
        ("a slope of infinity", lambda m: m(lambda x: paddle.sqrt(x - 1.0), AT), ValueError, "begins"),
        ("a number", lambda m: m(lambda p: p[0], [AT, 3]), TypeError, "floating point"),
        ("two dtypes", lambda m: m(lambda p: p[0], [AT, AT.astype("float32")]), TypeError, "one dtype"),
        ("bfloat16", lambda m: m(lambda p: p, AT.astype("bfloat16")), TypeError, "float32 or float64"),
        ("no parameters", lambda m: m(lambda p: AT, {}), ValueError, "has none"),
        ("residuals of float32", lambda m: m(lambda x: x.astype("float32"), AT), TypeError, "parameters' dtype"),
        ("damping below zero", lambda m: m(lambda x: x, AT, damping=-1.0), ValueError, "damping must be"),
    )),
    *((f"{m.__name__}: no residuals", lambda m=m: m(lambda x: x[:0], AT), ValueError, "no numbers") for m in SEARCHES[:2]),
    *((f"gauss_newton, {name}", lambda o=o: gauss_newton(rosenbrock, AT, **o), ValueError, "iterations from 1 on")
       for name, o in (("no iterations", {"iterations": 0}), ("probes", {"probes": -1}), ("forcing", {"forcing": 0.0}))),
    *((f"{m.__name__}, a Jacobian {name}", lambda m=m, of=of: with_jacobian(m, of), error, words)
       for m in (levenberg_marquardt, by_metric) for name, of, error, words in (
        ("of no tree", lambda J: J, ValueError, "nested as"),
        ("that is turned", lambda J: {"x": J.T}, ValueError, r"give one of shape \[3, 2\]"),
        ("cut short", lambda J: {"x": J[:2]}, ValueError, r"give one of shape \[3, 2\]"),
        ("of float32", lambda J: {"x": J.astype("float32")}, TypeError, "jacobian must give tensors"),
    )),
    ("neither metric nor model", lambda: natural(), ValueError, "metric or model"),
    ("metric and model", lambda: natural(metric=rosenbrock, model=rosenbrock), ValueError, "metric or model"),
    ("no lengths", lambda: natural(metric=rosenbrock, lengths=()), ValueError, "positive numbers"),
    ("a length below zero", lambda: natural(metric=rosenbrock, lengths=(1.0, -1.0)), ValueError, "positive numbers"),
    ("residuals for a loss", lambda: natural(rosenbrock, metric=rosenbrock), ValueError, "loss of one element"),
    ("a metric of infinity", lambda: natural(metric=lambda x: paddle.sqrt(x - 1.0)), ValueError, "the metric is not finite"),
]
