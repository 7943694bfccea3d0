"""Self-contained HTML: pages, tables, bars and figures, without scripts.

Text comes from models, which are not trusted: everything that is not made here goes through `escaped`.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

WIDTH = 960
"""Width of a chart in its own units; it scales with the page."""

_COLORS = """
--fg: #1c1e21; --bg: #fff; --raised: #f6f7f9; --soft: #646b76; --line: #dfe2e7; --ok: #12743a; --ok-bg: #e3f5e9;
--bad: #b3261e; --bad-bg: #fdeceb; --bar: #4f7cc9;
"""
_DARK = """
--fg: #e6e7e9; --bg: #16181c; --raised: #1f2227; --soft: #9aa1ab; --line: #363a41; --ok: #4ade80; --ok-bg: #12331f;
--bad: #f8877f; --bad-bg: #3d1a18; --bar: #6f9be8;
"""
# Rules of a fragment have this prefix, so that they leave the notebook around it alone.
_RULES = """
{at} {{ font: 15px/1.5 system-ui, sans-serif; color: var(--fg); font-variant-numeric: tabular-nums; }}
{at} h1 {{ font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }}
{at} h2 {{ font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }}
{at} h3 {{ font-size: 1rem; margin: 1.4rem 0 .4rem; }}
{at} .scroll {{ overflow-x: auto; }}
{at} table {{ border-collapse: collapse; margin: 0; font-size: 14px; color: inherit; }}
{at} th, {at} td {{ text-align: left; padding: .28rem .9rem .28rem .3rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; background: none; }}
{at} th {{ color: var(--soft); font-weight: 500; }}
{at} td.n, {at} th.n {{ text-align: right; }}
{at} tbody tr:hover {{ background: var(--raised); }}
{at} .badge {{ display: inline-block; padding: .05rem .6rem; border-radius: 1rem; font-size: .82em; font-weight: 600;
  white-space: nowrap; }}
{at} .badge.ok {{ color: var(--ok); background: var(--ok-bg); }}
{at} .badge.bad {{ color: var(--bad); background: var(--bad-bg); }}
{at} .ok {{ color: var(--ok); }} {at} .bad {{ color: var(--bad); }} {at} .soft {{ color: var(--soft); }}
{at} .figures {{ display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }}
{at} .figures div {{ flex: 1 1 8rem; padding: .6rem .9rem; background: var(--raised); border-radius: .5rem; }}
{at} .figures b {{ display: block; font-size: 1.25rem; font-weight: 600; }}
{at} .figures span {{ color: var(--soft); font-size: .85em; }}
{at} .problem {{ padding: .6rem .9rem; border-left: 3px solid var(--bad); background: var(--bad-bg); }}
{at} code {{ font: 13px ui-monospace, "DejaVu Sans Mono", monospace; color: inherit; background: none; }}
{at} p {{ overflow-wrap: anywhere; }} {at} h1 code, {at} h3 code {{ font-size: .95em; }}
{at} summary {{ cursor: pointer; color: var(--soft); margin: .5rem 0; }}
{at} svg {{ width: 100%; min-width: 640px; height: auto; }}
{at} svg text {{ font: 12px system-ui, sans-serif; fill: var(--soft); }}
{at} .grid {{ stroke: var(--line); }} {at} .limit {{ stroke: var(--bad); stroke-dasharray: 5 4; }}
{at} .line {{ fill: none; stroke: var(--line); }} {at} .dot {{ fill: var(--bar); }}
{at} circle.bad {{ fill: var(--bad); }}
{at} .bars {{ display: grid; grid-template-columns: fit-content(40%) 1fr; gap: .15rem .8rem; font-size: 13px;
  line-height: 1.35; color: var(--soft); }}
{at} .bars span:nth-child(odd) {{ text-align: right; overflow-wrap: anywhere; }}
{at} .bars i {{ display: inline-block; height: .85em; min-width: 1px; margin-right: .5rem; vertical-align: -.08em;
  border-radius: 3px; background: var(--bar); }}
"""


def page(title: str, body: Iterable[str]) -> str:
    """Return a page."""
    style = (
        f":root {{ color-scheme: light dark; {_COLORS} }}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}"
        "body { background: var(--bg); max-width: 1040px; margin: 2rem auto; padding: 0 1.2rem 3rem; }"
        f"{_RULES.format(at='body')}"
    )
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{escaped(title)}</title><style>{style}</style></head><body>",
        *body,
        "</body></html>\n",
    ]
    return "".join(parts)


def fragment(body: Iterable[str]) -> str:
    """Return a part of a page for a notebook, in the notebook's colors."""
    at = ".tf2jax-lite"
    dark = f'body[data-jp-theme-light="false"] {at}, html[data-theme="dark"] {at}, .vscode-dark {at} {{ {_DARK} }}'
    style = f"{at} {{ {_COLORS} }}{dark}{_RULES.format(at=at)}"
    return "".join([f'<div class="tf2jax-lite"><style>{style}</style>', *body, "</div>"])


def escaped(value: Any) -> str:
    """Return a value as escaped text; names in a model may hold anything."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape("".join(c for c in text if c.isprintable() or c in "\n\t"))


def code(value: Any) -> str:
    """Return a name in code font."""
    return f"<code>{escaped(value)}</code>"


def badge(text: str, ok: bool) -> str:
    """Return a verdict."""
    return f'<span class="badge {"ok" if ok else "bad"}">{escaped(text)}</span>'


def figures(values: Mapping[str, str]) -> str:
    """Return a row of figures: label to value."""
    cells = (f"<div><b>{escaped(value)}</b><span>{escaped(label)}</span></div>" for label, value in values.items())
    return f'<div class="figures">{"".join(cells)}</div>'


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Collection[str] = (), fold: str = "", keep: int = 40
) -> str:
    """Return a table.

    Args:
      numeric: titles of columns that are aligned to the right.
      fold: what the rows are. A table of more than ``keep`` rows is closed, and this text opens it.
    """
    classes = [' class="n"' if title in numeric else "" for title in head]
    top = "".join(f"<th{c}>{title}</th>" for c, title in zip(classes, head, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{c}>{cell}</td>' for c, cell in zip(classes, row, strict=True))}</tr>" for row in rows
    )
    found = f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    if not fold or len(rows) <= keep:
        return found
    return f"<details><summary>{len(rows)} {escaped(fold)}</summary>{found}</details>"


_MAX_BARS = 30


def bars(values: Mapping[str, float], texts: Mapping[str, str]) -> str:
    """Return the first bars with their texts, and the number of others."""
    drawn = list(values.items())[:_MAX_BARS]
    largest = max((value for _, value in drawn), default=0.0) or 1.0
    rows = (
        f"<span>{escaped(name)}</span>"
        f'<span><i style="width: {60 * value / largest:.2f}%"></i>{escaped(texts[name])}</span>'
        for name, value in drawn
    )
    left = len(values) - len(drawn)
    return f'<div class="bars">{"".join(rows)}</div>' + (f'<p class="soft">and {left} more</p>' if left else "")
