"""The package as users get it: a wheel, pure imports, examples in the docs."""

import doctest
import email
import importlib
import pkgutil
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import paddle_chainrules
from julia_at_hand import needs_julia

ROOT = Path(__file__).resolve().parents[1]


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
    out = run(python, "-W", "ignore", "-c", code, cwd=tmp_path)
    assert out == "0.2.0 [4, 2]\n"
    command = (python, "-W", "ignore", "-m", "paddle_chainrules")
    shown = run(*command, "explain", "paddle.nn:Tanh", "--input", "2x3", cwd=tmp_path)
    assert "as a program: 1 operators" in shown

    # The sdist gives the same; all that it needs is there.
    pip(python, "uninstall", "--yes", "paddle-chainrules")
    built_here = ["--no-build-isolation"] if by == "links" else []
    pip(python, "install", "--no-deps", *built_here, str(sdist))
    assert run(python, "-W", "ignore", "-c", code, cwd=tmp_path) == out
    there = next(home.glob("lib/*/site-packages/paddle_chainrules"))
    files = {str(p.relative_to(there)) for p in there.rglob("*.*") if p.is_file()}
    in_wheel = {
        name.removeprefix("paddle_chainrules/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("paddle_chainrules/")
    }
    assert in_wheel <= files


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
new = {m.split('.')[0] for m in set(sys.modules) - before}
assert not new & {'juliacall', 'juliapkg', 'matplotlib', 'sklearn', 'tqdm'}, new
assert 'paddle_chainrules.julia' not in sys.modules
assert paddle.get_default_dtype() == dtype
assert threading.active_count() == threads
assert logging.getLogger().handlers == handlers
"""


def test_importing_starts_nothing_and_imports_no_julia():
    run(sys.executable, "-W", "ignore", "-c", PURITY)


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


def test_the_files_that_the_architecture_names_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|jl))`", text))
    folders = [ROOT, ROOT / "src" / "paddle_chainrules", ROOT / "julia" / "src"]
    rules = ROOT / "src" / "paddle_chainrules" / "paddle_side" / "rules"
    crossing = ROOT / "julia" / "src" / "crossing"
    missing = {
        name
        for name in named
        if not any((f / name).exists() for f in (*folders, rules, crossing))
    }
    assert len(named) > 30
    assert not missing


def test_no_module_is_long():
    modules = [*(ROOT / "src").rglob("*.py"), *(ROOT / "julia" / "src").rglob("*.jl")]
    assert len(modules) > 80
    long = {m.name for m in modules if len(m.read_text().splitlines()) > 400}
    assert not long
