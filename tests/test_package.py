"""The package as users get it: a wheel, pure imports, examples in the docs."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import paddle_chainrules

ROOT = Path(__file__).resolve().parents[1]


def run(*args, **kwargs):
    return subprocess.run(
        args, capture_output=True, text=True, check=True, timeout=600, **kwargs
    ).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)
    )
    return next(out.glob("*.whl"))


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


def test_the_wheel_installs_and_imports_in_a_clean_environment(wheel, tmp_path):
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", str(wheel))
    code = (
        "import sys, paddle, paddle_chainrules as p\n"
        "assert p.__file__.startswith(sys.prefix), p.__file__\n"
        "net = p.FCNet((3, 5, 2))\n"
        "y = net.forward(net.init(0), paddle.ones([4, 3]))\n"
        "print(p.__version__, list(y.shape))"
    )
    out = run(python, "-W", "ignore", "-c", code, cwd=tmp_path)
    assert out == "0.2.0 [4, 2]\n"


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
