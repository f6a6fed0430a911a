"""The package as users get it: a wheel, pure imports, examples in the docs."""

import ast
import doctest
import email
import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import house
import paddle_chainrules
from julia_at_hand import needs_julia
from named_files import ROOT, defined_in, named


def run(*args, **kwargs):
    return subprocess.run(
        args, capture_output=True, text=True, check=True, timeout=600, **kwargs
    ).stdout


def empty_environment(folder):
    """A new environment, and its Python."""
    home = folder / "env"
    venv.create(home)
    return home, home / "bin" / "python"


def link(requirement, there):
    """Have what a requirement needs in another environment too, by links to this one's.

    That saves a download of 200 MB; pip finds there what it would have installed.
    """
    asked = Requirement(requirement)
    if asked.marker is not None and not asked.marker.evaluate({"extra": ""}):
        return
    found = distribution(asked.name)
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        if not (there / top).exists():
            (there / top).symlink_to(found.locate_file(top))
    for more in found.requires or ():
        link(more, there)


def pip(python, command, *args):
    """Have this environment's pip serve another one; what is imported is compiled."""
    options = ["--no-compile"] if command == "install" else []
    own = (sys.executable, "-m", "pip", "--python", str(python))
    run(*own, command, "--quiet", *options, *args)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the wheel and the sdist that it was built from."""
    out = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)
    )
    return out


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(built):
    return next(built.glob("*.tar.gz"))


def test_the_wheel_holds_what_users_need(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "paddle_chainrules/py.typed",
        "paddle_chainrules/libraries/interfaces/arguments.jl",
        "paddle_chainrules/juliapkg.json",
        "paddle_chainrules/_julia/Project.toml",
        "paddle_chainrules/_julia/environment.jl",
        "paddle_chainrules/_julia/src/PaddleChainRules.jl",
        "paddle_chainrules/_julia/ext/PaddleChainRulesCUDAExt.jl",
    ):
        assert needed in names
    assert not [
        n for n in names if "Manifest" in n or n.startswith(("tests", "julia/"))
    ]


@pytest.mark.parametrize("by", ["links", pytest.param("index", marks=pytest.mark.slow)])
def test_the_wheel_installs_and_imports_in_a_clean_environment(
    wheel, sdist, tmp_path, by
):
    home, python = empty_environment(tmp_path)
    if by == "links":
        with zipfile.ZipFile(wheel) as files:
            (name,) = (n for n in files.namelist() if n.endswith("/METADATA"))
            metadata = email.message_from_bytes(files.read(name))
        for requirement in (*metadata.get_all("Requires-Dist"), "hatchling"):
            link(requirement, next(home.glob("lib/*/site-packages")))
        pip(python, "install", "--no-index", str(wheel))
    else:
        pip(python, "install", str(wheel))
    code = (
        "import sys, paddle, paddle_chainrules as p\n"
        "assert p.__file__.startswith(sys.prefix), p.__file__\n"
        "net = p.FCNet((3, 5, 2))\n"
        "y = net.forward(net.init(0), paddle.ones([4, 3]))\n"
        "print(p.__version__, list(y.shape))"
    )
    out = run(python, "-E", "-W", "ignore", "-c", code, cwd=tmp_path)
    assert out == "0.2.0 [4, 2]\n"
    command = (python, "-E", "-W", "ignore", "-m", "paddle_chainrules")
    shown = run(*command, "explain", "paddle.nn:Tanh", "--input", "2x3", cwd=tmp_path)
    assert "as a program: 1 operators" in shown

    # The sdist gives the same; all that it needs is there.
    pip(python, "uninstall", "--yes", "paddle-chainrules")
    built_here = ["--no-build-isolation"] if by == "links" else []
    pip(python, "install", "--no-deps", *built_here, str(sdist))
    assert run(python, "-E", "-W", "ignore", "-c", code, cwd=tmp_path) == out
    there = next(home.glob("lib/*/site-packages/paddle_chainrules"))
    files = {str(p.relative_to(there)) for p in there.rglob("*.*") if p.is_file()}
    in_wheel = {
        name.removeprefix("paddle_chainrules/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("paddle_chainrules/")
    }
    assert in_wheel <= files


INSTALLS = sorted(
    {
        line.split("#")[0].strip()
        for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
        for block in re.findall(
            r"```(?:sh|bash)\n(.*?)```", page.read_text(), re.DOTALL
        )
        for line in block.splitlines()
        if line.startswith("pip install")
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("line", INSTALLS)
def test_each_line_that_installs_finds_what_it_names(line, tmp_path):
    """In an empty environment, from a checkout."""
    _, python = empty_environment(tmp_path)
    _, install, *what = shlex.split(line)
    report = tmp_path / "report.json"
    options = ["--dry-run", "--report", str(report)]
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        install,
        *options,
        *what,
        cwd=ROOT,
    )
    found = {
        item["metadata"]["name"] for item in json.loads(report.read_text())["install"]
    }
    assert {"paddle-chainrules", "paddlepaddle", "llvmlite"} <= found
    if "libraries" in line:
        assert {"DeepXDE", "paddlesci"} <= found
    if "julia" in line:
        assert "juliacall" in found


@pytest.mark.slow
@needs_julia
def test_julia_loads_the_package_from_the_wheel(wheel, tmp_path):
    _, python = empty_environment(tmp_path)
    pip(python, "install", str(wheel))
    out = run(python, "-W", "ignore", "-m", "paddle_chainrules", "doctor", cwd=tmp_path)
    assert "Julia starts Python, A net: tensors cross" in out
    assert "Python starts Julia: juliacall is missing; pip install" in out


def test_the_metadata_is_what_an_index_asks_for(built):
    files = [str(path) for path in built.iterdir()]
    assert len(files) == 2
    out = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert out.count("PASSED") == 2


PURITY = """
import sys, threading, logging
import paddle
dtype, threads = paddle.get_default_dtype(), threading.active_count()
handlers, before = logging.getLogger().handlers[:], set(sys.modules)
import paddle_chainrules, paddle_chainrules.bridge
from paddle_chainrules import *
new = {m.split('.')[0] for m in set(sys.modules) - before}
assert not new & {'juliacall', 'juliapkg', 'matplotlib', 'sklearn', 'tqdm'}, new
assert 'paddle_chainrules.julia' not in sys.modules
assert paddle.get_default_dtype() == dtype
assert threading.active_count() == threads
assert logging.getLogger().handlers == handlers
"""


def test_importing_starts_nothing_and_imports_no_julia():
    run(sys.executable, "-W", "ignore", "-c", PURITY)


QUIET = """
import warnings
warnings.filterwarnings("ignore", "of the caller")
before = [*warnings.filters]
import paddle_chainrules
assert [f for f in warnings.filters if f in before] == before
assert not [f for f in warnings.filters if f not in before and "ccache" in str(f)]
"""


@pytest.mark.parametrize("warn", ["default", "error"])
def test_importing_prints_nothing_and_leaves_the_filters_of_warnings(tmp_path, warn):
    """Where there is no ccache, of which Paddle warns."""
    for tool in ("cat", "grep", "which"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    env = {**os.environ, "PATH": str(tmp_path)}
    code = [sys.executable, "-W", f"{warn}:No ccache", "-c", QUIET]
    done = subprocess.run(code, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


AT_NEED = """
import os, sys
import paddle
before = set(sys.modules)

def new():
    return set(sys.modules) - before

os.environ["PADDLE_CHAINRULES_LOOPS"] = "never"
try:
    import paddle_chainrules
except ValueError as error:
    assert "PADDLE_CHAINRULES_LOOPS='never'; set it to 'off'" in str(error)
else:
    raise AssertionError("the environment is not read with the import")
del os.environ["PADDLE_CHAINRULES_LOOPS"]
import paddle_chainrules
ours = {m for m in new() if m.startswith("paddle_chainrules.")}
early = {"paddle_side.process.first_import", "paddle_side.process.signals"}
early |= {"paddle_side.locks"}
early |= {name.rpartition(".")[0] for name in early} | {"paddle_side", "settings"}
assert ours == {f"paddle_chainrules.{m}" for m in early}, ours
heavy = {"llvmlite", "scipy", "juliacall", "deepxde", "ppsci", "optree", "safetensors"}
assert not heavy & {m.split(".")[0] for m in new()}, new()
assert not [m for m in new() if m.startswith("paddle.")], new()

for name in paddle_chainrules.__all__:
    getattr(paddle_chainrules, name)
step = paddle_chainrules.jit(paddle_chainrules.value_and_grad(lambda x: (x * x).sum()))
value, slope = step(paddle.to_tensor([3.0, 4.0]))
assert slope.tolist() == [6.0, 8.0]
net, params, _ = paddle_chainrules.stateless(paddle.nn.Linear(3, 2))
net.pullback(params, paddle.ones([4, 3]))[1](paddle.ones([4, 2]))
heavy -= {"optree"}
assert not heavy & {m.split(".")[0] for m in new()}, new()
assert not [m for m in new() if m.startswith("paddle.jit.sot")], new()
"""


def test_what_is_heavy_is_imported_where_it_is_needed():
    run(sys.executable, "-W", "ignore", "-c", AT_NEED)


def test_names_that_are_loaded_at_their_first_use_are_those_that_editors_see():
    source = ast.parse(Path(paddle_chainrules.__file__).read_text())
    (block,) = (
        node
        for node in source.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    shown = {alias.name: node.module for node in block.body for alias in node.names}
    assert shown.pop("optimizers") is None
    assert shown == paddle_chainrules._HOMES
    assert {*shown, "optimizers"} == {*paddle_chainrules.__all__}
    for name, home in shown.items():
        module = importlib.import_module(f"paddle_chainrules.{home}")
        assert getattr(paddle_chainrules, name) is getattr(module, name)
    assert paddle_chainrules.optimizers is sys.modules["paddle_chainrules.optimizers"]
    assert {*paddle_chainrules.__all__, "__version__"} <= {*dir(paddle_chainrules)}
    with pytest.raises(AttributeError, match="'paddle_chainrules' has no attribute"):
        paddle_chainrules.gradient  # noqa: B018


WITHIN = """
import sys
import paddle
from paddle_chainrules import jit
from paddle_chainrules.paddle_side.interception import _stand_ins

def f(x):
    import paddle_chainrules as p
    for name in p.__all__:
        getattr(p, name)
    y, back = p.vjp(lambda x: x.clone() ** 3, x)
    return p.vmap(p.grad(lambda x: (x * x.detach()).sum()))(x) + back(y)[0]

x = paddle.to_tensor([[0.5, 1.5, 2.0], [3.0, 0.25, 1.0]])
f = jit(f, strict=True)
for _ in range(2):
    assert bool(((f(x) - (x + 3 * x**5)).abs() < 1e-3).all())

passing = {id(stand_in.call) for stand_in in _stand_ins().values()}
assert len(passing) > 1000
from paddle_chainrules.programs.operators.table import TABLE
assert not [name for name, entry in TABLE.items() if id(entry.run) in passing]
for label, module in [*sys.modules.items()]:
    if label.startswith("paddle_chainrules."):
        kept = [name for name, value in vars(module).items() if id(value) in passing]
        assert not kept, (label, kept)
"""


def test_names_may_be_used_first_within_what_is_captured():
    run(sys.executable, "-W", "ignore", "-c", WITHIN)


BY_BRIDGE = """
import paddle
from paddle_chainrules.bridge import Packed
from paddle_chainrules.paddle_side.patching import argument_kinds

x = paddle.to_tensor([[-1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])
packed = Packed(x, paddle.to_tensor([0, 1, 3]))
relu = paddle.nn.functional.relu
assert relu(packed).values.tolist() == [[0, 2], [3, 0], [5, 6]]

class Kind:
    pass

@argument_kinds.handles_kind(Kind, paddle.flip)
def _(x, axis):
    return axis

forward = paddle.nn.LSTM.forward
argument_kinds.install_kinds()
assert paddle.nn.LSTM.forward is forward
assert paddle.flip(Kind(), 3) == 3
assert relu(packed).values.tolist() == [[0, 2], [3, 0], [5, 6]]
"""


def test_kinds_of_arguments_that_come_later_join_those_in_place():
    run(sys.executable, "-W", "ignore", "-c", BY_BRIDGE)


@pytest.mark.parametrize(
    "name",
    [
        module.name
        for module in pkgutil.walk_packages(
            paddle_chainrules.__path__, "paddle_chainrules."
        )
    ],
)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_everything_public_has_a_docstring():
    for name in paddle_chainrules.__all__:
        assert getattr(paddle_chainrules, name).__doc__, name


def test_versions_agree():
    project = (ROOT / "julia" / "Project.toml").read_text()
    assert f'version = "{paddle_chainrules.__version__}"' in project
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {paddle_chainrules.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {paddle_chainrules.__version__}" in changelog


PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(title):
    """The lines of a section of the page on the architecture."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def items(text, start):
    """Items of a list, each with the lines that go on with it."""
    found = []
    for line in text.splitlines():
        if re.match(start, line):
            found.append(line)
        elif found and line.startswith(" "):
            found[-1] += f"\n{line}"
    return found


def not_there(text):
    """Files that are not there, and names that are not in the file before them."""
    found = [*named(text)]
    missing = [file for file, there, _ in found if not there]
    return missing + [
        f"{name} in {file}"
        for file, there, names in found
        for name in names
        if not any(path.is_file() and name in defined_in(path) for path in there)
    ]


def test_the_files_that_the_architecture_names_are_there():
    found = [*named(PAGE)]
    assert len(found) > 80
    assert not [file for file, there, _ in found if not there]


def test_the_table_of_places_names_files_and_what_is_in_them():
    rows = [r for r in section("Where is ...?").splitlines() if r.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        place = row.split(" | ")[1]
        assert [*named(place)], row
        assert not not_there(place), row


def test_every_function_has_a_name():
    assert not house.unnamed(house.PACKAGE)


@pytest.mark.parametrize("title", ["The path of one call", "The path of `jit`"])
def test_stations_of_a_call_are_files_and_what_is_in_them(title):
    path = section(title)
    stations = items(path, r"\d\. ")
    assert 4 <= len(stations) <= 6
    for number, station in enumerate(stations, 1):
        begin = rf"{number}\. `[\w/]+\.py`, `[\w.]+`: "
        assert re.match(begin, station), station
    assert not not_there(path)


def test_the_page_on_the_architecture_is_short():
    assert len(PAGE.splitlines()) < 220


def test_the_glossary_names_files_and_what_is_in_them():
    rows = [r for r in section("Glossary").splitlines() if r.startswith("| ")][1:]
    assert 0 < len(rows) <= 12
    for row in rows:
        assert [*named(row.split(" | ")[2])], row
    assert not not_there(section("Glossary"))
