"""The verdict as one self-contained HTML page, with charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.support.errors import ExportError
from tf2jax_lite.support.html_page import WIDTH, badge, bars, code, escaped, figures, fragment, page, table

from .compare import TOLERANCE, OutputComparison
from .results import Bisection, NodeError, SignatureComparison, Suspect, Verification

_HEIGHT, _LEFT, _BOTTOM = 260, 64, 28
_LOWEST = -10  # errors below 1e-10 are drawn there


def write_report(result: Verification, path: Path) -> None:
    """Write the page."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, html_report(result).encode("utf-8", "replace"))
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error}") from error


def html_report(result: Verification) -> str:
    """Return the page."""
    verdict = _verdict(result)
    body = [f"<h1>{code(result.model)}</h1><p>{badge(verdict, result.ok)}</p>"]
    if result.artifact:
        body.append(f"<p>With the artifact {code(result.artifact)}.</p>")
    body.append(figures(_figures(result)))
    if result.repro:
        body.append(f"<p>Reproduction: {code(result.repro)}</p>")
    for signature in result.signatures:
        body += _signature(signature)
    return page(f"{result.model}: {verdict}", body)


def html_summary(result: Verification) -> str:
    """Return the verdict for a notebook, without charts."""
    body = [f"<p>{code(result.model)} {badge(_verdict(result), result.ok)}</p>"]
    for signature in result.signatures:
        body.append(f"<h3>{escaped(signature.signature)}</h3>")
        body += _outputs(signature)
    return fragment(body)


def html_parts(result: SignatureComparison | Bisection) -> str:
    """Return a signature, or its nodes, as on the page for a notebook."""
    return fragment(_bisection(result) if isinstance(result, Bisection) else _signature(result))


def _verdict(result: Verification) -> str:
    return "agrees with TensorFlow" if result.ok else "differs from TensorFlow"


def _figures(result: Verification) -> dict[str, str]:
    """Return the figures at the top of the page, by label."""
    outputs = [output for signature in result.signatures for output in signature.outputs]
    agreeing = sum(signature.ok for signature in result.signatures)
    found = {
        "signatures agree": f"{agreeing} of {len(result.signatures)}",
        "outputs agree": f"{sum(output.ok for output in outputs)} of {len(outputs)}",
    }
    if outputs:
        found["largest relative error"] = f"{max(output.max_rel_error for output in outputs):.2g}"
    seconds = [signature.seconds for signature in result.signatures if len(signature.seconds) == 2]
    if seconds:
        jax_time, tf_time = (sum(timed[side] for timed in seconds) for side in ("jax", "tensorflow"))
        found["time of JAX / TensorFlow"] = f"{jax_time / tf_time:.2g}"
    return found


def _signature(result: SignatureComparison) -> Iterable[str]:
    word = "agrees" if result.ok else "differs"
    yield f"<h2>{escaped(result.signature)} {badge(word, result.ok)}</h2>"
    yield from _outputs(result)
    if result.bisection is not None:
        yield from _bisection(result.bisection)
    if result.seconds:
        yield "<h3>Time of a call (median)</h3>"
        texts = {name: f"{1e3 * value:.3g} ms" for name, value in result.seconds.items()}
        yield bars(result.seconds, texts)
    if result.ops:
        yield "<h3>Ops</h3>"
        yield bars({k: float(v) for k, v in result.ops.items()}, {k: str(v) for k, v in result.ops.items()})


_COLUMNS = ("name", "kind", "verdict", "max abs", "max rel", "ulp", "dtype", "shape", "NaN", "inf", "against")
_NUMERIC = ("max abs", "max rel", "ulp", "NaN", "inf")


def _outputs(result: SignatureComparison) -> Iterable[str]:
    """Return errors, notes and results; then variables and gradients that agree."""
    if result.error:
        yield f'<p class="problem"><code>{escaped(result.error)}</code></p>'
    for note in result.notes:
        yield f'<p class="soft">{escaped(note)}</p>'
    shown = [o for o in result.outputs if o.kind == "result" or not o.ok]
    others = [o for o in result.outputs if not (o.kind == "result" or not o.ok)]
    if shown:
        calls = len(result.cases)
        yield f"<h3>Outputs, the worst of {calls} call{'' if calls == 1 else 's'}</h3>"
        yield table(_COLUMNS, [_output(o) for o in shown], numeric=_NUMERIC)
    if others:
        yield "<h3>Variables and gradients that agree</h3>"
        rows = [_output(o) for o in others]
        yield table(_COLUMNS, rows, numeric=_NUMERIC, fold="variables and gradients", keep=12)


def _output(output: OutputComparison) -> list[str]:
    verdict = output.verdict
    if output.positions:
        verdict += " at " + ", ".join(map(str, map(list, output.positions)))
    remarks = f' <span class="soft">{escaped(output.remarks)}</span>' if output.remarks else ""
    return [
        code(output.name),
        escaped(output.kind),
        badge(verdict, output.ok) + remarks,
        f"{output.max_abs_error:.3g}",
        f"{output.max_rel_error:.3g}",
        "" if output.max_ulp is None else str(output.max_ulp),
        escaped(output.dtype),
        escaped(output.shape),
        f"{output.nan[0]} / {output.nan[1]}",
        f"{output.infinite[0]} / {output.infinite[1]}",
        escaped(output.against),
    ]


def _bisection(found: Bisection) -> Iterable[str]:
    yield f"<h3>Node by node</h3><p>{escaped(found.summary)} <span class='soft'>({escaped(found.inputs)})</span></p>"
    yield _error_chart(found.nodes, TOLERANCE["float32"])
    yield '<p class="soft">Relative error behind each node, each side on its own values; dashed: tolerance.</p>'
    for suspect in found.suspects:
        yield from _suspect(suspect)
    if found.not_run:
        yield f'<p class="soft">{len(found.not_run)} node(s) were not run in TensorFlow by themselves.</p>'


def _suspect(suspect: Suspect) -> Iterable[str]:
    own = "unknown" if suspect.own_error is None else f"{suspect.own_error:.3g}"
    yield f'<h3 class="bad">{code(suspect.path)} ({escaped(suspect.op)})</h3><p class="problem">'
    yield f"error {suspect.error:.3g}; of its inputs {suspect.input_error:.3g}; on TensorFlow's inputs {own}"
    if suspect.iteration:
        yield f"; iteration {suspect.iteration}"
    yield f"<br/>function <code>{escaped(suspect.function)}</code>"
    if suspect.location:
        yield f"; made at <code>{escaped(suspect.location)}</code>"
    if suspect.problem:
        yield f'<br/><code class="bad">{escaped(suspect.problem)}</code>'
    yield "</p>"
    if suspect.attributes:
        attributes = ", ".join(f"{k}={v}" for k, v in suspect.attributes.items())
        yield f"<p><code>{escaped(attributes)}</code></p>"
    rows = [
        [f"<code>{escaped(i['tensor'])}</code>", *(escaped(i.get(k, "")) for k in _INPUT[1:])] for i in suspect.inputs
    ]
    yield table(["input", *_INPUT[1:]], rows)


_INPUT = ("tensor", "dtype", "shape", "min", "max", "nan", "inf")


# --- Charts


def _error_chart(nodes: Sequence[NodeError], tolerance: float) -> str:
    """Return a log plot of errors in topological order, with suspects."""
    if not nodes:
        return ""
    top = max(1, max(math.ceil(_log(n.error)) for n in nodes))
    top = min(top, 12)
    width = WIDTH - _LEFT - 12
    height = _HEIGHT - _BOTTOM - 10

    def x(order: int) -> float:
        return _LEFT + width * order / max(len(nodes) - 1, 1)

    def y(error: float) -> float:
        return 10 + height * (top - min(_log(error), top)) / (top - _LOWEST)

    label = "relative error by node"
    parts = [f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-label="{label}">']
    for power in range(_LOWEST, top + 1, 2):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>')
    at = y(tolerance)
    parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
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
    parts.append(f'<text x="{_LEFT + width / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{caption}</text>')
    return "".join([*parts, "</svg></div>"])


def _log(error: float) -> float:
    return max(math.log10(error), _LOWEST) if error > 0 else _LOWEST
