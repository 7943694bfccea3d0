"""Records of a training, as JSON lines and as a plot."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from tf2jax_lite.federated.simulation.records import metric_arrays

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 220, 70, 16, 28, 34
_COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096", "#b7791f", "#2c7a7b")
_NAMES_PER_ROW = 4


def plain(metrics: Any) -> dict[str, Any]:
    """Return nested metrics as one flat dict for JSON, names joined by ``/``.

    Values are numbers and lists. Values that are not finite become None: JSON has no NaN.
    """
    return {path: _finite(array.tolist()) for path, array in metric_arrays(jax.device_get(metrics)).items()}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class History:
    """The records of a training, in order.

    Attributes:
      unit: of a record, "epoch" or "round".
      records: flat dicts of numbers, each with the unit's number from 1 (0: before training).
    """

    unit: str
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, number: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Add a record and return it."""
        self.records.append({self.unit: number, **plain(metrics)})
        return self.records[-1]

    def jsonl(self) -> bytes:
        """Return a line of JSON for each record."""
        return "".join(json.dumps(record, sort_keys=True) + "\n" for record in self.records).encode()

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Return for each name its numbers, each with the number of its record."""
        found: dict[str, list[tuple[float, float]]] = {}
        for record in self.records:
            for name, value in record.items():
                if name != self.unit and isinstance(value, (int, float)) and not isinstance(value, bool):
                    found.setdefault(name, []).append((record[self.unit], value))
        return found

    def svg(self) -> bytes:
        """Return plots of all losses, and of all accuracies, as an SVG file."""
        curves = self.curves()
        losses = {n: c for n, c in curves.items() if n.rsplit("/", 1)[-1] == "loss"}
        shares = {n: c for n, c in curves.items() if "accuracy" in n.rsplit("/", 1)[-1]}
        panels = [p for p in (("loss", losses), ("accuracy", shares)) if p[1]]
        total = max(len(panels), 1) * _HEIGHT
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {total}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{total}" fill="white"/>',
        ]
        for i, (title, lines) in enumerate(panels):
            parts.append(f'<g transform="translate(0 {i * _HEIGHT})">{_panel(title, lines, self.unit)}</g>')
        return ("".join(parts) + "</svg>\n").encode()

    def _repr_html_(self) -> str:
        """Return the plots for a notebook."""
        return f'<div style="max-width: {_WIDTH}px">{self.svg().decode()}</div>'


def _panel(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    xs = [x for line in lines.values() for x, _ in line]
    ys = [y for line in lines.values() for _, y in line]
    x0, x1 = min(xs), max(max(xs), min(xs) + 1)
    y0, y1 = min(ys), max(ys)
    if y1 - y0 <= 1e-12 * max(abs(y0), abs(y1), 1):
        half = 0.5 * max(abs(y0), 1)
        y0, y1 = y0 - half, y1 + half

    def at(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * (x - x0) / (x1 - x0), _TOP + height * (y1 - y) / (y1 - y0)

    parts = []
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        left, height = at(x0, y)
        parts.append(f'<path d="M{left:.1f} {height:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for i, (name, line) in enumerate(lines.items()):
        color = _COLORS[i % len(_COLORS)]
        points = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        row, column = divmod(i, _NAMES_PER_ROW)
        position = f'x="{_LEFT + 160 * column}" y="{16 + 14 * row}"'
        parts.append(f'<text {position} fill="{color}">{html.escape(name)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}">{unit} {x0:g}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{x1:g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{title}</text>')
    return "".join(parts)
