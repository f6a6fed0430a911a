"""Nets of many kinds, each written once for several libraries' functions."""

from types import SimpleNamespace

import paddle
import paddle.nn.functional as F

from conftest import randn

PADDLE = SimpleNamespace(
    **{n: getattr(paddle, n) for n in ("tanh", "sin", "cos", "exp", "einsum", "stack")},
    **{n: getattr(F, n) for n in ("silu", "gelu", "softplus", "mish", "softmax")},
    **{n: getattr(F, n) for n in ("selu", "sigmoid", "log_softmax")},
    concat=paddle.concat,
    cumsum=paddle.cumsum,
    mean=lambda x, axis: paddle.mean(x, axis, True),
    norm=lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    group=lambda x, w, b: F.group_norm(x, 2, weight=w, bias=b),
    conv=lambda x, w, b: F.conv1d(x, w, b, padding=1),
    pool=lambda x: F.avg_pool1d(x, 2),
    attention=lambda q, k, v: (
        F.softmax(paddle.matmul(q, k, transpose_y=True) / float(q.shape[-1]) ** 0.5, -1)
        @ v
    ),
    spectrum=lambda x: paddle.fft.rfft(x).abs(),
)


def mlp(act):
    def net(lib, p, x):
        for i in range(2):
            x = getattr(lib, act)(x @ p[f"w{i}"] + p[f"b{i}"])
        return x @ p["w2"] + p["b2"]

    return net, {"w0": (2, 5), "b0": (5,), "w1": (5, 4), "b1": (4,)}


def modified(lib, p, x):
    u, v = (lib.tanh(x @ p[k] + p["b" + k]) for k in "uv")
    h = lib.tanh(x @ p["w0"] + p["b0"])
    h = h * u + (1 - h) * v
    h = lib.tanh(h @ p["w1"] + p["b1"])
    return (h * u + (1 - h) * v) @ p["w2"] + p["b2"]


def pirate(lib, p, x):
    z = x @ p["b"]
    phi = lib.concat([lib.cos(z), lib.sin(z)], -1)
    h = lib.silu(phi @ p["w0"] + p["b0"])
    h = p["alpha"] * lib.silu(h @ p["w1"] + p["b1"]) + (1 - p["alpha"]) * phi
    return h @ p["w2"] + p["b2"]


def normed(lib, p, x):
    h = lib.gelu(lib.norm(x @ p["w0"] + p["b0"], p["s"], p["t"]))
    return h @ p["w2"] + p["b2"]


def grouped(lib, p, x):
    h = lib.group(x @ p["w0"] + p["b0"], p["s"], p["t"])
    return lib.tanh(h) @ p["w2"] + p["b2"]


def convolved(lib, p, x):
    h = (x @ p["w0"] + p["b0"])[:, None, :]
    h = lib.pool(lib.tanh(lib.conv(h, p["k"], p["c"])))
    return h.reshape([h.shape[0], -1]) @ p["w2"] + p["b2"]


def attentive(lib, p, x):
    """Attention over tokens that are made of a row's own coordinates."""
    tokens = lib.tanh(x @ p["w0"] + p["b0"]).reshape([x.shape[0], 3, 2])
    h = lib.attention(tokens @ p["q"], tokens @ p["k"], tokens @ p["v"])
    return lib.mean(h, 1)[:, 0] @ p["w2"] + p["b2"]


def operator_net(lib, p, x):
    trunk = lib.sin(x @ p["w0"] + p["b0"])
    branch = lib.tanh(p["a"] @ p["w1"])
    return lib.einsum("nk,bk->nb", trunk, branch) * lib.exp(-x[:, :1] * x[:, 1:])


def periodic(lib, p, x):
    """A hard boundary condition around an embedding."""
    t, y = x[:, :1], x[:, 1:]
    h = lib.concat([t, lib.cos(3 * y), lib.sin(3 * y)], 1)
    h = lib.softplus(lib.mish(h @ p["w0"] + p["b0"]) @ p["w1"])
    return lib.sin(y) + t * (1 - y**2) * (h @ p["w2"])


def mixture(lib, p, x):
    experts = lib.tanh(lib.einsum("nd,dke->nke", x, p["e"]))
    gates = lib.softmax(x @ p["g"], -1)
    return lib.cumsum((experts * gates[:, :, None]).sum(1), -1) / lib.exp(x[:, :1])


def spectral(lib, p, x):
    h = lib.spectrum(lib.tanh(x @ p["w0"] + p["b0"]) + 2.0)
    return h @ p["w2"] + p["b2"]


def recurrent(lib, p, x):
    """An LSTM cell over both coordinates."""
    h = c = x @ p["h0"]
    for step in range(2):
        gates = x[:, step : step + 1] @ p["wx"] + h @ p["wh"] + p["b0"]
        i, f, g, o = (gates[:, 3 * k : 3 * k + 3] for k in range(4))
        c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
        h = lib.sigmoid(o) * lib.tanh(c)
    return h @ p["w2"] + p["b2"]


def last(n, out=2):
    return {"w2": (n, out), "b2": (out,)}


FIRST = {"w0": (2, 6), "b0": (6,)}
NETS = {
    **{
        act: (mlp(act)[0], {**mlp(act)[1], **last(4)})
        for act in (
            *("tanh", "sin", "silu", "gelu", "softplus", "mish", "selu", "sigmoid"),
        )
    },
    "modified MLP": (
        modified,
        {"u": (2, 5), "bu": (5,), "v": (2, 5), "bv": (5,), "w0": (2, 5), "b0": (5,)}
        | {"w1": (5, 5), "b1": (5,), **last(5)},
    ),
    "PirateNet": (
        pirate,
        {"b": (2, 3), "w0": (6, 4), "b0": (4,), "w1": (4, 6), "b1": (6,), "alpha": ()}
        | last(6),
    ),
    "LayerNorm": (normed, {**FIRST, "s": (6,), "t": (6,), **last(6)}),
    "GroupNorm": (grouped, {**FIRST, "s": (6,), "t": (6,), **last(6)}),
    "convolution": (convolved, {**FIRST, "k": (3, 1, 3), "c": (3,), **last(9)}),
    "attention": (
        attentive,
        {**FIRST, "q": (2, 3), "k": (2, 3), "v": (2, 4), **last(4)},
    ),
    "DeepONet": (operator_net, {**FIRST, "a": (3, 4), "w1": (4, 6)}),
    "periodic": (periodic, {"w0": (3, 5), "b0": (5,), "w1": (5, 4), "w2": (4, 2)}),
    "mixture": (mixture, {"e": (2, 3, 4), "g": (2, 3)}),
    "Fourier": (spectral, {**FIRST, **last(4)}),
    "LSTM": (
        recurrent,
        {"h0": (2, 3), "wx": (1, 12), "wh": (3, 12), "b0": (12,), **last(3)},
    ),
}
WANTED = {
    "u": (0,),
    "u_x": (0, 0),
    "v_y": (1, 1),
    "u_xx": (0, 0, 0),
    "v_xy": (1, 0, 1),
    "u_yyy": (0, 1, 1, 1),
    "v_xxyy": (1, 0, 0, 1, 1),
    "u_xxxx": (0, 0, 0, 0, 0),
}


def drawn(name):
    net, shapes = NETS[name]
    params = {
        k: 0.5 * randn(list(shape), "float64", seed=i)
        for i, (k, shape) in enumerate(shapes.items())
    }
    return net, params, randn([4, 2], "float64", seed=99)
