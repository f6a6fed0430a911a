"""Julia's own tests: the files as they come go to a Julia that each process starts.

What it has loaded and compiled for one file serves those after it. Most tests compile
more than they run, so that theirs interprets what is not precompiled; what is
``COMPILED`` has another one. A file that takes its Julia down fails, and the next one
gets a new Julia.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass

import pytest

from julia_at_hand import ENVIRONMENT, WHY, environ, julia_version, precompile
from paddle_chainrules import julia

FOLDER = julia.SOURCE / "test"
END = "~~ end of "


def names(group):
    """The names of Julia's test files, of ``"FILES"``, ``"LONG"`` ...; see files.jl."""
    text = (FOLDER / "files.jl").read_text()
    listed = re.search(
        rf"^const {group} =\s+\((.*?)\)$", text, re.DOTALL | re.MULTILINE
    )
    assert listed is not None
    return re.findall(r'"([\w/]+)"', listed.group(1))


@dataclass(frozen=True)
class Outcome:
    """What one file of Julia's tests said.

    Attributes:
        passed: how many of its tests did.
        broken: how many are known to fail.
        skipped: why some of it was skipped, where it was.
        row: its line of Julia's summary.
    """

    passed: int
    broken: int
    skipped: tuple[str, ...]
    row: str


class JuliaLane:
    """A Julia that runs files of tests by their names.

    Args:
        errors: a file for what it writes there.
        options: of Julia's, how it compiles.
    """

    def __init__(self, errors, *options):
        self._process = None
        self._errors, self._options = errors, options

    def test(self, name):
        """The outcome of a file of tests, all of which have passed."""
        return outcome(name, self._asked(f"test {name}"))

    def printed(self, path):
        """What any other file of Julia prints."""
        return self._asked(f"run {path}")

    def _asked(self, request):
        assert ENVIRONMENT is not None, WHY
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        said_before = self._errors.seek(0, 2)
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            lines, line = [], ""
            for line in self._process.stdout:
                if line.startswith(END):
                    break
                lines.append(line)
        except BaseException:  # interrupted: what it still says is of no use
            self.close()
            raise
        output = "".join(lines).removesuffix("\n")
        if line != f"{END}{request} passed\n":
            lives = line.startswith(END)
            how = "" if lives else f"Julia ended with {self._process.wait()}"
            self._errors.seek(said_before)
            errors = self._errors.read()[-5_000:]
            pytest.fail(f"{output[-20_000:]}\n{errors}\n{how}", pytrace=False)
        return output

    def close(self):
        """End Julia; the next file gets a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self):
        precompile()
        program, *rest = ENVIRONMENT.command(FOLDER / "as_asked.jl")
        self._process = subprocess.Popen(
            [program, *self._options, *rest],
            env=environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )


def outcome(name, output):
    """What Julia's summary says, whose columns are those of which there are any."""
    found = re.search(
        rf"^Test Summary: +\|(.*)\n({name}) +\|(.*)$", output, re.MULTILINE
    )
    assert found is not None, output
    counts = dict(zip(found[1].split(), found[3].split(), strict=False))
    skipped = re.findall(r"^[^|\n]+ skipped: ([^|\n]*)\n", output, re.MULTILINE)
    passed, broken = (int(counts.get(kind, 0)) for kind in ("Pass", "Broken"))
    assert passed or skipped, output
    broken -= len(skipped)  # Julia counts @test_skip as broken
    return Outcome(passed, broken, tuple(skipped), f"{name:40}{found[3]}")


def _lane(*options):
    @pytest.fixture(scope="session")
    def lane():
        with tempfile.TemporaryFile("w+") as errors:
            found = JuliaLane(errors, *options)
            yield found
            found.close()

    return lane


# Of this process alone, each started by the first file that is asked for. Julia 1.12's
# interpreter crashes in what Zygote makes of loops.
QUICK = ("--compile=min", "-O0") if julia_version() < (1, 12) else ("-O1",)
own_julia = _lane(*QUICK)
compiling_julia = _lane("-O1")
