"""Report which calls of a layer run as a program, and which do not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import paddle

from ..errors import CaptureError
from ..nets.description import aligned
from ..nets.layers.of_layer import stateless
from ..settings import loops_are_on
from ..transforms.as_programs.jit import make_program


def explain_layer(
    layer: paddle.nn.Layer, inputs: tuple[Any, ...], whole: bool = False
) -> tuple[str, bool]:
    """Return a text for people, and whether the layer runs as a program.

    Args:
        layer: the layer, in the mode in which it is to run.
        inputs: its positional arguments.
        whole: whether the program is printed, a line an operator.
    """
    net, params, _ = stateless(layer)
    lines = [str(net.describe()), ""]
    try:
        program = make_program(net.forward)(params, *inputs)
    except CaptureError as error:
        return "\n".join([*lines, f"No program of it: {error}"]), False
    counts = Counter(op.operator.name for op in program.ops)
    lines.append(
        f"Its forward pass as a program: {len(program.ops)} operators, "
        f"{program.peak_bytes:,} bytes at most."
    )
    if loops_are_on():
        lines.append(program.explain_machine())
    lines.append(aligned([(f"  {n}", str(k)) for n, k in counts.most_common()]))
    if whole:
        lines += ["", str(program)]
    return "\n".join(lines), True
