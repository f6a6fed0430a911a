"""``python -m paddle_chainrules``: doctor, bench and explain."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .paddle_side.process.first_import import paddle_import

EXAMPLE = """examples:
  python -m paddle_chainrules doctor
  python -m paddle_chainrules bench model.py:make --input 64x3
  python -m paddle_chainrules explain mypackage.nets:Encoder --input 8x20:int64:100
"""


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root_parser = argparse.ArgumentParser(
        "python -m paddle_chainrules",
        description="PaddlePaddle nets as pure, differentiable functions",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root_parser.add_subparsers(dest="command")
    commands.add_parser("doctor", help="what is installed, and what is amiss")
    for name, help_text in (
        ("bench", "a layer's calls and gradients beside native Paddle"),
        ("explain", "what of a layer runs as a program, and what not"),
    ):
        subparser = commands.add_parser(name, help=help_text)
        subparser.add_argument("layer", help="module:factory or file.py:factory")
        subparser.add_argument(
            "--input",
            action="append",
            default=[],
            metavar="SHAPE",
            help="64x3, 64x3:float64 or 64x5:int64:100, once for each input",
        )
        subparser.add_argument("--train", action="store_true", help="not in evaluation")
        if name == "bench":
            subparser.add_argument(
                "--rounds", type=int, default=30, help="turns of a side"
            )
            subparser.add_argument(
                "--json", metavar="FILE", help="write the figures there"
            )
            subparser.add_argument(
                "--picture", metavar="FILE", help="draw the ratios there"
            )
        else:
            subparser.add_argument(
                "--program", action="store_true", help="print it whole"
            )
    return root_parser


def main(args: list[str] | None = None) -> int:
    """Run a command; gives the exit status: 0, or 1 for what is amiss.

    Paddle, which takes seconds to import, is imported when the arguments are known to
    be right.
    """
    options = parser().parse_args(args)
    if options.command is None:
        parser().print_help()
        return 0
    with paddle_import():
        import paddle  # noqa: F401
    from .commands.bench import bench_layer, draw, figure_type, table
    from .commands.doctor import FAULT, doctor
    from .commands.explain import explain_layer
    from .commands.layers import UsageError, check_call, layer_and_inputs

    if options.command == "doctor":
        marks = []
        for line in doctor():
            print(line, flush=True)
            marks.append(line.mark)
        return int(FAULT in marks)
    try:
        layer, inputs = layer_and_inputs(options.layer, options.input)
        (layer.train if options.train else layer.eval)()
        check_call(layer, inputs)
        if options.command == "bench" and options.picture:
            figure_type()
    except (UsageError, ModuleNotFoundError) as error:
        parser().error(str(error))
    if options.command == "explain":
        text, runs = explain_layer(layer, inputs, options.program)
        print(text)
        return int(not runs)
    result = bench_layer(layer, inputs, options.rounds)
    print(table(result))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if options.picture:
        draw(result, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
