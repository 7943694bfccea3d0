"""The performance page's section on channel blocking of depthwise convolutions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import tables
from .tables import Record

TEXT = """## Channel blocking

A depthwise convolution reads one value and one weight per tap and channel. For all channels that exceeds the L2 cache,
and taps whose rows are a power of two bytes apart compete for the same cache lines. On CPU, depthwise convolutions with
36 taps and 256 channels or more process 32 channels at a time, in a layout that the padding creates
(`xla_cpu/conv/channel_blocking.py`). Filter gradients were one reduction over all images. Now rows of 48 values and
more are reduced one by one (up to 25 taps); other images by blocks of 16 channels (8 from 25 taps on), if that divides
their number. Filter gradients take {gradient} of the time before (median), results {result}. Measured on {machine}.
"""
HEADER = ("convolution", "", "before, ms", "now", "ratio", "to TensorFlow, before", "now")


def section(records: Sequence[Record]) -> str:
    """Return the section, nothing where there are no records."""
    if not records:
        return ""
    medians = {
        what: statistics.median(r["ratios"]["before"] for r in records if r["what"] == what)
        for what in ("result", "gradient by the filter")
    }
    rows = [
        (
            r["form"],
            {"gradient by the filter": "filter gradient"}.get(r["what"], r["what"]),
            f"{1e3 * r['times']['before']['median']:.2f}",
            f"{1e3 * r['times']['tf2jax_lite']['median']:.2f}",
            tables.ratio(r["ratios"]["before"]),
            tables.ratio(r["times"]["before"]["median"] / r["times"]["tensorflow"]["median"]),
            tables.ratio(r["ratios"]["tensorflow"]),
        )
        for r in records
    ]
    text = TEXT.format(
        gradient=tables.ratio(medians["gradient by the filter"]),
        result=tables.ratio(medians["result"]),
        machine=" and ".join(sorted({r["machine"] for r in records})),
    )
    return text + "\n" + tables.table(HEADER, rows)
