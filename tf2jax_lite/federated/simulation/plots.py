"""Loss and accuracy by round, as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.support.errors import InputError


def plot_history(history: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Draw the curves whose names end in ``loss`` or ``accuracy``, one panel each.

    Args:
      history: dicts with ``round`` and scalars by path, as `run_rounds` returns them.
      path: the ``.png``, ``.svg`` or ``.pdf`` to write.

    Raises:
      InputError: there is nothing to draw, the name ends in another format's suffix, or matplotlib is not installed.
      ExportError: the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f"a plot needs matplotlib: pip install 'tf2jax-lite[plot]' ({error})") from error
    names = sorted({name for record in history for name, value in record.items() if _is_number(value)})
    panels = {kind: [n for n in names if n.rsplit("/", 1)[-1].endswith(kind)] for kind in ("loss", "accuracy")}
    drawn = {kind: found for kind, found in panels.items() if found}
    if not drawn:
        raise InputError("there is no loss and no accuracy to draw")
    figure = Figure(figsize=(5 * len(drawn), 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (kind, found) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True):
        for name in found:
            points = [(record["round"], record[name]) for record in history if _is_number(record.get(name))]
            axes.plot(*zip(*points, strict=True), label=name, marker="." if len(points) < 30 else "")
        axes.set(xlabel="round", ylabel=kind)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    content = io.BytesIO()
    path = Path(path)
    try:
        figure.savefig(content, format=path.suffix[1:] or "png")
    except ValueError as error:  # matplotlib lists the formats that it knows
        raise InputError(f"{path}: {error}") from error
    write_file(path, content.getvalue())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
