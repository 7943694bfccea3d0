"""Remove keyword arguments that equal the defaults, of local helpers and of loops.

They are printed at first, so that equal calls have equal source up to these constants.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from tf2jax_lite.export.codegen import literals

from . import helpers


def _literals(fn: Any) -> dict[str, str]:
    parameters = inspect.signature(fn).parameters.values()
    return {p.name: literals.value(p.default) for p in parameters if isinstance(p.default, (int, str, tuple))}


DEFAULTS: dict[str, dict[str, str]] = {
    name: found for name, fn in vars(helpers).items() if inspect.isfunction(fn) and (found := _literals(fn))
} | {"lax.scan": {"reverse": "False"}}
"""Source of the defaults of each function's keyword arguments, by function."""

_CALL = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, DEFAULTS))})\(")


def without_defaults(text: str) -> str:
    """Return a statement without the keyword arguments that equal defaults."""
    if not _CALL.search(text):
        return text
    data = text.encode()
    spans: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        defaults = DEFAULTS.get(ast.unparse(node.func), {})
        end = node.args[-1].end_col_offset if node.args else None
        for word in node.keywords:
            default = defaults.get(word.arg or "")
            if default is not None and end is not None and ast.get_source_segment(text, word.value) == default:
                spans.append((end, word.end_col_offset or end))
            end = word.end_col_offset
    for start, end in sorted(spans, reverse=True):
        data = data[:start] + data[end:]
    return data.decode()
