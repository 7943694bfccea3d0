"""The performance page's section on convolutions of each channel."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import tables
from .tables import Record

TEXT = """## Channels by blocks

A sum over a window's places reads as many values and weights of each channel; with all channels at once that is more
than a processor keeps nearest, and where a row of channels is a power of two bytes long its places compete for the same
few lines. On CPU convolutions of each channel with 36 places and 256 channels and more go through 32 channels at a
time, in an order that the image gets where it is padded (`xla_cpu/conv/channel_blocking.py`). Gradients by the filter
were one reduction over all images. Now rows of 48 values and more are summed up each by itself (windows of up to 25
places), of other images 16 channels at a time (8 from 25 places on), if that divides them. Gradients by the filter
then take
{gradient} of the time (median), the results {result}. Measured on {machine}.
"""
HEADER = ("convolution", "", "before, ms", "now", "ratio", "to TensorFlow, before", "now")


def section(records: Sequence[Record]) -> str:
    """Returns the section, nothing where there are no records."""
    if not records:
        return ""
    medians = {
        what: statistics.median(r["ratios"]["before"] for r in records if r["what"] == what)
        for what in ("result", "gradient by the filter")
    }
    rows = [
        (
            r["form"],
            r["what"],
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
