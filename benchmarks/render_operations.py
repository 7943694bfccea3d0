"""The section of docs/developer/performance.md on single operations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import tables
from .tables import Record

_SLOW = 1.2  # relative to TensorFlow, to be named in the text

TEXT = """## Single operations

Converted and jitted, compared with `tf.function`; gradients are those of the sum of squared results. The median of
{count} calls takes {call} of TensorFlow's time, of {gradients} gradients {gradient}.

These operations are slow in native JAX on CPU, and faster here:

- reductions over leading axes with long rows: by rows, 16 at a time, instead of by columns (`xla_cpu/reductions.py`);
- `argmax`: the maximum first, then its first index;
- image resizing: gathers the few pixels with a weight, in gradients, too, instead of a product with a mostly zero
matrix
  (`xla_cpu/constant_dot.py`);
- grouped convolutions (`xla_cpu/conv/grouped_as_depthwise.py`, `xla_cpu/conv/grouped.py`).

Sequential loops became few steps: non-max suppression by class (`ops/image/_greedy_nms.py`), the swaps of a shuffle
(pointer jumping), and the n-th smallest element (radix select, `ops/arrays/_radix_select.py`).{slow}
"""


def section(records: Sequence[Record]) -> str:
    """Return the section, empty without records.

    Args:
      records: of the suite operations.
    """
    if not records:
        return ""
    ratio = {(r["name"], r["what"]): r["ratios"]["tensorflow"] for r in records}
    each = {what: [value for (_, other), value in ratio.items() if other == what] for what in ("call", "gradient")}
    slow = sorted(((value, *key) for key, value in ratio.items() if value > _SLOW), reverse=True)
    named = ", ".join(f"{name}{' (gradient)' if what == 'gradient' else ''} {value:.1f}" for value, name, what in slow)
    text = TEXT.format(
        count=len(each["call"]),
        call=f"{statistics.median(each['call']):.2f}" if each["call"] else "",
        gradients=len(each["gradient"]),
        gradient=f"{statistics.median(each['gradient']):.2f}" if each["gradient"] else "",
        slow=f" More than {_SLOW} times TensorFlow's:\n{named}." if named else "",
    )
    names = list(dict.fromkeys(r["name"] for r in records))
    found = {(r["name"], r["what"]): r for r in records}
    rows = [(name, *_cells(found.get((name, "call"))), *_cells(found.get((name, "gradient")))) for name in names]
    return text + "\n" + tables.table(("operation", "ours, ms", "to TensorFlow", "gradient, ms", "to TensorFlow"), rows)


def _cells(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    return f"{1e3 * record['times']['tf2jax_lite']['median']:.2f}", f"{record['ratios']['tensorflow']:.2f}"
