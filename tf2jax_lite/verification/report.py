"""The verdict as one self-contained HTML page, with charts as inline SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.support.errors import ExportError

from .compare import TOLERANCE, OutputComparison
from .findings import Bisection, NodeError, Suspect
from .results import SignatureComparison, Verification

__all__ = ["html_report", "write_report"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 260, 64, 28
_LOWEST = -10  # errors below 1e-10 are drawn there

_STYLE = """
:root { color-scheme: light dark; --fg: #1c1e21; --bg: #fff; --soft: #6b7280; --line: #d9dce1; --ok: #15803d;
  --bad: #c2261d; --bar: #4f7cc9; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e7e9; --bg: #16181c; --soft: #9aa1ab; --line: #363a41;
  --ok: #4ade80; --bad: #f87171; --bar: #6f9be8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 1040px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td.n { text-align: right; }
.ok { color: var(--ok); } .bad { color: var(--bad); } .soft { color: var(--soft); }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
.line { fill: none; stroke: var(--line); } .dot, .bar { fill: var(--bar); } circle.bad { fill: var(--bad); }
"""


def write_report(result: Verification, path: Path) -> None:
    """Write the page.

    Raises:
      ExportError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, html_report(result).encode("utf-8", "replace"))
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error}") from error


def html_report(result: Verification) -> str:
    """Return the page."""
    verdict = "agrees with TensorFlow" if result.ok else "differs from TensorFlow"
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{_escaped(result.model)}: {verdict}</title><style>{_STYLE}</style></head><body>",
        f'<h1><code>{_escaped(result.model)}</code> <span class="{_class(result.ok)}">{verdict}</span></h1>',
    ]
    if result.artifact:
        parts.append(f"<p>With the artifact <code>{_escaped(result.artifact)}</code>.</p>")
    if result.repro:
        parts.append(f"<p>Reproduction: <code>{_escaped(result.repro)}</code></p>")
    for signature in result.signatures:
        parts += _signature(signature)
    return "".join([*parts, "</body></html>\n"])


def _signature(result: SignatureComparison) -> Iterable[str]:
    word = "agrees" if result.ok else "differs"
    yield f'<h2>{_escaped(result.signature)} <span class="{_class(result.ok)}">{word}</span></h2>'
    if result.error:
        yield f'<p class="bad"><code>{_escaped(result.error)}</code></p>'
    for note in result.notes:
        yield f'<p class="soft">{_escaped(note)}</p>'
    if result.outputs:
        yield f"<h3>Outputs, the worst of {len(result.cases)} call(s)</h3>"
        yield _table(
            ["", "name", "against", "dtype", "shape", "max abs", "max rel", "ulp", "NaN", "inf", "verdict"],
            [_output(o) for o in result.outputs],
        )
    if result.bisection is not None:
        yield from _bisection(result.bisection)
    if result.seconds:
        yield "<h3>Time of a call (median)</h3>"
        texts = {name: f"{1e3 * value:.3g} ms" for name, value in result.seconds.items()}
        yield _bars(result.seconds, texts)
    if result.ops:
        yield "<h3>Ops</h3>"
        yield _bars({k: float(v) for k, v in result.ops.items()}, {k: str(v) for k, v in result.ops.items()})


def _output(output: OutputComparison) -> list[str]:
    verdict, remarks = output.verdict, _escaped(output.remarks)
    if output.positions:
        verdict += " at " + ", ".join(map(str, map(list, output.positions)))
    return [
        output.kind,
        f"<code>{_escaped(output.name)}</code>",
        output.against,
        _escaped(output.dtype),
        str(output.shape),
        f"{output.max_abs_error:.3g}",
        f"{output.max_rel_error:.3g}",
        "" if output.max_ulp is None else str(output.max_ulp),
        f"{output.nan[0]} / {output.nan[1]}",
        f"{output.infinite[0]} / {output.infinite[1]}",
        f'<span class="{_class(output.ok)}">{_escaped(verdict)}</span> <span class="soft">{remarks}</span>',
    ]


def _bisection(found: Bisection) -> Iterable[str]:
    yield f"<h3>Node by node</h3><p>{_escaped(found.summary)} <span class='soft'>({_escaped(found.inputs)})</span></p>"
    yield _error_chart(found.nodes, TOLERANCE["float32"])
    yield '<p class="soft">Relative error behind each node, each side on its own values; dashed: tolerance.</p>'
    for suspect in found.suspects:
        yield from _suspect(suspect)
    if found.not_run:
        yield f'<p class="soft">{len(found.not_run)} node(s) were not run in TensorFlow by themselves.</p>'


def _suspect(suspect: Suspect) -> Iterable[str]:
    own = "unknown" if suspect.own_error is None else f"{suspect.own_error:.3g}"
    yield f'<h3 class="bad"><code>{_escaped(suspect.path)}</code> ({_escaped(suspect.op)})</h3><p>'
    yield f"error {suspect.error:.3g}; of its inputs {suspect.input_error:.3g}; on TensorFlow's inputs {own}"
    if suspect.iteration:
        yield f"; iteration {suspect.iteration}"
    yield f"<br/>function <code>{_escaped(suspect.function)}</code>"
    if suspect.location:
        yield f"; made at <code>{_escaped(suspect.location)}</code>"
    if suspect.problem:
        yield f'<br/><code class="bad">{_escaped(suspect.problem)}</code>'
    yield "</p>"
    if suspect.attributes:
        attributes = ", ".join(f"{k}={v}" for k, v in suspect.attributes.items())
        yield f"<p><code>{_escaped(attributes)}</code></p>"
    rows = [
        [f"<code>{_escaped(i['tensor'])}</code>", *(_escaped(i.get(k, "")) for k in _INPUT[1:])] for i in suspect.inputs
    ]
    yield _table(["input", *_INPUT[1:]], rows)


_INPUT = ("tensor", "dtype", "shape", "min", "max", "nan", "inf")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{h}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _class(ok: bool) -> str:
    return "ok" if ok else "bad"


# --- Charts


def _error_chart(nodes: Sequence[NodeError], tolerance: float) -> str:
    """Return a log plot of errors in topological order, with suspects."""
    if not nodes:
        return ""
    top = max(1, max(math.ceil(_log(n.error)) for n in nodes))
    top = min(top, 12)
    width = _WIDTH - _LEFT - 12
    height = _HEIGHT - _BOTTOM - 10

    def x(order: int) -> float:
        return _LEFT + width * order / max(len(nodes) - 1, 1)

    def y(error: float) -> float:
        return 10 + height * (top - min(_log(error), top)) / (top - _LOWEST)

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
        title = _escaped(f"{node.path} ({node.op}): error {node.error:.3g}, of its inputs {node.input_error:.3g}")
        parts.append(
            f'<circle class="{kind}" cx="{x(node.order):.1f}" cy="{y(node.error):.1f}" r="{radius}">'
            f"<title>{title}</title></circle>"
        )
    caption = f"{len(nodes)} nodes in topological order"
    parts.append(f'<text x="{_LEFT + width / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{caption}</text>')
    return "".join([*parts, "</svg>"])


def _bars(values: Mapping[str, float], texts: Mapping[str, str], limit: int = 30) -> str:
    """Return bars with label and text; ``limit`` ones, and the others' number."""
    drawn = list(values.items())[:limit]
    largest = max((v for _, v in drawn), default=0.0) or 1.0
    height = 20 * len(drawn) + 4
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for row, (name, value) in enumerate(drawn):
        top = 20 * row + 2
        length = max(1.0, 560 * value / largest)
        parts.append(f'<text x="240" y="{top + 13}" text-anchor="end">{_escaped(name)}</text>')
        parts.append(f'<rect class="bar" x="250" y="{top}" width="{length:.1f}" height="16"/>')
        parts.append(f'<text x="{258 + length:.0f}" y="{top + 13}">{_escaped(texts[name])}</text>')
    parts.append("</svg>")
    left = len(values) - len(drawn)
    return "".join(parts) + (f"<p>and {left} more</p>" if left else "")


def _escaped(value: Any) -> str:
    """Return a value as escaped HTML text; names in a model may hold anything."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape("".join(c for c in text if c.isprintable() or c in "\n\t"))


def _log(error: float) -> float:
    return max(math.log10(error), _LOWEST) if error > 0 else _LOWEST
