"""The section of docs/developer/performance.md on long computations."""

from __future__ import annotations

from collections.abc import Sequence

from . import tables
from .tables import Record

TEXT = """## Computations of many steps

XLA fuses cheap operations into each of their users. A value with uses in two loops (a reduction is one), or read at two
indices (two slices, a roll), is computed twice, and its operands four times. Native JAX has this problem, too. A value
with such uses is materialized if it is more than about ten steps away from materialized values, and so are operands
that products share with other ops; callees are analyzed, too (`lowering/planning/materialize.py`,
`lowering/planning/post_dominators.py`). A value whose uses all re-converge in one loop is left to XLA.

Tracing and compiling is CPU time. The rows are measured on {machine}.

"""


def section(records: Sequence[Record]) -> str:
    """Return the section, empty without records.

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
