"""Libraries called from C, C++ and Fortran, with numbers that Python has given."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optree
import paddle
import pytest

from conftest import randn
from paddle_chainrules import FCNet, jacrev, jvp, laplacian, stateless, vmap
from paddle_chainrules.libraries import Export, load_library, save_library
from paddle_chainrules.libraries.save import runs_here

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples" / "libraries"
DERIVATIVES = ["vjp", "jvp", "jacobian", "hessian", "laplacian"]
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
OK, INDEX = 0, 5


def needs(*tools):
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"there is no {', '.join(lacking)}")


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="libraries are linked on Linux"),
    needs("cc"),
]


class Case(NamedTuple):
    """A call: inputs, and outputs as they should be."""

    function: str
    n: int
    inputs: list
    outputs: list
    status: int = OK


class Saved(NamedTuple):
    """Libraries in a folder, with descriptions by name, and cases."""

    folder: Path
    about: dict
    cases: list


def arrays(values):
    return [x.detach().numpy() for x in optree.tree_leaves(values)]


def net_cases(name, net, theta, sizes, inside):
    """Yield calls of a net [n, d] to [n, m] and all its derivatives."""
    d, m = sizes

    def one(row):
        return net(theta, row.unsqueeze(0))[0]

    params = [] if inside else [theta]
    for n in (1, 6, 37):
        x, dot = (randn([n, d], str(theta.numpy().dtype), n + k) for k in (0, 1))
        bar = randn([n, m], str(theta.numpy().dtype), n + 2)
        grads = net.vjp(theta, x, bar)
        for function, further, outputs in (
            (name, [], net(theta, x)),
            (f"{name}_vjp", [bar], grads[1:] if inside else grads),
            (f"{name}_jvp", [dot], jvp(lambda x: net(theta, x), (x,), (dot,))),
            (f"{name}_jacobian", [], vmap(jacrev(one))(x)),
            (f"{name}_hessian", [], vmap(jacrev(jacrev(one)))(x)),
            (f"{name}_laplacian", [], laplacian(net, theta, x)),
        ):
            yield Case(function, n, arrays([*params, x, *further]), arrays(outputs))


class Pair(paddle.nn.Layer):
    """Two inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.first = paddle.nn.Linear(4, 9)
        self.second = paddle.nn.Linear(3, 9)
        self.last = paddle.nn.Linear(9, 5)

    def forward(self, wind, sea):
        hidden = paddle.tanh(self.first(wind) + self.second(sea))
        return self.last(hidden), hidden.sum(-1)


def odd_functions():
    """Return exports that have other dtypes and shapes, and calls of each."""
    table = randn([7, 3], "float32", 1)

    def rows(table, places):
        return paddle.gather(table, places) * 2.0

    def area(width, height):
        return width * height, width + height

    def tell(x, limit):
        return x > limit, (x > limit).astype("int32").sum(0), x.astype("int64")

    def turned(x):
        return paddle.tanh(x).T @ x

    def mask(bits, flags):
        return bits.astype("float64") * 0.5, paddle.logical_not(flags)

    places = paddle.to_tensor([6, 0, 3, 3], dtype="int64")
    numbers = [paddle.to_tensor(v, dtype="float64") for v in (1.5, -2.25)]
    x, limit = randn([5, 4], "float64", 2), paddle.to_tensor(0.25, dtype="float64")
    fixed = randn([6, 4], "float32", 3)
    bits = paddle.to_tensor([[0, 255, 7]], dtype="uint8")
    flags = paddle.to_tensor([True, False])
    exports = {
        "rows": Export(rows, table, places, batched=1),
        "area": Export(area, *numbers, results=["product", "perimeter"]),
        "tell": Export(tell, x, limit, batched=0),
        "turned": Export(turned, fixed),
        "mask": Export(mask, bits, flags),
    }
    wrong = paddle.to_tensor([0, 7, 1], dtype="int64")
    wide = randn([41, 4], "float64", 4)
    cases = [
        Case("odd_rows", 4, arrays([table, places]), arrays(rows(table, places))),
        Case(
            "odd_rows", 3, arrays([table, wrong]), [np.zeros([3, 3], "float32")], INDEX
        ),
        Case("odd_area", 0, arrays(numbers), arrays(area(*numbers))),
        Case("odd_tell", 5, arrays([x, limit]), arrays(tell(x, limit))),
        Case("odd_tell", 41, arrays([wide, limit]), arrays(tell(wide, limit))),
        Case("odd_turned", 0, arrays([fixed]), arrays(turned(fixed))),
        Case("odd_mask", 0, arrays([bits, flags]), arrays(mask(bits, flags))),
    ]
    return exports, cases


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    # valgrind knows no AVX-512
    cpu = next(
        c for c in ("x86-64-v3", "x86-64-v2", "x86-64", "native") if runs_here(c)
    )
    cases = []
    wave = FCNet((3, 17, 5, 2), "tanh", "float32")
    theta = wave.flatten(wave.init(0))
    given = {"derivatives": DERIVATIVES, "cpu": cpu}
    save_library(folder / "wave.so", wave, theta, randn([4, 3], "float32"), **given)
    cases += net_cases("wave", wave, theta, (3, 2), False)

    tide = FCNet((2, 33, 4), "gelu", "float64")
    theta = tide.flatten(tide.init(1))
    x = randn([4, 2], "float64")
    save_library(folder / "tide.so", tide, theta, x, params="inside", **given)
    cases += net_cases("tide", tide, theta, (2, 4), True)

    paddle.seed(2)
    pair, theta, _ = stateless(Pair())
    theta = pair.flatten(theta)
    inputs = randn([8, 4], "float32"), randn([8, 3], "float32", 1)
    given["derivatives"] = ["vjp", "jvp"]
    save_library(folder / "pair.so", pair, theta, *inputs, **given)
    for n in (1, 12):
        xs, dots = (
            tuple(randn([n, d], "float32", d + k) for d in (4, 3)) for k in (0, n)
        )
        bars = randn([n, 5], "float32", 8), randn([n], "float32", 9)
        y, y_dot = jvp(lambda *x: pair(theta, *x), xs, dots)
        cases += [
            Case("pair", n, arrays([theta, *xs]), arrays(pair(theta, *xs))),
            Case(
                "pair_vjp",
                n,
                arrays([theta, *xs, *bars]),
                arrays(pair.vjp(theta, xs, bars)),
            ),
            Case("pair_jvp", n, arrays([theta, *xs, *dots]), arrays([*y, *y_dot])),
        ]

    exports, found = odd_functions()
    save_library(folder / "odd.so", exports, cpu=cpu)
    cases += found
    about = {name: load_library(folder / f"{name}.so").description for name in NAMES}
    functions = [f["name"] for each in about.values() for f in each["functions"]]
    assert {c.function for c in cases} == {*functions}
    assert len(functions) == 20
    write_cases(folder, cases)
    return Saved(folder, about, cases)


NAMES = ("wave", "tide", "pair", "odd")


def write_cases(folder, cases):
    """Write arrays as files, and a list of calls for calls.c."""
    rows = []
    for i, case in enumerate(cases):
        rows.append(f"{case.function} {case.n} {case.status}")
        for k, array in enumerate((*case.inputs, *case.outputs)):
            file = folder / f"{i}_{k}.bin"
            file.write_bytes(np.ascontiguousarray(array).tobytes())
            kind = array.dtype.kind
            rows.append(f"{kind}{array.dtype.itemsize} {array.nbytes} {file.name}")
    (folder / "cases.txt").write_text("\n".join(rows))


def described(saved):
    """Yield library, function of each."""
    for name, about in saved.about.items():
        for function in about["functions"]:
            yield name, function


def write_table(saved):
    """Write table.h, by which calls.c calls functions with any arguments."""
    rows = [f'#include "{name}.h"' for name in NAMES]
    table = []
    for _, f in described(saved):
        name, inputs, outputs = f["name"], len(f["inputs"]), len(f["outputs"])
        n = ["n"] if f["samples"] else []
        given = ", ".join([*n, *(f"p[{k}]" for k in range(inputs + outputs))])
        rows += [
            f"static int32_t call_{name}(int64_t n, void **p) {{",
            f"  (void)n; return {name}({given});",
            "}",
            f"static int32_t with_work_{name}(int64_t n, void **p, void *work) {{",
            f"  (void)n; return {name}_with_work({given}, work);",
            "}",
            f"static int64_t work_bytes_{name}(int64_t n) {{",
            f"  (void)n; return {name}_work_bytes({''.join(n)});",
            "}",
        ]
        calls = ", ".join(
            f"{kind}_{name}" for kind in ("call", "with_work", "work_bytes")
        )
        table.append(f'  {{"{name}", {len(n)}, {inputs}, {outputs}, {calls}}},')
    rows += ["static const struct function FUNCTIONS[] = {", *table, "};"]
    (saved.folder / "table.h").write_text("\n".join(rows))


def run(folder, *command):
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
    )


def done(folder, *command):
    found = run(folder, *command)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-6000:]
    return found.stdout


def linked():
    return [f"./{name}.so" for name in NAMES]


def c_program(saved, name, *options):
    write_table(saved)
    flags = (*STRICT, "-std=c99", "-I.", *options)
    command = ["cc", *flags, str(HERE / "calls.c"), "-o", name, *linked()]
    done(saved.folder, *command, "-pthread", "-lm")
    return f"./{name}"


def test_c(saved):
    program = c_program(saved, "plain", "-O2")
    assert done(saved.folder, program, "cases.txt") == f"{len(saved.cases)} cases\n"


def test_c_with_too_little_memory(saved):
    program = c_program(saved, "little", "-O2")
    told = done(saved.folder, program, "cases.txt", "memory")
    assert int(told.split()[0]) > 10


def test_c_with_sanitizers(saved):
    tried = saved.folder / "tried.c"
    tried.write_text("int main(void) { return 0; }\n")
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    if run(saved.folder, "cc", *flags, "tried.c", "-o", "tried").returncode:
        pytest.skip("the C compiler has no sanitizers")
    program = c_program(saved, "sanitized", *flags)
    assert done(saved.folder, program, "cases.txt") == f"{len(saved.cases)} cases\n"


@needs("valgrind")
def test_c_under_valgrind(saved):
    program = c_program(saved, "watched", "-O1", "-g")
    watch = ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full")
    told = done(saved.folder, *watch, program, "cases.txt", "bare")
    assert told == f"{len(saved.cases)} cases\n"


CPP_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "std::int32_t",
    "int64": "std::int64_t",
    "bool": "bool",
    "uint8": "std::uint8_t",
}

CPP = """
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <type_traits>
INCLUDES

template <class T> struct Array {  // a vector of bool is none
  std::size_t size;
  std::unique_ptr<T[]> data;
  Array(std::size_t size) : size(size), data(new T[size]()) {}
  Array(std::size_t size, const char *path) : Array(size) {
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char *>(data.get()),
              static_cast<std::streamsize>(size * sizeof(T)));
  }
  std::span<T> all() { return {data.get(), size}; }
};

template <class T> void compare(const char *name, Array<T> &found, Array<T> &wanted) {
  double largest = 1e-30, far = 0;
  for (std::size_t i = 0; i < wanted.size; ++i) {
    largest = std::fmax(largest, std::fabs(static_cast<double>(wanted.data[i])));
    const double apart = std::fabs(static_cast<double>(wanted.data[i]) -
                                   static_cast<double>(found.data[i]));
    if (!(apart <= far)) far = apart;
  }
  const double close =
      !std::is_floating_point_v<T> ? 0 : sizeof(T) == 4 ? 2e-5 : 1e-12;
  if (far <= close * largest) return;
  std::cerr << name << " is another\\n";
  std::exit(1);
}

template <class Error, class Call> void raises(const char *part, Call call) {
  try {
    call();
  } catch (const Error &error) {
    if (std::strstr(error.what(), part)) return;
    std::cerr << error.what() << " lacks " << part << "\\n";
    std::exit(1);
  }
  std::cerr << "no error\\n";
  std::exit(1);
}

int main() {
CALLS
  return 0;
}
"""


def cpp_call(saved, i, case):
    """Return a call and its checks as C++."""
    library, about = next(
        (name, f) for name, f in described(saved) if f["name"] == case.function
    )
    rows, names = [], []
    tensors = [*about["inputs"], *about["outputs"]]
    for k, (tensor, array) in enumerate(
        zip(tensors, (*case.inputs, *case.outputs), strict=True)
    ):
        dtype, name = CPP_TYPES[tensor["dtype"]], f"t{k}"
        names.append(name)
        rows.append(f'Array<{dtype}> {name}({array.size}, "{i}_{k}.bin");')
        if k >= len(case.inputs):
            rows.append(f"Array<{dtype}> found{k}({array.size});")
    count = len(case.inputs)
    outputs = range(count, len(tensors))
    passed = [f"{n}.all()" for n in names[:count]] + [
        f"found{k}.all()" for k in outputs
    ]
    samples = [str(case.n)] if about["samples"] else []
    function = f"{library}_library::{case.function}"

    def call(n, given):
        return f"{function}({', '.join([*n, *given])});"

    def raising(error, part, n, given):
        return f'raises<{error}>("{part}", [&] {{ {call(n, given)} }});'

    if case.status:
        rows.append(raising("std::runtime_error", "index", samples, passed))
    else:
        rows.append(call(samples, passed))
        for k in outputs:
            rows.append(f'compare("{case.function} {k}", found{k}, t{k});')
        for k, tensor in enumerate(tensors):
            short = [*passed]
            short[k] = short[k].replace(".all()", ".all().subspan(1)")
            name = tensor["name"]
            rows.append(raising("std::invalid_argument", name, samples, short))
        if samples:
            rows.append(raising("std::runtime_error", "samples", ["0"], passed))
            rows.append(raising("std::runtime_error", "samples", ["-3"], passed))
    return "\n    ".join(["  {", *rows]) + "\n  }"


@needs("c++")
def test_cpp(saved):
    text = CPP.replace(
        "INCLUDES", "\n".join(f'#include "{name}.hpp"' for name in NAMES)
    )
    calls = [cpp_call(saved, i, case) for i, case in enumerate(saved.cases)]
    (saved.folder / "calls.cpp").write_text(text.replace("CALLS", "\n".join(calls)))
    flags = (*STRICT, "-std=c++20", "-I.")
    done(saved.folder, "c++", *flags, "calls.cpp", "-o", "cpp", *linked())
    done(saved.folder, "./cpp")


FORTRAN_TYPES = {
    "float32": "real(c_float)",
    "float64": "real(c_double)",
    "int32": "integer(c_int32_t)",
    "int64": "integer(c_int64_t)",
    "bool": "logical(c_bool)",
    "uint8": "integer(c_int8_t)",
}


def fortran_call(saved, i, case):
    """Return a call and its checks as a subroutine of Fortran."""
    about = next(f for _, f in described(saved) if f["name"] == case.function)
    tensors = [*about["inputs"], *about["outputs"]]
    declared, read, compared, passed = [], [], [], []
    if about["samples"]:
        passed.append(f"{case.n}_c_int64_t")
    for k, (tensor, array) in enumerate(
        zip(tensors, (*case.inputs, *case.outputs), strict=True)
    ):
        sizes = ", ".join(map(str, reversed(array.shape)))
        dims = f"({sizes})" if sizes else ""
        kind = FORTRAN_TYPES[tensor["dtype"]]
        declared.append(f"{kind} :: t{k}{dims}")
        read += [
            f'open (newunit=unit, file="{i}_{k}.bin", access="stream", &',
            '  form="unformatted", action="read")',
            f"read (unit) t{k}",
            "close (unit)",
        ]
        if k < len(case.inputs):
            passed.append(f"t{k}")
            continue
        declared.append(f"{kind} :: found{k}{dims}")
        passed.append(f"found{k}")
        every, most = ("any", "maxval") if sizes else ("", "")
        if tensor["dtype"] == "bool":
            apart = f"{every}(found{k} .neqv. t{k})"
        elif tensor["dtype"] in ("float32", "float64"):
            close = {"float32": "2e-5_c_float", "float64": "1e-12_c_double"}
            apart = (
                f".not. ({most}(abs(found{k} - t{k})) <= &\n    "
                f"{close[tensor['dtype']]} * {most}(abs(t{k})))"
            )
        else:
            apart = f"{every}(found{k} /= t{k})"
        compared.append(f'if ({apart}) error stop "{case.function} {k}"')
    status = f"status = {case.function}( &\n    {', '.join(passed)})"
    if case.status:
        compared = []
    rows = [
        f"subroutine call_{i}()",
        *declared,
        "integer(c_int32_t) :: status",
        "integer :: unit",
        *read,
        status,
        f'if (status /= {case.status}) error stop "status of {case.function}"',
        *compared,
        f"end subroutine call_{i}",
    ]
    return "\n  ".join(rows)


@needs("gfortran")
def test_fortran(saved):
    subroutines = [fortran_call(saved, i, case) for i, case in enumerate(saved.cases)]
    rows = ["program calls", *(f"  use {name}_library" for name in NAMES)]
    rows += ["  implicit none"]
    rows += [f"  call call_{i}()" for i in range(len(subroutines))]
    rows += ["contains", *subroutines, "end program calls", ""]
    (saved.folder / "calls.f90").write_text("\n".join(rows))
    modules = [f"{name}.f90" for name in NAMES]
    flags = ("-Wall", "-Werror", "-std=f2018", "-fcheck=all")
    done(saved.folder, "gfortran", *flags, *modules, "calls.f90", "-o", "f", *linked())
    done(saved.folder, "./f")


@needs("gfortran")
def test_fortran_stops_with_the_text_of_an_error(saved):
    (saved.folder / "stops.f90").write_text(
        "program stops\n"
        "  use tide_library\n"
        "  real(c_double) :: x(2, 1), y(4, 1)\n"
        "  x = 0\n"
        "  call tide_check(tide(1_c_int64_t, x, y))\n"
        '  print *, "going on"\n'
        "  call tide_check(tide(0_c_int64_t, x, y))\n"
        "end program stops\n"
    )
    command = ["gfortran", "tide.f90", "stops.f90", "-o", "stops", *linked()]
    done(saved.folder, *command)
    found = run(saved.folder, "./stops")
    assert found.returncode != 0
    assert "going on" in found.stdout
    assert "tide: the number of samples is below 1 or too large" in found.stderr


def compiled_anywhere(folder, name):
    """Compile the interfaces of a library alone, as strictly as can be."""
    for suffix, command in (
        (".c", ["cc", *STRICT, "-std=c99", "-c"]),
        (".cpp", ["c++", *STRICT, "-std=c++20", "-c"]),
    ):
        if shutil.which(command[0]):
            header = {".c": "h", ".cpp": "hpp"}[suffix]
            (folder / f"only{suffix}").write_text(f'#include "{name}.{header}"\n')
            done(folder, *command, f"only{suffix}")
    if shutil.which("gfortran"):
        done(folder, "gfortran", "-Wall", "-Werror", "-std=f2018", "-c", f"{name}.f90")


HARD = (
    *("throw", "explicit", "xor", "errno", "nullptr", "c_ptr", "int32_t", "std"),
    *("v1", "block", "here", "on1", "status", "work", "n", "check_size", "linux"),
    *("_", "Δx", "x.y", "9", "steep", "Steep", "a" * 70, "a" * 71),
)


@pytest.mark.parametrize(
    "names", [HARD[k::3] for k in range(3)], ids=map(str, range(3))
)
def test_names_of_arguments_that_mean_something_elsewhere(tmp_path, names):
    def total(*parts):
        return sum(parts[1:], parts[0])

    x = [randn([2, 3], "float64", k) for k in range(len(names))]
    every = Export(total, *x, names=names, results=["steep"])
    save_library(tmp_path / "steep.so", {"side": every})
    compiled_anywhere(tmp_path, "steep")
    found = load_library(tmp_path / "steep.so").steep_side(*arrays(x))
    np.testing.assert_allclose(found, total(*arrays(x)), rtol=1e-14)


def test_long_names_and_many_arguments(tmp_path):
    def total(*parts):
        return sum(parts[1:], parts[0])

    x = [randn([3], "float64", k) for k in range(30)]
    names = [f"argument_{k}_" + "x" * 28 for k in range(30)]
    name = "l" * 40
    save_library(tmp_path / f"{name}.so", {"k" * 11: Export(total, *x, names=names)})
    compiled_anywhere(tmp_path, name)
    text = (tmp_path / f"{name}.f90").read_text()
    assert max(map(len, text.splitlines())) <= 132


def test_an_argument_may_have_the_name_of_the_function(tmp_path):
    def steep(steep):
        return steep * 2.0

    x = randn([3], "float64")
    save_library(tmp_path / "steep.so", steep, x)
    compiled_anywhere(tmp_path, "steep")


@needs("c++", "gfortran", "cmake", "ctest")
def test_the_examples(tmp_path):
    pytest.importorskip("scipy", reason="the example integrates by scipy")
    found = subprocess.run(
        [sys.executable, EXAMPLES / "run.py", tmp_path],
        env={**os.environ, "QUICK": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert "100% tests passed, 0 tests failed out of 3" in found.stdout
    assert (tmp_path / "ode-fortran.png").stat().st_size > 10_000
