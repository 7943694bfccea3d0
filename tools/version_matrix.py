"""Run the tests' core under releases of jax and numpy, in environments.

``python -m tools.version_matrix`` makes the environments (``--environments DIR`` keeps them for the next time), runs
the tests in each, prints a table, and with ``--write`` puts it in docs/installation.md. jax 0.11 and later want Python
3.12: name interpreters with ``--python 3.12=/path/to/python3.12``; those on the PATH are found. What no interpreter is
found for is said to be not tried.
"""

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "installation.md"
BEGIN, END = "<!-- version matrix: python -m tools.version_matrix --write -->", "<!-- end of version matrix -->"
# What a user needs whatever the release: import, convert, from_stablehlo, what jax2tf wrote.
CORE = (
    "tests/pipeline/test_convert.py",
    "tests/stablehlo/test_versions.py",
    "tests/stablehlo/test_jax2tf.py",
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """A Python, and its packages besides the project's own requirements."""

    python: str
    pins: tuple[str, ...]

    @property
    def name(self) -> str:
        return re.sub(r"[^0-9a-z]+", "-", "-".join((self.python, *self.pins)).lower()).strip("-")


ENVIRONMENTS = (
    Environment("3.11", ("jax==0.9.2", "jaxlib==0.9.2")),
    Environment("3.11", ("jax==0.10.*", "jaxlib==0.10.*")),
    Environment("3.11", ("jax==0.10.*", "jaxlib==0.10.*", "numpy==2.0.*")),  # the oldest numpy that is supported
    Environment("3.12", ("jax==0.11.*", "jaxlib==0.11.*")),
    Environment("3.12", ("jax==0.12.*", "jaxlib==0.12.*")),
    Environment("3.13", ("jax==0.12.*", "jaxlib==0.12.*")),
)
TOOLS = ("pytest>=8.3", "hypothesis>=6.100", "scikit-learn>=1.5", "h5py>=3.11", "tf_keras>=2.21")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """An environment's outcome: installed versions, and pytest's closing line.

    Without tests it is the reason why there is none.
    """

    environment: Environment
    versions: dict[str, str]
    summary: str


def interpreter(version: str, given: dict[str, str]) -> str | None:
    """Return a Python of a version that runs, or None."""
    for candidate in (given.get(version), shutil.which(f"python{version}"), sys.executable):
        if candidate is None:
            continue
        found = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if found.returncode == 0 and found.stdout.strip() == version:
            return candidate
    return None


def prepare(environment: Environment, python: str, directory: Path) -> Path:
    """Return the Python of an environment, which is made if it is not there yet."""
    made = directory / environment.name / "bin" / "python"
    done = directory / environment.name / "installed"
    if not done.exists():
        subprocess.run([python, "-m", "venv", "--clear", str(directory / environment.name)], check=True)
        # The package's own requirements come with it; the sources that are tested are this checkout's.
        subprocess.run([made, "-m", "pip", "install", "-q", *environment.pins, *TOOLS, str(ROOT)], check=True)
        subprocess.run([made, "-m", "pip", "uninstall", "-q", "-y", "tf2jax-lite"], check=True)
        done.touch()
    return made


def run(environment: Environment, python: Path) -> Outcome:
    """Run the core of the tests."""
    names = ("jax", "jaxlib", "numpy", "tensorflow")
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    versions = json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)
    command = [python, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *CORE]  # the slow ones, too
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(line, flush=True)
    return Outcome(
        environment, versions, re.sub(r"(, \d+ warnings?)? in [0-9.]+s.*", "", lines[-1]) if lines else "did not start"
    )


def table(outcomes: list[Outcome]) -> str:
    """Return outcomes as a Markdown table."""
    lines = ["| Python | jax | jaxlib | numpy | TensorFlow | core of the tests |", "|---|---|---|---|---|---|"]
    for outcome in outcomes:
        found = [outcome.versions.get(name, "") for name in ("jax", "jaxlib", "numpy", "tensorflow")]
        if not outcome.versions:
            found[0] = " ".join(outcome.environment.pins)
        lines.append(f"| {outcome.environment.python} | {' | '.join(found)} | {outcome.summary} |")
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """Return a page whose generated section holds a text."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:start]}\n\n{text}\n\n{page[end:]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.version_matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, help="a directory that keeps the environments")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH", help="an interpreter")
    parser.add_argument("--only", help="environments whose name holds this text")
    parser.add_argument("--write", action="store_true", help="put the table in docs/installation.md")
    options = parser.parse_args()
    given = dict(entry.split("=", 1) for entry in options.python)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.environments or Path(scratch)
        for environment in ENVIRONMENTS:
            if options.only and options.only not in environment.name:
                continue
            python = interpreter(environment.python, given)
            if python is None:
                outcomes.append(Outcome(environment, {}, f"not tried: no Python {environment.python}"))
                continue
            outcomes.append(run(environment, prepare(environment, python, directory.resolve())))
            print(table(outcomes[-1:]).splitlines()[-1], flush=True)
    print(table(outcomes))
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), table(outcomes)))
    sys.exit(any("passed" not in o.summary or "failed" in o.summary or "error" in o.summary for o in outcomes))


if __name__ == "__main__":
    main()
