"""Nets of PaddleScience on grids: neural operators, convolutions, attention, weather.

Constructed as in their docstrings and examples, smaller.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn
from paddle.nn import Layer

from real_comparison import Make
from real_science import arch, of

X, Y = ("x",), ("y",)
SMALL = {"lifting_channels": 8, "projection_channels": 8, "n_layers": 2}


def tfno(dims: int, **kw: Any) -> Make:
    names = ("n_modes_height", "n_modes_width", "n_modes_depth")[:dims]
    kw = {**dict.fromkeys(names, 4), "hidden_channels": 8, **SMALL, **kw}
    return of(f"TFNO{dims}dNet", {"x": [2, 3, *[16, 12, 8][:dims]]}, X, Y, **kw)


def fno(dims: int, **kw: Any) -> Make:
    given = {"x": [2, 3, *[16, 12, 8][:dims]]}
    modes = (4,) * dims
    return of("tfnonet.FNONet", given, X, Y, modes, 8, **SMALL, **kw)


FIVE = (8, 12, 12, 8, 8)
UNO = {
    "lifting_channels": 8,
    "projection_channels": 8,
    "n_layers": 5,
    "uno_out_channels": FIVE,
    "uno_n_modes": ((4, 4),) * 5,
    "uno_scalings": ((1.0, 1.0), (0.5, 0.5), (1, 1), (1, 1), (2, 2)),
    "horizontal_skips_map": {4: 0, 3: 1},
    "use_mlp": False,
}
SFNO = {**SMALL, "fno_skip": "linear", "factorization": "dense"}
GRID = {"x": [2, 3, 16, 12]}
AFNO = {
    "img_size": (16, 32),
    "patch_size": (4, 4),
    "in_channels": 3,
    "out_channels": 3,
    "embed_dim": 16,
    "depth": 2,
    "num_blocks": 4,
}


def rain() -> tuple[Layer, tuple[Any, ...]]:
    wind = arch("AFNONet")(X, Y, **AFNO)
    net = arch("PrecipNet")(X, Y, wind, **{**AFNO, "out_channels": 1})
    return net, ({"x": paddle.rand([1, 3, 16, 32])},)


def laplace(**kw: Any) -> Make:
    def make() -> tuple[Layer, tuple[Any, ...]]:
        shape = 7, 6, 5
        time, *data = (paddle.linspace(0, 1, n).reshape([1, n]) for n in shape)
        sizes = X, Y, 4, (3, 3, 3), time, tuple(data)
        net = arch("LNO")(*sizes, hidden_features=8, **kw)
        return net, ({"x": paddle.rand([2, *shape, 1])},)

    return make


OPERATORS: dict[str, Make] = {
    "FNO1d": of(
        *("FNO1d", {"input": [2, 50, 2]}, ("input",), ("output",)),
        **{"modes": 6, "width": 8, "padding": 5, "output_np": 50},
    ),
    "FNO, 2d": fno(2),
    "FNO, 2d, norm, MLP": fno(
        2, norm="group_norm", use_mlp=True, mlp={"expansion": 0.5, "dropout": 0.0}
    ),
    "FNO, 2d, preactivation": fno(2, preactivation=True, norm="group_norm"),
    **{f"TFNO, {dims}d": tfno(dims) for dims in (1, 2, 3)},
    "TFNO, 2d, skips, reconstructed": tfno(
        2, skip="linear", implementation="reconstructed"
    ),
    "UNONet": of("UNONet", {"x": [2, 3, 16, 16]}, X, Y, 3, 1, 8, **UNO),
    "SFNONet": of("SFNONet", GRID, X, Y, (4, 4), 8, **SFNO),
    "AFNONet": of("AFNONet", {"x": [1, 3, 16, 32]}, X, Y, **AFNO),
    "PrecipNet": rain,
    "LNO, 3d": laplace(),
    "LNO, 3d, no norm": laplace(use_norm=False),
}

CVIT = {
    "patch_size": (1, 4, 4),
    "grid_size": (8, 8),
    "latent_dim": 16,
    "emb_dim": 16,
    "depth": 1,
    "num_heads": 4,
    "dec_emb_dim": 16,
    "dec_num_heads": 4,
}


def cvit(dims: int, **kw: Any) -> Make:
    length = [32] if dims == 1 else [2, 8, 8]
    given = {"u": [2, *length, 2], "y": [20, 1 if dims == 1 else 2]}
    more = {"patch_size": [4], "grid_size": [32]} if dims == 1 else {}
    sizes = {"spatial_dims": 32 if dims == 1 else length, "coords_dim": given["y"][1]}
    kind = "CVit1D" if dims == 1 else "CVit"
    common = {"in_dim": 2, "out_dim": 2, **sizes}
    return of(kind, given, ["u", "y"], ["s"], **common, **{**CVIT, **more, **kw})


CUBOID = {
    "input_shape": (4, 16, 16, 1),
    "target_shape": (4, 16, 16, 1),
    "base_units": 16,
    "enc_depth": [1, 1],
    "dec_depth": [1, 1],
    "num_heads": 2,
    "num_global_vectors": 0,
    "initial_downsample_type": "stack_conv",
    "initial_downsample_stack_conv_num_layers": 2,
    "initial_downsample_stack_conv_dim_list": [8, 16],
    "initial_downsample_stack_conv_downscale_list": [2, 2],
    "initial_downsample_stack_conv_num_conv_list": [1, 1],
    "initial_downsample_activation": "leaky_relu",
    "ffn_activation": "leaky_relu",
    "checkpoint_level": 0,
    "attn_drop": 0.1,
    "proj_drop": 0.1,
    "ffn_drop": 0.1,
}
EXPERTS = {
    "use_linear_moe": False,
    "use_ffn_moe": True,
    "use_attn_moe": False,
    "num_experts": 4,
    "out_planes": 4,
    "importance_weight": 0.01,
    "load_weight": 0.01,
    "gate_style": "cuboid-latent",
    "dispatch_style": "dense",
    "aux_loss_style": "all",
}
RANKED = {
    "use_rnc": False,
    "rank_imbalance_style": "batch+T+H+W",
    "feature_similarity_style": "l2",
    "rank_imbalance_temp": 2,
    "label_difference_style": "l1",
    "rank_reg_coeff": 0.01,
    "loss_cal_style": "computation-efficient",
    "rank_imbalance_weight": 0.01,
}
FRAMES = {"x": [1, 4, 16, 16, 1]}


def generator() -> tuple[Layer, tuple[Any, ...]]:
    """tempoGAN's, with narrow blocks."""
    channels = ((2, 4, 4), (8, 8, 8), (4, 4, 4), (2, 1, 1))
    net = arch("Generator")(
        *(X, Y, 1, channels),
        *((((5, 5),) * 2 + ((1, 1),),) * 4, ((1, 1, 1),) * 4),
        *(((True,) * 3,) * 3 + ((False,) * 3,), (("relu", None, None),) * 4),
    )
    return net, ({"x": paddle.randn([2, 1, 12, 12])},)


def discriminator() -> tuple[Layer, tuple[Any, ...]]:
    keys = tuple(f"out_{i}" for i in range(10))
    net = arch("Discriminator")(
        *(("a", "b"), keys, 2, (4, 8, 8, 8), 32, ((4, 4),) * 4, (2, 2, 2, 1)),
        *((False, True, True, True), ("leaky_relu",) * 4 + (None,)),
    )
    given = {key: paddle.randn([2, 2, 16, 16]) for key in ("a", "b")}
    return net, (given,)


def recurrent() -> tuple[Layer, tuple[Any, ...]]:
    net = arch("PhyCRNet")(
        input_channels=2, hidden_channels=[4, 8, 8, 8], input_kernel_size=[4, 4, 4, 3],
        input_stride=[2, 2, 2, 1], input_padding=[1, 1, 1, 1], dt=0.002,
        num_layers=[3, 1], upscale_factor=8, step=2, effective_step=[0, 1],
    )  # fmt: skip
    state = tuple(paddle.randn([1, 8, 2, 2]) for _ in range(2))
    return net, ({"input": paddle.randn([1, 2, 16, 16]), "initial_state": [state]},)


def unetex(**kw: Any) -> Make:
    sizes = {"filters": (4, 8, 8), "layers": 2}
    return of("UNetEx", {"x": [2, 3, 16, 16]}, "x", "y", 3, 2, **sizes, **kw)


USCNN = {"h": 0.01, "ny": 19, "nx": 24, "nvar_in": 2, "nvar_out": 1}

PICTURES: dict[str, Make] = {
    "UNetEx": unetex(weight_norm=False),
    "UNetEx, tanh": unetex(weight_norm=False, batch_norm=False, activation=nn.Tanh),
    "USCNN": of("USCNN", {"x": [2, 2, 19, 24]}, X, Y, [8, 16, 8], **USCNN),
    "CVit": cvit(2),
    "CVit1D": cvit(1),
    "CuboidTransformer": of("CuboidTransformer", FRAMES, X, Y, **CUBOID),
    "ExtFormerMoECuboid": of(
        *("ExtFormerMoECuboid", {**FRAMES, "sst_target": [1, 4]}, X),
        *(("y", "aux_loss", "rank_loss"),),
        **{**CUBOID, "moe_config": EXPERTS, "rnc_config": RANKED},
    ),
    "tempoGAN, generator": generator,
    "tempoGAN, discriminator": discriminator,
    "VelocityGenerator": of(
        *("VelocityGenerator", {"x": [1, 5, 1000, 70]}, X, Y, 2, 4, 4, 8, 8),
    ),
    "VelocityDiscriminator": of(
        "VelocityDiscriminator", {"x": [2, 1, 70, 70]}, X, Y, 4, 8, 8, 8
    ),
    "PhyCRNet": recurrent,
    "DGMR": of(
        *("DGMR", {"x": [1, 4, 1, 64, 64]}, X, Y, 2, 1, 64),
        **{"latent_channels": 384, "context_channels": 192, "num_samples": 1},
    ),
    "NowcastNet": of(
        *("NowcastNet", {"x": [1, 4, 256, 256, 2]}, X, Y, 4, 6, 256, 256, 2, 4),
    ),
}

NETS: dict[str, Make] = {
    f"ppsci: {name}": make
    for found in (OPERATORS, PICTURES)
    for name, make in found.items()
}
"""By name a layer and its arguments."""
