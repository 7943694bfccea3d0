"""Python code of documentation pages."""

import dataclasses
import json
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = r"^(?P<indent> *)```{language}\b(?P<info>[^\n]*)\n(?P<code>.*?)^ *```"
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of Python, or a cell of a notebook.

    Attributes:
      code: its text.
      info: the words after ``python``: none of a block that runs; "raises" of one that raises an error; "no-test" and a
        reason of one that cannot run.
      heading: the last heading before it.
      line: its first line in the page; of a cell 1000 times its number.
    """

    code: str
    info: str = ""
    heading: str = ""
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


def blocks(path, language="python"):
    """Return the blocks of a page, in a language as its fences name it."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return [Block(code, line=1000 * number + 1) for number, code in enumerate(codes)]
    text = path.read_text()
    found = []
    for match in re.finditer(_FENCE.format(language=language), text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()]
        heading = (_HEADING.findall(before) or [""])[-1]
        found.append(Block(textwrap.dedent(match["code"]), match["info"].strip(), heading, before.count("\n") + 2))
    return found


def run(block, namespace, folder):
    """Run a block as a file in a folder, from which AutoGraph reads the source."""
    file = folder / f"line_{block.line}.py"
    file.write_text("\n" * (block.line - 1) + block.code)
    exec(compile(file.read_text(), str(file), "exec"), namespace)
