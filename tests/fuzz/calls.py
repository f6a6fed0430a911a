"""Public functions and what they take, by the kinds of values."""

from inspect import signature

import paddle_chainrules as pc
from fuzz.ready import READY
from fuzz.signatures import kinds_by_signature
from paddle_chainrules import distributed, libraries, optimizers, testing


def while_loop(condition, body, init):
    """The loop, for fifty rounds at most."""
    rounds = iter(range(50))

    def bounded(value):
        return next(rounds, None) is not None and condition(value)

    return pc.while_loop(bounded if callable(condition) else condition, body, init)


FITS = {"steps": "count", "iterations": "count", "seed": "count", "probes": "count"}

CALLS = {
    "FCNet": (pc.FCNet, ["sizes", "text", "text"], {}),
    "CSR": (pc.CSR, ["pointer", "tensor", "tensor", "sizes"], {}),
    "CSR.of": (pc.CSR.of, ["tensor"], {}),
    "Packed": (pc.Packed, ["tensor", "pointer", "count"], {}),
    "Packed.of": (pc.Packed.of, ["trees"], {}),
    "Packed.of_padded": (pc.Packed.of_padded, ["tensor", "tensor"], {}),
    "ParamSpec": (pc.ParamSpec, ["tree", "tree", "tree"], {}),
    "ParamSpec.of": (pc.ParamSpec.of, ["params"], {}),
    "RowSparse": (pc.RowSparse, ["tensor", "tensor", "sizes"], {}),
    "RowSparse.of": (pc.RowSparse.of, ["tensor"], {}),
    "RowSparse.zeros": (pc.RowSparse.zeros, ["sizes", "text"], {}),
    "cond": (pc.cond, ["predicate", "function", "function", "tensor"], {}),
    "curl": (pc.curl, ["net", "params", "points"], {"of": "columns", "by": "columns"}),
    "derivative": (pc.derivative, ["net", "params", "points", "index"], {}),
    "derivatives": (pc.derivatives, ["net", "params", "points", "index"], {}),
    "divergence": (pc.divergence, ["net", "params", "points"], {"by": "columns"}),
    "explain": (pc.explain, ["function", "tensor"], {}),
    "fori_loop": (pc.fori_loop, ["number", "count", "body", "tensor"], {}),
    "forward_laplacian": (
        pc.forward_laplacian,
        ["net", "params", "points"],
        {"weights": "anything", "by": "columns"},
    ),
    "grad": (pc.grad, ["scalar function", "argnums", "bool"], {}),
    "hessian": (pc.hessian, ["scalar function", "argnums", "bool"], {}),
    "hvp": (pc.hvp, ["scalar function", "tensor", "tensor"], {}),
    "jacfwd": (pc.jacfwd, ["function", "argnums", "bool"], {}),
    "jacrev": (pc.jacrev, ["function", "argnums", "bool"], {}),
    "jacobian": (pc.jacobian, ["function", "tensor", "bool"], {}),
    "jit": (pc.jit, ["function", "argnums"], {"strict": "bool"}),
    "jvp": (pc.jvp, ["function", "trees", "trees", "bool"], {}),
    "laplacian": (
        pc.laplacian,
        ["net", "params", "points"],
        {"weights": "anything", "by": "columns", "probes": "count", "seed": "count"},
    ),
    "linearize": (pc.linearize, ["function", "tensor"], {"has_aux": "bool"}),
    "load_params": (pc.load_params, ["path", "net"], {}),
    "make_program": (pc.make_program, ["function", "argnums"], {}),
    "save_params": (pc.save_params, ["path", "params"], {}),
    "scan": (
        pc.scan,
        ["step", "tensor", "tensor"],
        {"length": "count", "reverse": "bool"},
    ),
    "stack_params": (pc.stack_params, ["trees"], {}),
    "stateless": (pc.stateless, ["layer", "anything"], {"jit": "bool"}),
    "taylor": (pc.taylor, ["net", "params", "points", "tensor", "count"], {}),
    "value_and_grad": (pc.value_and_grad, ["scalar function", "argnums", "bool"], {}),
    "vjp": (pc.vjp, ["function", "tensor", "tensor"], {"has_aux": "bool"}),
    "vmap": (
        pc.vmap,
        ["function", "axes", "axes"],
        {"chunk_size": "count", "randomness": "text"},
    ),
    "while_loop": (while_loop, ["condition", "body", "tensor"], {}),
    "distributed.average": (distributed.average, ["tree", "number"], {}),
    "distributed.broadcast": (distributed.broadcast, ["tree", "number"], {}),
    "distributed.load_checkpoint": (distributed.load_checkpoint, ["path"], {}),
    "distributed.save_checkpoint": (distributed.save_checkpoint, ["path", "tree"], {}),
    "distributed.seed": (distributed.seed, ["number"], {}),
    "distributed.shard": (distributed.shard, ["tree"], {}),
    "distributed.value_and_grad": (
        distributed.value_and_grad,
        ["scalar function", "argnums", "bool"],
        {"reduction": "text", "weight": "anything", "micro_batches": "count"},
    ),
    "testing.check_vjp": (testing.check_vjp, ["net", "params", "trees"], {}),
    "testing.compare": (testing.compare, ["function", "function", "trees"], {}),
    "apply_updates": (optimizers.apply_updates, ["tree", "tree"], {}),
    "from_paddle": (optimizers.from_paddle, ["anything", "layer"], {}),
    "global_norm": (optimizers.global_norm, ["tree"], {}),
    "schedule_of": (optimizers.schedule_of, ["anything"], {}),
    "accumulate": (optimizers.accumulate, ["optimizer", "count"], {}),
    "add_decayed_weights": (optimizers.add_decayed_weights, ["rate", "anything"], {}),
    "chain": (optimizers.chain, ["optimizer", "optimizer"], {}),
    "clip_by_value": (optimizers.clip_by_value, ["number", "number"], {}),
    "ema": (optimizers.ema, ["rate", "bool"], {}),
    "scale": (optimizers.scale, ["number"], {}),
    "scale_by_schedule": (optimizers.scale_by_schedule, ["anything"], {}),
    "bfgs": (optimizers.bfgs, ["loss", "params"], {"update": "text", "steps": "count"}),
    "lbfgs": (
        optimizers.lbfgs,
        ["loss", "params"],
        {"memory": "count", "steps": "count"},
    ),
    "gauss_newton": (optimizers.gauss_newton, ["residual", "params"], FITS),
    "levenberg_marquardt": (
        optimizers.levenberg_marquardt,
        ["residual", "params"],
        {"steps": "count", "damping": "number", "scaled": "bool"},
    ),
    "natural_gradient": (
        optimizers.natural_gradient,
        ["loss", "params"],
        {"steps": "count", "metric": "residual"},
    ),
}
CALLS |= {
    name: (getattr(optimizers, name), [kind], {"mask": "anything"} if more else {})
    for name, kind, more in (
        *(
            ("adadelta", "rate", True),
            ("adagrad", "rate", True),
            ("adam", "rate", True),
        ),
        *(("adamax", "rate", True), ("adamw", "rate", True), ("lamb", "rate", True)),
        *(("momentum", "rate", True), ("nadam", "rate", True), ("radam", "rate", True)),
        *(("rmsprop", "rate", True), ("sgd", "rate", True)),
        *(("clip_by_global_norm", "number", False), ("clip_by_norm", "number", False)),
    )
}
CALLS |= {
    f"schedules.{name}": (made, ["number"] * len(signature(made).parameters), {})
    for name, made in vars(optimizers.schedules).items()
    if getattr(made, "__module__", "") == optimizers.schedules.__name__
    and not name.startswith("_")
    and not isinstance(made, type)
}
MODULES = (pc, optimizers, distributed, testing, libraries)
CLASSES = {
    made: f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in MODULES
    for name, made in ((name, getattr(module, name)) for name in module.__all__)
    if isinstance(made, type)
}
"""Public classes, with their names."""

CALLS |= {name: (made, *kinds_by_signature(made)) for made, name in CLASSES.items()}
CALLS |= {
    made.__name__: (made, *kinds_by_signature(made))
    for made in (
        *(pc.empty_cache, pc.load, pc.save, optimizers.to_paddle),
        *(distributed.rank, distributed.size),
        *(libraries.load_library, libraries.save_library),
    )
}
CALLS |= {f"ready {name}": (made, [], {}) for name, made in READY.items()}

OF_FUNCTIONS = ["tensor", "tensor"]
"""What functions that are results are called with."""
