"""Charts as SVG: an error behind each node, and bars."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .findings import NodeError

__all__ = ["bars", "error_chart", "escaped"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 260, 64, 28
_LOWEST = -10  # errors below 1e-10 are drawn there


def error_chart(nodes: Sequence[NodeError], tolerance: float) -> str:
    """Returns a scatter of errors (logarithmic) by position in topological order; suspects are marked."""
    if not nodes:
        return ""
    top = max(1, max(math.ceil(_log(n.error)) for n in nodes))
    top = min(top, 12)
    wide = _WIDTH - _LEFT - 12
    high = _HEIGHT - _BOTTOM - 10

    def x(order: int) -> float:
        return _LEFT + wide * order / max(len(nodes) - 1, 1)

    def y(error: float) -> float:
        return 10 + high * (top - min(_log(error), top)) / (top - _LOWEST)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="relative error by node">']
    for power in range(_LOWEST, top + 1, 2):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>')
    at = y(tolerance)
    parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
    ordered = sorted(nodes, key=lambda n: n.order)
    points = " ".join(f"{x(n.order):.1f},{y(n.error):.1f}" for n in ordered)
    parts.append(f'<polyline class="line" points="{points}"/>')
    for node in ordered:
        kind, radius = ("bad", 6) if node.suspect else ("dot", 2.5)
        title = escaped(f"{node.path} ({node.op}): error {node.error:.3g}, of its inputs {node.input_error:.3g}")
        parts.append(
            f'<circle class="{kind}" cx="{x(node.order):.1f}" cy="{y(node.error):.1f}" r="{radius}">'
            f"<title>{title}</title></circle>"
        )
    caption = f"{len(nodes)} nodes in topological order"
    parts.append(f'<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{caption}</text>')
    return "".join([*parts, "</svg>"])


def bars(values: Mapping[str, float], texts: Mapping[str, str], most: int = 30) -> str:
    """Returns horizontal bars with a label and a text each; the longest first ones, the rest summed up in words."""
    shown = list(values.items())[:most]
    largest = max((v for _, v in shown), default=0.0) or 1.0
    height = 20 * len(shown) + 4
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for row, (name, value) in enumerate(shown):
        top = 20 * row + 2
        length = max(1.0, 560 * value / largest)
        parts.append(f'<text x="240" y="{top + 13}" text-anchor="end">{escaped(name)}</text>')
        parts.append(f'<rect class="bar" x="250" y="{top}" width="{length:.1f}" height="16"/>')
        parts.append(f'<text x="{258 + length:.0f}" y="{top + 13}">{escaped(texts[name])}</text>')
    parts.append("</svg>")
    left = len(values) - len(shown)
    return "".join(parts) + (f"<p>and {left} more</p>" if left else "")


def escaped(value: Any) -> str:
    """Returns a value as text of a page; what comes out of a model may hold anything."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape("".join(c for c in text if c.isprintable() or c in "\n\t"))


def _log(error: float) -> float:
    return max(math.log10(error), _LOWEST) if error > 0 else _LOWEST
