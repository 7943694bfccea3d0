"""The section of docs/performance.md on computations of many steps: `benchmarks.long`."""

from __future__ import annotations

from collections.abc import Sequence

from . import tables
from .tables import Record

TEXT = """## Computations of many steps

XLA puts cheap operations into each of their users. Where a value is used in two loops (a reduction is one of its own),
or read at two places (a slice beside another, a roll), it is computed twice, and what it is made of, used likewise,
four times. JAX written by hand has this, too. A value that took more than some ten steps since what is in memory is
written there if it is used so, and so is what products share with others; what called functions do is looked into
(`lowering/scheduling/materialize.py`, `lowering/scheduling/post_dominators.py`). Wherever all ways from a value meet
in one loop it is left to XLA.

Tracing and compiling is processor time. The rows are measured on {machine}.

"""


def section(records: Sequence[Record]) -> str:
    """Returns the section, empty without records.

    Args:
      records: of the suite long.
    """
    if not records:
        return ""
    rows = [
        (
            r["name"],
            r["what"],
            r["steps"],
            f"{1e3 * r['times']['tf2jax_lite']['median']:.2f}",
            f"{r['ratios']['tensorflow']:.2f}",
            f"{r['ratios']['native']:.3f}",
            f"{r['compile']['ours']:.2f}",
            f"{r['compile']['native']:.2f}",
        )
        for r in records
    ]
    head = ("program", "", "steps", "ours, ms", "to TensorFlow", "to native", "compile, s", "native, s")
    return TEXT.format(machine=" and ".join(sorted({r["machine"] for r in records}))) + tables.table(head, rows)
