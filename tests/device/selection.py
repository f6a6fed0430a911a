"""Which tests run on the protected device, and why others do not.

``python -m pytest --device fake_gpu`` skips what is listed here, with the reason.
"""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = (
    *("tests/device", "tests/distributed", "tests/nets", "tests/optimizers"),
    *("tests/programs", "tests/transforms"),
)
FILES = (
    *("tests/test_tensor_files.py", "tests/test_tree_files.py"),
    "tests/test_whole_files.py",
)

CODE = "it looks at machine code, which the CPU alone has"
BLOCKS = "it looks at blocks of rows, which are made for the CPU's caches"
VIEWS = "Paddle's kernels of the CPU write into a copy of a view of the device"
PARAMS = "Paddle's kernel of the CPU refuses parameters of a device"
ADDED = "Paddle adds gradients of rows and dense ones on the host"
DRAWS = "Paddle draws on the CPU and keeps the state of the device's generator"
HALF = "the device has no kernels for half precision"
LSTSQ = "Paddle refuses least squares on such devices"
MOVES = "moves to another device have first derivatives alone"
CASTS = "Paddle casts one factor of a product where it lies, by the CPU's kernel"
ENDS = "an operator of Paddle's ends the process there"
SPARSE = "Paddle converts its sparse tensors on the host, without us, too"
LOGS = "it counts lines of Paddle's log, which runs there hide"
MEMORY = "the device's memory counts as the host's"
SLOW = "it takes minutes there: Paddle starts a thread for each copy of its"
SENT = "Paddle sends no tensors of a custom device to other processes"

NOT_ON_DEVICE = {
    "tests/nets/test_along.py::test_random_numbers_are_drawn*": DRAWS,
    "tests/nets/test_columns.py::test_derivatives_by_names_go_in_blocks*": BLOCKS,
    "tests/nets/test_functional_module.py::test_nets_go_to_another_process": SENT,
    "tests/nets/test_joint.py::test_gradients_equal*": CODE,
    "tests/nets/test_purity.py::test_a_function_that_writes[view]": VIEWS,
    "tests/nets/test_set_between.py::*RMSProp*": PARAMS,
    "tests/nets/test_sparse_embeddings.py::test_the_padding*-tied]": ADDED,
    "tests/optimizers/test_beside_paddle.py": SLOW,
    **dict.fromkeys(
        (
            *("tests/programs/test_blas.py", "tests/programs/test_by_block.py"),
            "tests/programs/test_collapsing.py::test_gradients_beside_paddles_tape*",
            *("tests/programs/test_convolutions.py", "tests/programs/test_indices.py"),
            *("tests/programs/test_kept_code.py", "tests/programs/test_loops.py"),
            *("tests/programs/test_one_number.py", "tests/programs/test_peak_bytes.py"),
            *("tests/programs/test_pooling.py", "tests/programs/test_rearranged.py"),
            *("tests/programs/test_regions.py", "tests/programs/test_rows.py"),
            *("tests/programs/test_shared_loops.py", "tests/programs/test_vectors.py"),
        ),
        CODE,
    ),
    "tests/programs/test_in_julia.py": CODE,
    "tests/programs/test_argument_names.py::*[index_put]": ENDS,
    "tests/programs/test_complex.py::*[matrices]": CASTS,
    "tests/programs/test_in_place.py::test_constants_that_are_read*": VIEWS,
    "tests/programs/test_in_place.py::test_gradients_of_what_is*[*view*]": VIEWS,
    "tests/programs/test_in_place.py::test_gradients_of_what_is*[used_and*]": VIEWS,
    "tests/programs/test_in_place.py::test_a_function_that_writes_is_the*": VIEWS,
    "tests/programs/test_linear_algebra.py::test_least_squares_without*": LSTSQ,
    "tests/programs/test_decompositions.py": CODE,
    "tests/programs/test_loop_functions.py::test_a_program_with_all_kinds*": CODE,
    "tests/programs/test_loop_functions.py::test_powers_of_python": CODE,
    "tests/programs/test_table.py": SLOW,
    "tests/programs/test_taylor.py::test_many_points_go_in_blocks*": BLOCKS,
    "tests/transforms/test_csr.py::test_made_of_what_there_is[*paddle*": SPARSE,
    "tests/transforms/test_csr.py::test_what_is_refused_says*[*half precision]": HALF,
    "tests/transforms/test_csr.py::test_coordinates_in_any_order*": SPARSE,
    "tests/transforms/test_py_layers.py::*[by_unbind]": VIEWS,
    "tests/transforms/test_py_layers.py::*[through_rows]": VIEWS,
    "tests/transforms/test_fallback.py::test_nothing_is_written_to*": LOGS,
    "tests/transforms/test_overwriting.py::*[by_a_view*": VIEWS,
    "tests/transforms/test_guarded_calls.py::test_programs_that_draw_go_on*": DRAWS,
    "tests/transforms/test_nothing.py::test_writes_through_views_with_new*": VIEWS,
    "tests/transforms/test_returned_arguments.py::*[cpu]": MOVES,
    "tests/transforms/test_many_samples.py::test_taking_by_indices[index_select*": ENDS,
    "tests/transforms/test_same_answer.py": SLOW,
    "tests/transforms/test_scan.py::test_memory_is_flat": SLOW,
    "tests/test_tensor_files.py::test_files_take_no_second_copy_in_memory": MEMORY,
}
"""Patterns of tests, or whole files, with the reason."""


def reason_for(nodeid):
    """Return why a test or a file does not run on the device; None where it does."""
    for pattern, reason in NOT_ON_DEVICE.items():
        if matches(nodeid, pattern) or matches(nodeid.partition("::")[0], pattern):
            return reason
    return None


def matches(nodeid, pattern):
    """Compare with a pattern in which brackets stand for themselves."""
    return fnmatchcase(nodeid.replace("[", "("), pattern.replace("[", "("))


def files():
    """Return the files of which some tests run on the device."""
    tests = [
        file for folder in FOLDERS for file in sorted((ROOT / folder).glob("test_*.py"))
    ]
    names = [*(str(file.relative_to(ROOT)) for file in tests), *FILES]
    return [name for name in names if reason_for(name) is None]


def unknown():
    """Return the patterns of which the file, or the function, is not there."""
    return [pattern for pattern in NOT_ON_DEVICE if not _is_there(pattern)]


def _is_there(pattern):
    name, _, test = pattern.partition("::")
    if not (ROOT / name).exists():
        return False
    functions = {
        node.name
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    begin = re.split(r"\[|(?<=\*)-", test)[0]
    return not test or any(fnmatchcase(f, begin) for f in functions) or begin[0] == "*"
