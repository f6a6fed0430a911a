"""Machine code that is limited to the instructions of a level."""

import platform
import re

import pytest

from conftest import run_code
from paddle_chainrules.programs.codegen.processor import level
from paddle_chainrules.settings import CPU, LEVELS, loops_are_on

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="levels are those of x86-64"
    ),
    pytest.mark.skipif(not loops_are_on(), reason="no machine code here"),
]

CODE = """
from llvmlite import binding as llvm
from paddle_chainrules.programs.codegen.jit_engine import target_machine

text = '''
define <16 x float> @f(<16 x float> %a, <16 x float> %b) {
  %c = fadd <16 x float> %a, %b
  ret <16 x float> %c
}
'''
machine = target_machine()
module = llvm.parse_assembly(text)
module.triple = machine.triple
print(machine.emit_assembly(module))
"""


@pytest.mark.parametrize(
    ("asked", "widest"),
    [("x86-64", "xmm"), ("x86-64-v2", "xmm"), ("x86-64-v3", "ymm"), ("native", None)],
)
def test_no_vector_is_wider_than_those_of_the_level(asked, widest):
    highest = level()
    if asked != "native" and LEVELS.index(asked) > LEVELS.index(highest):
        pytest.skip(f"this processor has {highest}")
    done = run_code(CODE, **{CPU: asked})
    assert done.returncode == 0, done.stderr
    used = max(re.findall(r"%([xyz]mm)\d", done.stdout))
    assert used == (widest or used)


def test_a_processor_that_lacks_the_level_says_so():
    if level() == LEVELS[-1]:
        pytest.skip(f"this processor has {LEVELS[-1]}")
    done = run_code(CODE, **{CPU: LEVELS[-1]})
    assert done.returncode == 1
    assert f"{CPU}='{LEVELS[-1]}', but this processor" in done.stderr
    assert "lacks avx512" in done.stderr


def test_no_level_of_that_name():
    done = run_code("import paddle_chainrules", **{CPU: "x86-64-v9"})
    assert done.returncode == 1
    assert f"{CPU}='x86-64-v9', which is no level of x86-64" in done.stderr
