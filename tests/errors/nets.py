"""What nets, their derivatives and their parameters refuse."""

import json
import threading

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

import paddle_chainrules as pc
from conftest import randn
from paddle_chainrules import CaptureError, FCNet, bridge, stateless
from paddle_chainrules.bridge import described, fcnet

# fmt: off
SLIP = TypeError, ValueError, AttributeError

NET = FCNet((3, 5, 2))
PARAMS = NET.init(0)
X, Y = paddle.ones([4, 3]), paddle.ones([4, 2])
HALF = Y[0, :1].expand([5]).astype("float64")

LAYERS = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
LAYER, ITS, _ = stateless(LAYERS)
LINEAR, OF_LINEAR, _ = stateless(nn.Linear(3, 2))
NORMED, ITS_PARAMS, BUFFERS = stateless(nn.Sequential(nn.BatchNorm1D(3)))
BY_NAME = r"the buffers \['0._mean', '0._variance'\] .* net\(params, x, buffers=buff"

DOUBLE = FCNet((2, 4, 1), "tanh", "float64")
WEIGHTS, POINTS, ALONG = DOUBLE.init(0), randn([3, 2], "float64"), paddle.ones([2], "float64")
FIVE, OF_FIVE, _ = stateless(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)).to(dtype="float64"))
ROWS_OF_FIVE = randn([4, 5], "float64", 50)
FIELD = FCNet((3, 4, 3), "tanh", "float64")
OF_FIELD, CUBE = FIELD.init(0), randn([5, 3], "float64")
T, W = randn([7, 1], "float64", 1), randn([2, 3], "float64", 1)
COLUMNS = {"t": T, "x": T + 1.0, "z": paddle.ones([7, 3], "float64")}
PLANE = {"x": T, "y": T + 1.0}
CHAIN = FCNet((3, 3, 3), "tanh")
OF_CHAIN = CHAIN.init(1)
ARRAYS = {
    "numpy": np.ones((3, 2)), "read-only": np.broadcast_to(1.0, (3, 2)), "another byte order": np.ones((3, 2), ">f8"),
    "objects": np.array([[1, None]], dtype=object), "a list": [[1.0, 2.0]], "a number": 1.0, "nothing": None,
}
JOINED = "depends on other rows"


def columns(asked):
    return pc.derivatives(lambda _, at: {"u": at["x"] ** 2 * at["t"]}, {}, COLUMNS, asked)


def field(_, at):
    return {"u": at["x"] ** 2 * at["y"], "v": at["x"] * at["y"] ** 3}


def norm_of_a_batch(features):
    layer = nn.Sequential(nn.Linear(features, 3), nn.BatchNorm1D(3), nn.Linear(3, 1))
    return stateless(layer)[:2]


class OfMineError(Exception):
    pass


def fails(params, at):
    raise OfMineError("mine")


def gated(p, x):
    """Joins rows where the gate is open, which it is not at the first call."""
    y = F.layer_norm(x @ W, [3])
    return y + p * y.mean(0)


class Weighted(nn.Linear):
    def forward(self, x, weight):
        return super().forward(x) * weight


class Own(nn.Layer):
    def forward(self, x, seed=3):
        return x * seed


class Locked(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def weighted():
    net, params, _ = stateless(Weighted(3, 2))
    return net.pullback(params, X, weight=randn([4, 1]))[1]


def seeded(seed, call="forward", layer=nn.Dropout):
    net, params, _ = stateless(layer())
    return getattr(net, call)(params, X, seed=seed)


def into_integers():
    net, params, _ = stateless(nn.Embedding(7, 4))
    y, pullback = net.pullback(params, paddle.to_tensor([3, 0]))
    pullback(y, into=(None, (paddle.zeros([2], "int64"),)))


def per_sample(kind, *rows):
    handle, params = bridge.layer(nn.LSTM(3, 4))
    handle.per_sample(kind, (True,)).bind_and("forward", False, *params, *rows)


def of_batch(kind):
    handle, _ = bridge.layer(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4)))
    return handle.per_sample(kind, (True,))


def nested(params):
    return {k: {n: params[f"{k}.{n}"] for n in ("weight", "bias")} for k in "01"}


def normed(shape):
    norm = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2))
    net, params, _ = stateless(norm)
    return net.forward(params, randn(shape))


class Mine(nn.Linear):
    pass


def changed(**attributes):
    layer = nn.Linear(3, 2)
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def hooked():
    layer = nn.Linear(3, 2)
    layer.register_forward_post_hook(lambda layer, x, y: 2 * y)
    return layer


def of_layers(layers):
    text, _ = described(bridge.layer(nn.Linear(3, 2))[0])
    return bridge.of_description(json.dumps({**json.loads(text), "layers": layers}), ())


LINEAR_LAYER = "paddle.nn.layer.common.Linear"
NO_LAYERS = {
    "nothing": [],
    **{path: [[path, {}]] for path in (
        "os.system", "paddle.nn.layer.common.F", "paddle.nn.layer.layers.Layer.eval", "paddle.jit.translated_layer.TranslatedLayer",
        "paddle.nn.functional.relu", f"{__name__}.Mine",
    )},
    "a hook": [[LINEAR_LAYER, {"_forward_pre_hooks": ["ordered", 1, ["function", "relu"]]}]],
    **{str(f): [[LINEAR_LAYER, {"f": f}]] for f in (
        ["function", "__builtins__"], ["function", "tensor"], ["class", "builtins.object"], ["dtype", "save"],
        ["empty", "load"], ["layer", 3], ["constant", 0], ["exec", "1"], [],
    )},
}


ROWS = [
    # Sizes, dtypes and names of a net.
    ("one size", lambda: FCNet((3,)), ValueError, r"at least two positive integers.*\(3,\)"),
    ("a size of zero", lambda: FCNet((3, 0)), ValueError, r"positive integers.*\(3, 0\)"),
    ("half a unit", lambda: FCNet((3, 2.5)), ValueError, r"positive integers.*2\.5"),
    ("a number for sizes", lambda: FCNet(3), ValueError, "at least two positive integers.*got 3"),
    ("no such activation", lambda: FCNet((3, 2), "swoosh"), ValueError, "'swoosh'.*'tanh'.*callable"),
    ("a number for an activation", lambda: FCNet((3, 2), 7), TypeError, "name or a callable.*int"),
    ("whole numbers", lambda: FCNet((3, 2), dtype="int8"), ValueError, "'int8'.*'float32'"),
    ("Tanh", lambda: FCNet((3, 2), "Tanh"), SLIP, "give 'tanh', or one of"),
    ("nn.Tanh", lambda: FCNet((3, 2), nn.Tanh), SLIP, "is the class Tanh.*'tanh'"),
    ("nn.Hardtanh", lambda: FCNet((3, 2), nn.Hardtanh), SLIP, r"give 'Hardtanh\(\)'"),
    *((f"stateless of {name}", lambda w=w: stateless(w), TypeError, r"paddle\.nn\.Layer instance, got \w+.*vjp")
       for name, w in (("a class", nn.Linear), ("a function", lambda x: x), ("3", 3), ("None", None))),
    ("a lock in a layer", lambda: stateless(Locked()), TypeError, "Locked holds something that can't be copied"),

    # Names of other libraries.
    ("net.eval", lambda: LAYER.eval(), SLIP, "in_mode"),
    ("FCNet.eval", lambda: FCNet((2, 3)).eval(), SLIP, "the same in training and evaluation"),
    ("net.apply", lambda: NET.apply, SLIP, r"here it is net\(params, x\)"),
    ("net.state_dict", lambda: LAYER.state_dict, SLIP, "to_state_dict"),

    # Arguments of an FCNet.
    ("five features", lambda: NET.forward(PARAMS, paddle.ones([4, 5])),
     ValueError, r"\[4, 5\].*\[n, 3\].*3 features in the last dimension"),
    ("a scalar", lambda: NET.forward(PARAMS, paddle.to_tensor(1.0)), ValueError, r"\[\].*\[n, 3\]"),
    ("x of float64", lambda: NET.forward(PARAMS, X.astype("float64")), TypeError, r"x is float64.*float32.*astype"),
    ("x of numpy", lambda: NET.forward(PARAMS, np.ones([4, 3], "float32")), TypeError, "paddle.Tensor.*ndarray.*to_tensor"),
    ("two inputs", lambda: NET.forward(PARAMS, X, X), TypeError, "one input x, got 2"),
    ("a keyword", lambda: NET.forward(PARAMS, X, scale=2.0), TypeError, "scale"),
    ("a keyword of a pullback", lambda: NET.pullback(PARAMS, X, scale=2.0), TypeError, "scale"),
    ("FCNet without parameters", lambda: NET(X), SLIP, r"first, as net\(params, x\)"),
    *((f"x of {d}", lambda d=d: DOUBLE.forward(WEIGHTS, POINTS.astype(d)), TypeError, rf"x is {d}, the net computes in float64")
       for d in ("float16", "int32", "int64", "bool", "complex64")),
    *((f"a product of {d}", lambda d=d: FCNet((3, 2), dtype=d).forward(FCNet((3, 2), dtype=d).init(0), X.astype(d)), TypeError,
       f"{d}.*no matrix product.*float32") for d in ("float16", "bfloat16")),
    *((f"laplacian at {d}", lambda d=d: pc.laplacian(DOUBLE, WEIGHTS, POINTS.astype(d)), TypeError, "float64")
       for d in ("float16", "int32", "int64", "bool", "complex64")),

    *((f"x as {name}", lambda x=x: DOUBLE.forward(WEIGHTS, x), TypeError, r"must be a paddle\.Tensor.*to_tensor")
       for name, x in ARRAYS.items()),

    # Parameters of an FCNet.
    *((f"a bias as {name}", lambda b=b: DOUBLE.forward({**WEIGHTS, "0.bias": b}, POINTS), TypeError, r"must be a paddle\.Tensor.*to_tensor")
       for name, b in ARRAYS.items()),
    ("no bias", lambda: NET.forward({n: p for n, p in PARAMS.items() if n != "1.bias"}, X), ValueError, r"missing: \['1.bias'\]"),
    ("one more bias", lambda: NET.forward({**PARAMS, "2.bias": Y}, X), ValueError, r"unknown: \['2.bias'\]"),
    ("another shape", lambda: NET.forward({**PARAMS, "0.weight": Y}, X), ValueError, r"'0.weight'.*\[4, 2\].*\[3, 5\]"),
    ("another dtype", lambda: NET.forward({**PARAMS, "0.bias": HALF}, X), TypeError, r"'0.bias'.*float64.*float32.*astype"),
    ("a list for a tensor", lambda: NET.forward({**PARAMS, "0.bias": [0.0] * 5}, X), TypeError, "'0.bias'.*paddle.Tensor.*list"),
    ("a list of numbers", lambda: NET.forward([1, 2], X), TypeError, "dict of tensors, one flat.*list"),
    ("a long theta", lambda: NET.forward(paddle.ones([33]), X), ValueError, r"theta.*\[33\].*\[32\]"),
    ("a column theta", lambda: NET.forward(paddle.ones([32, 1]), X), ValueError, r"theta.*\[32, 1\].*\[32\]"),
    ("theta of float64", lambda: NET.forward(paddle.ones([32], "float64"), X), TypeError, "theta is float64.*float32"),
    ("flatten without a gradient", lambda: NET.flatten({**PARAMS, "0.bias": None}),
     SLIP, "or give paddle.zeros_like of it where nothing flows"),
    ("a state dict of another", lambda: NET.from_state_dict({"a": Y}), ValueError, r"tensors \['a'\].*net \['0.weight'.*names="),
    ("like another", lambda: NET.to_state_dict(PARAMS, {"a": Y}), ValueError, r"tensors \['a'\].*net \['0.weight'.*names="),
    *((f"parameters as {name}", lambda w=w: CHAIN.forward(w, X), (TypeError, ValueError), "params must")
       for name, w in (("a short list", [*OF_CHAIN.values()][:-1]), ("a nested dict", {"a": nested(OF_CHAIN)}), ("a number", 3), ("a list of x", [X]))),
    ("a nested weight", lambda: CHAIN.forward({**nested(OF_CHAIN), "0": {"weight": Y[:3], "bias": OF_CHAIN["0.bias"]}}, X),
     ValueError, r"'0.weight'\] has shape \[3, 2\]"),
    ("into a list", lambda: CHAIN.pullback(nested(OF_CHAIN), X)[1](X, into=([None] * 4, None)),
     ValueError, "into for the parameters is nested as"),

    # Cotangents, wrt and into.
    ("a turned cotangent", lambda: NET.vjp(PARAMS, X, paddle.ones([2, 4])), ValueError, r"cotangent.*\[2, 4\].*\[4, 2\]"),
    ("a cotangent of float64", lambda: NET.vjp(PARAMS, X, Y.astype("float64")), TypeError, "cotangent.*float64.*float32.*astype"),
    ("a cotangent of numpy", lambda: NET.vjp(PARAMS, X, np.ones([4, 2], "float32")), TypeError, "cotangent.*paddle.Tensor.*ndarray"),
    ("two cotangents", lambda: NET.vjp(PARAMS, X, (Y, Y)), ValueError, r"cotangent is nested as .*the output as .*give one tensor"),
    ("no keyword arguments", lambda: LINEAR.pullback(OF_LINEAR, X)[1](Y, wrt="kwargs"), ValueError, "called without any"),
    ("two of a name", lambda: weighted()(Y, wrt="weight"), ValueError, "'weight' is the name of a parameter and of"),
    ("one theta", lambda: NET.pullback(NET.flatten(PARAMS), X)[1](Y, wrt="0.weight"), ValueError, "came as one theta"),
    ("into integers", into_integers, TypeError, r"int64 and has no gradient; give None"),
    ("a cotangent for each result", lambda: per_sample("vjp", randn([6, 5, 3]), randn([6, 5, 4])),
     ValueError, r"as \(\*,\), the output as \(\*, \*, \*\)"),
    ("a Jacobian of results", lambda: per_sample("jacobian", randn([6, 5, 3])), TypeError, "gives one tensor"),
    ("a vjp of joined samples", lambda: of_batch("vjp"), ValueError, "layer.eval"),
    *((f"a described {name}", lambda make=make: described(bridge.layer(make())[0]), TypeError, words + ".*save_params")
       for name, make, words in (
        ("class of one's own", lambda: nn.Sequential(Mine(3, 2)), "Sequential has the class Mine"),
        ("hook", hooked, r"hooks or another forward \(Linear._forward_post_hooks\)"),
        ("forward of one's own", lambda: changed(forward=lambda x: x), r"a function \(Linear.forward\)"),
        ("object", lambda: changed(rate=object()), r"a object \(Linear.rate\)"),
        ("norm of weights", lambda: nn.utils.weight_norm(nn.Linear(3, 2)), "hooks or another forward"),
    )),
    *((f"a description of {name}", lambda layers=layers: of_layers(layers), ValueError, "no description of a layer")
       for name, layers in NO_LAYERS.items()),
    ("a described function", lambda: described(fcnet((3, 2), paddle.tanh, "float32", 0)[0]),
     TypeError, "activation of this net is a function"),
    ("a described laplacian", lambda: described(fcnet((3, 2), "tanh", "float32", 0)[0].operator("laplacian")),
     TypeError, "laplacian of FCNet.*is made of another net"),
    ("a Jacobian of joined samples", lambda: of_batch("jacobian"), ValueError, "layer.eval"),

    # Arguments and parameters of a layer.
    ("a layer without parameters", lambda: LAYER(X), SLIP, r"calls are net\(params, x\)"),
    ("a width", lambda: LAYER(ITS, randn([5, 7])), SLIP, r'layer "0" \(Linear\) got a tensor of shape \[5, 7\], it needs \[n, 3\] for n'),
    ("turned", lambda: LAYER(ITS, randn([3, 5])), SLIP, "x.T is so"),
    ("a dtype", lambda: LAYER(ITS, randn([5, 3], "float64")),
     SLIP, r"a tensor of float64, it needs float32; convert it, such as x\.astype"),
    ("numpy", lambda: LAYER(ITS, np.ones((5, 3))), SLIP, "a ndarray, it needs a tensor.*makes one"),
    ("a list", lambda: LAYER(ITS, [[1.0]]), SLIP, "got a list, it needs a tensor of shape"),
    ("a vector", lambda: normed([4]), ValueError, r"of shape \[4\], it needs \[3\]"),
    ("buffers second", lambda: NORMED(ITS_PARAMS, BUFFERS, X), SLIP, BY_NAME),
    ("buffers last", lambda: NORMED(ITS_PARAMS, X, {**NORMED.buffers}), SLIP, BY_NAME),
    ("buffers in a pair", lambda: NORMED((ITS_PARAMS, BUFFERS), X), SLIP, BY_NAME),
    ("buffers among parameters", lambda: NORMED.pullback({**ITS_PARAMS, **BUFFERS}, X), SLIP, BY_NAME),
    ("a layer's bias left out", lambda: LINEAR.forward({"weight": OF_LINEAR["weight"]}, X), ValueError, r"missing: \['bias'\]"),
    ("a turned weight", lambda: LINEAR.forward({**OF_LINEAR, "weight": OF_LINEAR["weight"].T}, X),
     ValueError, r"'weight'.*\[2, 3\].*\[3, 2\].*\.T"),
    ("a short theta", lambda: LINEAR.forward(paddle.ones([7]), X), ValueError, r"theta has shape \[7\].*\[8\]"),
    ("a short cotangent", lambda: LINEAR.vjp(OF_LINEAR, X, paddle.ones([2])), ValueError, r"cotangent has shape \[2\].*\[4, 2\]"),
    ("no such frozen names", lambda: stateless(LAYERS, "encoder.*"), ValueError, r"frozen names 'encoder\.\*', but there is no"),
    ("a buffer is not frozen", lambda: stateless(nn.Sequential(*LAYERS[:2], nn.BatchNorm1D(5)), "2._mean"),
     ValueError, r"'2\._mean', but there is no such"),
    ("a position is not frozen", lambda: stateless(LAYERS, 0), TypeError, "frozen takes names of parameters"),
    *((f"a seed of {s}", lambda s=s: seeded(s), TypeError, "seed must be an int, an integer tensor") for s in (1.0, True, "3")),
    ("a seed of a float tensor", lambda: seeded(paddle.to_tensor(3.0)), TypeError, "seed must be an int, an integer tensor"),
    *((f"a seed of {s}", lambda s=s: seeded(s, "pullback"), ValueError, "at least 0 and below") for s in (-1, 2**64)),
    ("a seed of the layer's own", lambda: seeded(2, layer=Own), TypeError, r"\['seed'\].*Own's own.*by position"),

    # Derivatives by coordinates.
    ("no name", lambda: columns({}), ValueError, "one name at least"),
    ("a text", lambda: columns({"a": "ux"}), TypeError, "'a' must name an output and what"),
    ("an empty name", lambda: columns({"a": ()}), TypeError, "must name an output"),
    ("no such coordinate", lambda: columns({"a": ("u", "y")}), ValueError, "coords has no part 'y'; use one of 't', 'x', 'z'"),
    ("no such output", lambda: columns({"a": ("v", "x")}), ValueError, "output has no part 'v'; use one of 'u'"),
    ("three columns", lambda: columns({"a": ("u", "z")}), ValueError, r"'z' has 3 columns, shape \[7, 3\]; name one"),
    ("column 3", lambda: columns({"a": ("u", ("z", 3))}), ValueError, "has no column 3; give an index from 0"),
    ("column True", lambda: columns({"a": ("u", ("z", True))}), ValueError, "has no column True"),
    ("the fifth order", lambda: columns({"a": ("u", *"xxxxx")}), ValueError, "is of order 5, the highest is 4"),
    ("column 7 of an output", lambda: columns({"a": (("u", 7), "x")}), ValueError, "has no column 7"),
    ("an error of one's own", lambda: pc.derivatives(fails, {}, POINTS, {"a": (None, 0)}), OfMineError, "mine"),
    ("numpy in a function", lambda: pc.derivatives(lambda _, x: paddle.to_tensor(np.tanh(x.numpy())), {}, POINTS, {"a": (None, 0)}),
     CaptureError, r"leaves the program by x\.numpy"),
    ("a gate that opens", lambda: pc.jit(lambda p, x: pc.derivatives(gated, p, x, [(1, 0)])[0], strict=True)(paddle.zeros([1], "float64"), randn([6, 2], "float64", 3)),
     CaptureError, JOINED),
    ("means of rows", lambda: pc.derivatives(lambda _, x: x - x.mean(0, keepdim=True), {}, randn([5, 2]), {"a": (0, 0)}),
     ValueError, JOINED),
    ("points at integers", lambda: pc.derivatives(lambda _, x: x, {}, POINTS.astype("int64"), {"x": (0, 0)}),
     TypeError, "is int64; derivatives are of floating tensors"),
    ("columns by indices", lambda: pc.derivatives(lambda _, x: x["x"], {}, {"x": POINTS}, [(0, 0)]),
     TypeError, "x is dict; .* name parts of trees"),
    ("an x of integers", lambda: pc.derivative(DOUBLE, WEIGHTS, paddle.ones([3, 2], "int64"), (1, 0)),
     TypeError, r"x is int64, the net computes in float64"),
    *((f"an index {i}", lambda i=i: pc.derivative(DOUBLE, WEIGHTS, POINTS, i), ValueError, "one entry per input, 2, and none negative")
       for i in ((1,), (1, 0, 0), (-1, 1))),
    *((f"an index {i}", lambda i=i: pc.derivative(DOUBLE, WEIGHTS, POINTS, i), TypeError, "must be a sequence of 2 integers")
       for i in ("xy", (0.5, 1), 2, (True, False))),
    ("order 5", lambda: pc.derivative(DOUBLE, WEIGHTS, POINTS, (3, 2)), ValueError, "is of order 5, the highest is 4"),
    ("order 5 of several", lambda: pc.derivatives(DOUBLE, WEIGHTS, POINTS, [(0, 0), (3, 2)]),
     ValueError, "is of order 5, the highest is 4"),
    *((f"indices {i}", lambda i=i: pc.derivatives(DOUBLE, WEIGHTS, POINTS, i), ValueError, "one derivative at least, and each once")
       for i in ([], [(0, 1), (1, 0), (0, 1)])),
    *((f"indices {i}", lambda i=i: pc.derivatives(DOUBLE, WEIGHTS, POINTS, i), TypeError, "must be a sequence of") for i in ((1, 0), 2)),
    ("taylor to order 5", lambda: pc.taylor(DOUBLE, WEIGHTS, POINTS, ALONG, 5), ValueError, "order must be 0 to 4, got 5"),
    ("taylor to order 1.5", lambda: pc.taylor(DOUBLE, WEIGHTS, POINTS, ALONG, 1.5), TypeError, r"order must be an integer, got 1\.5"),
    ("a direction of three", lambda: pc.taylor(DOUBLE, WEIGHTS, POINTS, paddle.ones([3], "float64"), 2),
     ValueError, r"shape \[3\].*one entry per input: \[2\]"),
    ("a direction of float32", lambda: pc.taylor(DOUBLE, WEIGHTS, POINTS, paddle.ones([2]), 2), TypeError, "directions is float32"),

    # Laplacians.
    ("laplacian of five", lambda: pc.laplacian(DOUBLE, WEIGHTS, randn([3, 5], "float64")), ValueError, r"\[3, 5\].*\[n, 2\]"),
    ("learned weights", lambda: pc.laplacian(lambda _, x: x, {}, POINTS, paddle.to_tensor([1.0, 2.0], "float64", stop_gradient=False)),
     TypeError, "weights are constants"),
    ("a column twice", lambda: pc.laplacian(lambda _, x: x, {}, POINTS, by=(0, 0)), ValueError, "each column once"),
    ("nested columns", lambda: pc.laplacian(lambda _, x: x["s"]["x"], {}, {"s": {"x": POINTS}}), ValueError, "nested more deeply"),
    ("a number beside tensors", lambda: pc.laplacian(lambda _, x: (x, 3.0), {}, POINTS),
     TypeError, "result is float; derivatives are of tensors"),
    ("four weights", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, np.ones(4)), ValueError, r"shape \[4\], of 5 coordinates"),
    ("no weights", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, np.zeros(5)), ValueError, "all zero"),
    ("a weight of nan", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, [1.0, np.nan, 0.0, 0.0, 0.0]), TypeError, "finite real numbers"),
    ("by a text", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, by="xy"), TypeError, "by must be a sequence"),
    ("by column 5", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, by=(0, 5)), ValueError, "has no column 5"),
    ("no such estimator", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, estimator="hutch", probes=2, seed=0),
     ValueError, "must be one of hutchinson, stde"),
    ("probes alone", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, probes=2), ValueError, "must be one of hutchinson, stde"),
    ("no seed", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, estimator="stde", probes=2), TypeError, "needs seed, an integer"),
    ("six probes", lambda: pc.laplacian(FIVE, OF_FIVE, ROWS_OF_FIVE, estimator="stde", probes=6, seed=0),
     ValueError, "probes must be 1 to 5 of 5"),
    ("an estimate in jit", lambda: pc.jit(lambda p, x: pc.laplacian(FIVE, p, x, estimator="stde", probes=2, seed=0), strict=True)(OF_FIVE, ROWS_OF_FIVE),
     CaptureError, "call it outside of jit"),
    ("laplacian of a batch", lambda: pc.laplacian(*norm_of_a_batch(5), randn([4, 5])), ValueError, JOINED),

    # Fields of vectors.
    ("components of two shapes", lambda: pc.divergence(lambda _, at: {"u": at["x"] ** 2, "v": (at["y"] ** 2)[:, 0]}, (), PLANE, of=("u", "v")),
     ValueError, "components of a field are all of shape"),
    ("components without names", lambda: pc.divergence(lambda _, x: (x**2).sum(1), (), paddle.rand([3, 3])),
     ValueError, "name the components"),
    ("columns without of", lambda: pc.divergence(field, (), PLANE), ValueError, "for divergence and curl all by of="),
    ("three components by two", lambda: pc.divergence(FIELD, OF_FIELD, CUBE, by=(0, 1)), (ValueError, TypeError), "gives 3 columns"),
    ("two components by three", lambda: pc.divergence(FIELD, OF_FIELD, CUBE, of=(0, 1)), (ValueError, TypeError), "got 2 components"),
    ("curl by a column twice", lambda: pc.curl(FIELD, OF_FIELD, CUBE, of=(0, 1), by=(0, 0)), (ValueError, TypeError), "each column once"),
    ("curl of one", lambda: pc.curl(FIELD, OF_FIELD, CUBE, of=(0,), by=(1,)), (ValueError, TypeError), "two or three"),
    ("no component 7", lambda: pc.divergence(FIELD, OF_FIELD, CUBE, of=(0, 1, 7)), (ValueError, TypeError), "no column 7"),
    ("components by a text", lambda: pc.divergence(FIELD, OF_FIELD, CUBE, of="uvw"), (ValueError, TypeError), "names of components"),
    ("divergence at a number", lambda: pc.divergence(FIELD, OF_FIELD, 3.0), (ValueError, TypeError), "float; derivatives"),
    ("columns of a vector", lambda: pc.divergence(field, (), {"x": T[:, 0], "y": T[:, 0]}, of=("u",), by=(("x", 1),)),
     ValueError, "has no column 1; give an index from 0 to 0"),

    # Files of parameters.
    ("load_params for a number", lambda: pc.load_params("net.npz", 3), SLIP, r"give load_params\(path, net\)"),
    ("pickle", lambda path: pc.save_params(path / "net.pdparams", PARAMS), ValueError, r"pickle.*from_state_dict"),
    ("no suffix", lambda path: pc.load_params(path / "net", NET), ValueError, r"\.npz or \.safetensors"),
    ("a flat vector", lambda path: pc.save_params(path / "net.npz", NET.flatten(PARAMS)), TypeError, r"dict of tensors.*net\.unflatten"),
    ("arrays", lambda path: pc.save_params(path / "net.npz", {"a": np.ones(2)}), TypeError, r"'a': ndarray"),
    ("no file of npz", lambda path: pc.load_params(path / "none.npz", NET), FileNotFoundError, ""),
    ("no file of safetensors", lambda path: pc.load_params(path / "none.safetensors", NET), FileNotFoundError, ""),
    ("no folder", lambda path: pc.save_params(path / "absent" / "net.npz", PARAMS),
     FileNotFoundError, (r"no folder '.*/absent'; make it", "net.npz'")),
    ("a long name", lambda path: pc.save_params(path / "net.npz", {"x" * 70_000: PARAMS["0.bias"]}), ValueError, "too long; name it"),
]
