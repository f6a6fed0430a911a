"""Nets of PaddleScience: of points, of functions by sensors, of graphs and sequences.

Constructed as in their docstrings and examples, smaller.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle.nn import Layer

from real_comparison import Make


def arch(name: str) -> Any:
    """One of ppsci.arch, ``module.Name`` where it is not there by itself."""
    import importlib

    module, _, kind = name.rpartition(".")
    path = f"ppsci.arch.{module}" if module else "ppsci.arch"
    return getattr(importlib.import_module(path), kind)


def of(name: str, inputs: dict[str, list[int]], *args: Any, **kw: Any) -> Make:
    """A net of a dict of tensors of these shapes."""

    def make() -> tuple[Layer, tuple[Any, ...]]:
        net = arch(name)(*args, **kw)
        return net, ({key: paddle.rand(shape) for key, shape in inputs.items()},)

    return make


XY, UV = ("x", "y"), ("u", "v")
POINTS = {"x": [32, 1], "y": [32, 1]}


def points(name: str = "MLP", *args: Any, **kw: Any) -> Make:
    sizes = args or ((3, 32) if name == "MLP" else (2, 32))
    return of(name, POINTS, XY, UV, *sizes, **kw)


ACTIVATIONS = ("tanh", "relu", "gelu", "silu", "sin", "cos", "swish", "siren", "stan")
MORE = ("elu", "selu", "leaky_relu", "sigmoid", "identity")
FOURIER = {"dim": 32, "scale": 1.0}
FACTORS = {"mean": 0.5, "std": 0.1}
PERIODS = {"x": [2.0, False], "y": [1.0, True]}

OF_POINTS: dict[str, Make] = {
    **{f"MLP, {a}": points(activation=a) for a in (*ACTIVATIONS, *MORE)},
    "MLP, weight norm": points(weight_norm=True),
    "MLP, skip": points("MLP", 5, 32, skip_connection=True),
    "MLP, periods": points(periods=PERIODS),
    "MLP, Fourier": points(fourier=FOURIER),
    "MLP, random weight": points(random_weight=FACTORS),
    "MLP, all of these": points(
        *("MLP", 5, 32, "gelu"),
        skip_connection=True,
        **{"periods": PERIODS, "fourier": FOURIER, "random_weight": FACTORS},
    ),
    "modified MLP": points("ModifiedMLP"),
    "modified MLP, Fourier, random weight": points(
        "ModifiedMLP", fourier=FOURIER, random_weight=FACTORS
    ),
    "PirateNet": points("PirateNet", fourier=FOURIER),
    "PirateNet, random weight": points(
        "PirateNet", fourier=FOURIER, random_weight=FACTORS, activation="silu"
    ),
    "SPINN": of(
        *("SPINN", {"x": [5, 1], "y": [6, 1], "z": [7, 1]}, ("x", "y", "z"), UV),
        **{"r": 8, "num_layers": 3, "hidden_size": 16},
    ),
    "Epnn": of(
        *("Epnn", {"x": [32, 4]}, ("x",), UV),
        **{"node_sizes": [4, 20, 20, 2], "activations": ("leaky_relu",) * 3},
        drop_p=0.1,
    ),
    **{
        f"IFMMLP, {embed}": of(
            *("IFMMLP", {"x": [32, 6]}, ("x",), ("y",), [16, 16, 16], embed, 6, 2),
            **{"d_out": 4, "sigma": 0.1, "dp_ratio": 0.1, "reg": False},
            **{"first_omega_0": 1.0, "hidden_omega_0": 1.0},
        )
        for embed in ("None", "LE", "LSIM", "IFM", "GM", "SIM")
    },
}


def models() -> tuple[Layer, tuple[Any, ...]]:
    mlp = arch("MLP")
    first, second = mlp(XY, UV, 2, 16), mlp(XY, ("w", "p"), 2, 16)
    given = {key: paddle.rand(shape) for key, shape in POINTS.items()}
    return arch("ModelList")((first, second)), (given,)


def transformed() -> tuple[Layer, tuple[Any, ...]]:
    """With a transform of inputs and one of outputs, as a hard constraint has it."""
    net = arch("MLP")(XY, UV, 2, 16)
    net.register_input_transform(lambda x: {"x": paddle.sin(x["x"]), "y": x["y"]})
    net.register_output_transform(lambda x, y: {"u": y["u"] * x["x"], "v": y["v"] ** 2})
    return net, ({key: paddle.rand(shape) for key, shape in POINTS.items()},)


HEAT = {"qm_h": [32, 4], "qm_c": [32, 4], "x": [32, 1], "t": [32, 1]}
CHIP = {"u": [16, 12], "bc": [16, 1], "bc_data": [16, 7], "x": [16, 1], "y": [16, 1]}

OF_FUNCTIONS: dict[str, Make] = {
    "ModelList": models,
    "MLP, transforms": transformed,
    "DeepONet": of(
        *("DeepONet", {"u": [32, 20], "y": [32, 1]}, "u", "y", "G", 20, 16),
        *(2, 2, 32, 32),
        **{"branch_activation": "relu", "trunk_activation": "relu"},
    ),
    "HEDeepONets": of(
        *("HEDeepONets", HEAT, ("qm_h",), ("qm_c",), ("x", "t")),
        *(("T_h", "T_c", "T_w"), 4, 4, 12, 3, 2, 32, 16),
        **{"branch_activation": "swish", "trunk_activation": "swish"},
    ),
    "ChipDeepONets": of(
        *("ChipDeepONets", CHIP, ("u",), ("bc",), ("bc_data",), XY, ("T",)),
        *(12, 1, 7, 10, 3, 3, 2, 16, 16, 16),
        **{"branch_activation": "swish", "trunk_activation": "swish"},
        BC_activation="swish",
    ),
    "AutoEncoder": of(
        *("AutoEncoder", {"x": [32, 20]}, ("x",), ("mu", "log_sigma", "z")),
        **{"input_dim": 20, "latent_dim": 6, "hidden_dim": 32},
    ),
}


def graph() -> tuple[Layer, tuple[Any, ...]]:
    net = arch("CrystalGraphConvNet")(
        orig_atom_fea_len=20, nbr_fea_len=9, atom_fea_len=16, n_conv=2, h_fea_len=16,
        n_h=1,
    )  # fmt: skip
    crystals = [paddle.randint(45, shape=[n]) for n in (32, 8, 2, 3)]
    neighbours = paddle.rand([45, 12, 9]), paddle.randint(high=45, shape=[45, 12])
    return net, ({"i": [paddle.rand([45, 20]), *neighbours, crystals]},)


def molecules() -> tuple[Layer, tuple[Any, ...]]:
    sizes = SimpleNamespace(
        b_n_type=4, b_n_flow=2, b_n_block=1, b_n_squeeze=3, b_hidden_ch=[8, 8],
        b_affine=True, b_conv_lu=1, a_n_node=9, a_n_type=5, a_hidden_gnn=[8],
        a_hidden_lin=[16, 8], a_n_flow=3, a_n_block=1, mask_row_size_list=[1],
        mask_row_stride_list=[1], a_affine=True, learn_dist=True, noise_scale=0.6,
    )  # fmt: skip
    net = arch("MoFlowNet")(("nodes", "edges"), ("output", "sum_log_det"), sizes)
    edges = paddle.nn.functional.one_hot(paddle.randint(0, 4, [3, 9, 9]), 4)
    return net, (
        {"nodes": paddle.rand([3, 9, 5]), "edges": edges.transpose([0, 3, 1, 2])},
    )


def traffic() -> tuple[Layer, tuple[Any, ...]]:
    adjacency = np.random.default_rng(0).random((11, 11), dtype=np.float32)
    net = arch("tgcn.TGCN")(
        ("input",), ("label",), adjacency, in_dim=1, emb_dim=8, hidden=16, gc_layer=2,
        tc_layer=2, k_s=3, dropout=0.25, alpha=0.1, input_len=12, label_len=12,
    )  # fmt: skip
    return net, ({"input": paddle.rand([3, 12, 11, 1])},)


def equations() -> tuple[Layer, tuple[Any, ...]]:
    net = arch("Transformer")(
        ("input", "target_seq"), ("output",), num_var_max=7, vocab_size=20,
        seq_length=10, d_model=32, heads=4, num_layers_enc=1, num_layers_dec=2,
        dropout=0.1,
    )  # fmt: skip
    tokens = paddle.randint(1, 20, [3, 10])
    return net, ({"input": paddle.rand([3, 8, 7, 1]), "target_seq": tokens},)


def needing(package: str, name: str) -> Make:
    """A net that needs a package that comes with few systems."""

    def make() -> tuple[Layer, tuple[Any, ...]]:
        __import__(package)
        raise ImportError(f"{name} takes objects of {package}, not tensors")

    return make


def gpt(embedded: bool) -> Make:
    def make() -> tuple[Layer, tuple[Any, ...]]:
        embedding = None
        if embedded:
            embedding = arch("LorenzEmbedding")(XY, UV, embed_size=32, hidden_size=20)
        sizes = ("embeds",), ("pred_embeds",), 2, 16, 32, 4
        net = arch("PhysformerGPT2")(*sizes, embedding_model=embedding)
        return net, ({"embeds": paddle.randn([3, 16, 3 if embedded else 32])},)

    return make


def lstms(kind: int) -> Make:
    width = 16 if kind == 2 else 1
    given = {"ag": [5, 16, width], "ag_c": [5, 16, width], "phi": [1, 16, 16]}
    return of("DeepPhyLSTM", given, width, 1, hidden_size=12, model_type=kind)


STATES = {"x": [8, 3, 2], "y": [8, 3, 1]}
AROUND = {"states": [2, 3, 3, 64, 128], "visc": [2, 1]}
CLOUD = {"x": [2, 40, 3]}
DGCNN = {"k": 5, "emb_dims": 32, "dropout": 0.1}

OF_GRAPHS: dict[str, Make] = {
    "CrystalGraphConvNet": graph,
    "MoFlowNet": molecules,
    "TGCN": traffic,
    "Transformer of equations": equations,
    "PhysformerGPT2": gpt(False),
    "PhysformerGPT2, embedding": gpt(True),
    "LorenzEmbedding": of(
        *("LorenzEmbedding", STATES, XY, UV),
        **{"hidden_size": 20, "embed_size": 8, "drop": 0.1},
    ),
    "RosslerEmbedding": of(
        *("RosslerEmbedding", STATES, XY, UV), hidden_size=20, embed_size=8
    ),
    "CylinderEmbedding": of(
        *("CylinderEmbedding", AROUND, ("states", "visc"), UV),
        encoder_channels=(4, 4, 8, 8, 8),
        decoder_channels=(4, 8, 8, 4, 4),
    ),
    "DeepPhyLSTM, two": lstms(2),
    "DeepPhyLSTM, three": lstms(3),
    "RegDGCNN": of("RegDGCNN", CLOUD, ("x",), ("y",), ("w",), DGCNN),
    "RegPointNet": of("RegPointNet", CLOUD, ("x",), ("y",), ("w",), DGCNN),
    "AMGNet": needing("pgl", "AMGNet"),
    "CFDGCN": needing("su2paddle", "CFDGCN"),
    "GraphCastNet": needing("ppsci.data.dataset.atmospheric_dataset", "GraphCastNet"),
}

NETS: dict[str, Make] = {
    f"ppsci: {name}": make
    for found in (OF_POINTS, OF_FUNCTIONS, OF_GRAPHS)
    for name, make in found.items()
}
"""By name a layer and its arguments."""
