"""The suite earlier: programs of two states of the package, in turns.

    python -m benchmarks run --suite programs --platform cpu --folder DIR    # in either state
    python -m benchmarks run --suite earlier --folder DIR --earlier OTHER

Both are exported programs, so that calls cost the same beside the program. Programs with the same text are not timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax import export

from .gpu import arguments, compiled_file, folder_of
from .records import Result
from .timing import in_turns, waited


def earlier(options: Any) -> Iterator[Result]:
    """Compare the programs that both folders have.

    Yields:
      Whether they are the ``same``: 1 or 0. Of others, by state (``ours``, ``before``) the cost of compiling, kernels
      and memory; ``times``.
    """
    for path in sorted(folder_of(options).glob("*/ours.bin")):
        name = path.parent.name
        other = options.earlier / name / path.name
        chosen = not options.models or name.split("-")[1] in options.models.split(",")
        if chosen and other.exists():
            same = _text(path) == _text(other)
            yield {"program": name}, {"same": int(same), **({} if same else _timed(path, other, options.budget))}


def _text(path: Path) -> str:
    """Return a program's StableHLO without locations, its functions numbered."""
    text = export.deserialize(bytearray(path.read_bytes())).mlir_module()
    text = re.sub(r"^#loc.*\n|[ ]*loc\(.*", "", text, flags=re.MULTILINE)
    names: dict[str, str] = {}
    return re.sub(r"@[\w.$-]+", lambda found: names.setdefault(found[0], f"@{len(names)}"), text)


def _timed(path: Path, other: Path, budget: float) -> dict[str, Any]:
    values, runs = {}, {}
    for name, who, file in (("tf2jax_lite", "ours", path), ("before", "before", other)):
        compiled, structs, cost = compiled_file(file)
        values[who] = {metric: value for metric, value in cost.items() if metric != "library"}
        runs[name] = waited(compiled, *arguments(structs))
    return {**values, "times": in_turns(runs, budget=budget)}
