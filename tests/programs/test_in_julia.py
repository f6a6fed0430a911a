"""Operators in Julia, beside Paddle."""

import math
import os

import numpy as np
import paddle
import pytest

from conftest import loops_on, randn
from julia_at_hand import needs_julia
from julia_lane import own_julia as own_julia
from paddle_chainrules import CaptureError, make_program
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.in_julia.any_batch import of_any_batch
from paddle_chainrules.programs.in_julia.function import TupleParameter, julia_function
from paddle_chainrules.programs.in_julia.operators.call import TYPES
from paddle_chainrules.programs.operators.calls import NoRule
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.programs.tracing.operations import tensors_in
from programs.refused_in_julia import REFUSED
from programs.sampled import called, made
from programs.samples import SAMPLES
from programs.test_transform_rules import net_and_inputs

JULIA = {**TYPES, "complex64": "ComplexF32", "complex128": "ComplexF64"}

ONLY = os.environ.get("OPERATOR") or None
"""The operator that is looked at alone (make operator)."""


def text_of(program):
    group = TupleParameter("inputs", [""] * len(program.inputs))
    return julia_function("program", program, [group])


def test_numbers_are_written_as_julia_has_them():
    x = randn([3])
    texts = []
    for number in (float("inf"), -float("inf"), float("nan"), True, 2, 0.5, 0.1):
        program = make_program(lambda x, n=number: x + n)(x)
        lines = text_of(program).text.splitlines()
        texts.append(next(line for line in lines if ".+" in line).partition(".+ ")[2])
    assert [text.split(" #")[0] for text in texts] == [
        *("T(Inf)", "T(-Inf)", "T(NaN)", "1", "2", "0.5f0", "T(0.1)")
    ]
    turned = make_program(lambda x: (-2.0) ** x)(x)
    assert "(-2) .^ i1" in text_of(turned).text
    least = make_program(lambda x: x + paddle.full([], -math.inf))(x)
    assert "fill(T(-Inf))" in text_of(least).text
    scalar = make_program(lambda x: paddle.tanh(x) + 1.0)(paddle.to_tensor(0.5))
    assert "fill(tanh.(i1) .+ 1)" in text_of(scalar).text


def test_what_has_no_expression_says_so():
    x = paddle.rand([3, 4], "float64")
    program = capture(lambda v: [paddle.logcumsumexp(v[0], 0)], [x]).program
    with pytest.raises(NoRule, match=r"logcumsumexp at test_in_julia.py:\d+ in Julia"):
        text_of(program)


def test_numbers_that_depend_on_the_number_of_samples():
    texts = [f"reshape(x, (4, {n})) + {2 * n + 1} t1" for n in (3, 5, 6)]
    assert of_any_batch(texts, (3, 5, 6)) == "reshape(x, (4, n)) + (2n + 1) t1"
    assert of_any_batch([f"x{n}" for n in (3, 5, 6)], (3, 5, 6)) is None
    assert of_any_batch([f"{n * n}" for n in (3, 5, 6)], (3, 5, 6)) is None
    assert of_any_batch([f"{n}.0" for n in (3, 5, 6)], (3, 5, 6)) is None


def function_of(name, k):
    """All tensors that an operator gives, of its tensors of any dtype."""
    tensors, fill = made(SAMPLES[name][k])
    shown = 3 if name == "batch_norm" else TABLE[name].shown  # the rest is not set

    def function(values):
        result = called(name)(*fill(values))
        every = tensors_in([result[0] if name == "einsum" else result])
        found = [part for part in every if part._is_initialized()]
        return found[: shown or len(found)]

    return function, tensors


@pytest.fixture(scope="module")
def translated():
    """By samples' names program, tensors and text, and why others have no text."""
    every = {
        f"{name} {k}": function_of(name, k)
        for name, entry in TABLE.items()
        if (entry.julia or entry.formula) is not None and ONLY in (None, name)
        for k in range(len(SAMPLES.get(name, ())))
    }
    if ONLY is None:
        every["a net"] = net_and_inputs()
    found, refused = {}, {}
    for label, (function, tensors) in every.items():
        try:
            program = capture(function, tensors).program
            found[label] = program, tensors, text_of(program)
        except (NoRule, CaptureError) as error:
            name = label.partition(" ")[0]
            if TABLE[name].julia is not None:  # a formula alone need not be of Julia's
                refused[label] = str(error)
    return found, refused


@loops_on
def test_what_julia_refuses_is_known_by_its_name(translated):
    """Each with its reason; what is new is translated, or named with its reason."""
    found, refused = translated
    known = {
        f"{name} {k}": reason
        for reason, names in REFUSED.items()
        for name, numbers in names.items()
        for k in numbers
        if ONLY in (None, name)
    }
    wrong = [
        f"{label} is refused: {why}"
        for label, why in refused.items()
        if known.get(label, why + "!") not in why
    ]
    wrong += [
        f"{label} is not refused: {reason}"
        for label, reason in known.items()
        if label not in refused
    ]
    assert not wrong, "\n".join([*wrong, "see programs/refused_in_julia.py"])
    assert found or ONLY is not None


@needs_julia
def test_julia_gives_what_paddle_gives(tmp_path, own_julia, count_case, translated):
    """All samples of entries with an expression, or with a formula that has one."""
    lines = []
    for number, (label, (program, tensors, found)) in enumerate(translated[0].items()):
        inputs = _tuple(tmp_path, f"{number}.in", tensors)
        constants = _tuple(tmp_path, f"{number}.const", found.constants)
        expected = _tuple(tmp_path, f"{number}.out", program(*tensors))
        lines.append(
            f'compare("{label}", raw"""{found.text}""", '
            f"{inputs}, {constants}, {expected})"
        )
    if not lines:
        pytest.skip(f"{ONLY} has no expression of Julia's")
    script = tmp_path / "compare.jl"
    script.write_text(PRELUDE + "\n".join(lines))
    rows = own_julia.printed(script).splitlines()
    different = [row for row in rows if not row.startswith("same ")]
    same = len(rows) - len(different)
    assert same == len(lines), "\n".join(different)
    for _ in range(same):
        count_case("operators, in Julia")


PRELUDE = """
using AbstractFFTs, FFTW, NNlib, PaddleChainRules, SpecialFunctions
const Operators = PaddleChainRules.Operators
array(T, path, sizes) = reshape(collect(reinterpret(T, read(path))), sizes)
close(::Nothing, b) = true # what Paddle gives for the way back
close(a, b) = size(a) == size(b) && all(isapprox.(a, b; rtol = 1e-11, nans = true,
    atol = 1e-11 * maximum(abs, filter(isfinite, b); init = 0.0)))
function compare(label, text, inputs, constants, expected)
    try
        found = Operators.compiled(text)(inputs, constants)
        right = length(found) == length(expected) && all(map(close, found, expected))
        println(right ? "same " : "different ", label)
    catch error
        println("failed ", label, ": ", first(sprint(showerror, error), 300))
    end
end
"""


def _tuple(folder, name, tensors):
    parts = []
    for i, tensor in enumerate(tensors):
        file = folder / f"{name}.{i}"
        file.write_bytes(np.ascontiguousarray(tensor.numpy()).tobytes())
        kind = JULIA[str(tensor.dtype).removeprefix("paddle.")]
        sizes = "".join(f"{n}, " for n in reversed(tensor.shape))
        parts.append(f'array({kind}, "{file}", ({sizes}))')
    return f"({''.join(f'{part}, ' for part in parts)})"
