"""Code of documentation pages."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = r"^(?P<indent> *)```(?P<language>{language})\b(?P<info>[^\n]*)\n(?P<code>.*?)^ *```"
_HEADING = re.compile(r"^(?:\((\w+)\)=\n)?#+ (.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, or a cell of a notebook.

    Attributes:
      info: the words after the language: none of a block that runs; "raises" of one that raises an error; "no-test" and
        a reason of one that cannot run.
      line: its first line in the page; of a cell 1000 times its number.
    """

    code: str
    language: str = "python"
    info: str = ""
    heading: str = ""
    label: str = ""
    line: int = 0


def pages():
    """Return the pages of docs/ by their path without suffix (``faq``)."""
    found = [path for suffix in ("*.md", "*.ipynb") for path in DOCS.rglob(suffix)]
    hidden = ("_build", "generated", "jupyter_execute", ".ipynb_checkpoints")
    return {
        str(path.relative_to(DOCS).with_suffix("")): path
        for path in sorted(found)
        if not any(part in hidden for part in path.parts)
    }


def links(name):
    """Return the pages to which a page, or README, links, without suffix."""
    path = ROOT / "README.md" if name == "README" else pages()[name]
    text = path.read_text() if path.suffix == ".md" else ""
    found = re.findall(r"\]\(([^)#\s]+)\.(?:md|ipynb)[^)]*\)|^:link: (\S+)$", text, re.MULTILINE)
    targets = [os.path.normpath(path.parent / (first or second)) for first, second in found]
    return {os.path.relpath(target, DOCS) for target in targets}


def blocks(path, language="python"):
    """Return the blocks of a page, in languages as of fences (``python|sh``)."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return [Block(code, line=1000 * number + 1) for number, code in enumerate(codes)]
    text = path.read_text()
    found = []
    for match in re.finditer(_FENCE.format(language=language), text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()]
        label, heading = (_HEADING.findall(before) or [("", "")])[-1]
        code, line = textwrap.dedent(match["code"]), before.count("\n") + 2
        found.append(Block(code, match["language"], match["info"].strip(), heading, label, line))
    return found


def run(block, namespace, folder):
    """Run a block in a folder; Python as a file, from which AutoGraph reads it."""
    if block.language == "sh":
        print(shell(block.code, folder))
        return
    file = folder / f"line_{block.line}.py"
    file.write_text("\n" * (block.line - 1) + block.code)
    exec(compile(file.read_text(), str(file), "exec"), namespace)


def shell(code, folder):
    """Return the output of commands, with this checkout and eight CPU devices."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = ["bash", "-e", "-o", "pipefail", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{code}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout
