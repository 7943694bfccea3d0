"""Fold statements into the one that uses their value."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..templates import Def, For, Marks, Part, Ref, Stmt, parts_of
from .plans import role

_LONGEST = 76  # characters of a folded statement


def fold(nodes: Sequence[Any], marks: Marks, short: Collection[int] = ()) -> list[Any]:
    """Fold statements whose value one of the next statements uses, and no other.

    Args:
      nodes: the statements of a function.
      marks: hints for names of values, which say how long a statement is.
      short: values whose names have one letter.
    """
    uses = Counter(part.id for part in parts_of(nodes) if isinstance(part, Ref))
    assigned = Counter(
        target
        for node in nodes
        for stmt in ([node] if isinstance(node, Stmt) else node.body if isinstance(node, For) else [])
        for target in stmt.targets
    )

    def width(parts: Sequence[Part]) -> int:
        return sum(
            len(str(p)) if not isinstance(p, Ref) else 1 if p.id in short else len(role(marks.hints[p.id]))
            for p in parts
        )

    found: list[Any] = []
    pending: dict[int, tuple[int, tuple[Part, ...]]] = {}  # value to the place and the source of its statement
    for node in nodes:
        if not isinstance(node, Stmt):
            pending.clear()
            found.append(
                dataclasses.replace(node, body=fold(node.body, marks, short)) if isinstance(node, Def) else node
            )
            continue
        node = _returned(node, found, uses) or _folded(node, pending, found, width)
        found.append(node)
        value = _single(node)
        if value is not None and not node.kept and uses[value] == 2 and assigned[value] == 1:
            pending[value] = len(found) - 1, node.parts[2:] if node.parts[1] == " = " else _after_equals(node.parts)
    return [node for node in found if node is not None]


def _returned(node: Stmt, found: list[Any], uses: Mapping[int, int]) -> Stmt | None:
    """Return ``return f(x)`` for ``a, b = f(x)`` and ``return a, b``; else None.

    Args:
      node: the second statement.
      found: statements before it; the first one is removed.
      uses: how often each value is mentioned.
    """
    before = next((n for n in reversed(found) if n is not None), None)
    if (
        not isinstance(before, Stmt)
        or before.kept
        or len(before.targets) < 2
        or any(uses[t] > 2 for t in before.targets)
    ):
        return None
    head = [piece for target in before.targets for piece in (Ref(target), ", ")][:-1]
    count = len(head)
    if node.parts != ("return ", *head) or list(before.parts[:count]) != head:
        return None
    found.remove(before)
    return dataclasses.replace(
        node, parts=_merged(("return ", str(before.parts[count]).removeprefix(" = "), *before.parts[count + 1 :]))
    )


def _single(node: Stmt) -> int | None:
    """Return the value that a statement ``x = ...`` assigns."""
    if len(node.targets) == 1 and node.parts[0] == Ref(node.targets[0]) and str(node.parts[1]).startswith(" = "):
        return node.targets[0]
    return None


def _after_equals(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return (str(parts[1]).removeprefix(" = "), *parts[2:])


def _folded(
    node: Stmt, pending: dict[int, tuple[int, tuple[Part, ...]]], found: list[Any], width: Callable[..., int]
) -> Stmt:
    """Replace values in a statement by their expressions if the result is short."""
    parts = node.parts
    for part in [p for p in parts if isinstance(p, Ref) and p.id in pending and p.id not in node.targets]:
        place, source = pending.pop(part.id)
        at = parts.index(part)
        before, after = parts[:at], parts[at + 1 :]
        inner = _text(source)
        returned = parts == ("return ", part)
        whole = _OUTLINED.match(inner) and (not _NESTED.match(inner) or _OUTLINED.search(_text(before)))
        if not returned and (whole or width(parts) + width(source) > _LONGEST):
            continue
        if _needs_parentheses(inner, _text(before), _text(after)):
            source = ("(", *source, ")")
        parts = _merged((*before, *source, *after))
        found[place] = None
    return dataclasses.replace(node, parts=parts) if parts is not node.parts else node


def _merged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Join neighboring text."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)


def _text(parts: Sequence[Part]) -> str:
    return "".join(f"_v{p.id}_" if isinstance(p, Ref) else str(p) for p in parts)


_LEVELS: list[tuple[type[ast.operator], ...]] = [(ast.Add, ast.Sub), (ast.Mult, ast.Div, ast.MatMult)]
_BEFORE = re.compile(r"(?:^|[(\[{,=:]|return)\s*$")
_OUTLINED = re.compile(r"_[a-z]\w*\((?!_v\d+_\.shape)")
_NESTED = re.compile(r"_(?:dense|dropout)\(")
"""Helpers whose calls may be part of an expression, but for one that is a call of a function of the module."""
_COMPARED = re.compile(r"[=!<>]=\s*$")
_AFTER = re.compile(r"^\s*(?:$|[)\]},:]|for\b|if\b)")


def _needs_parentheses(inner: str, before: str, after: str) -> bool:
    """Return whether an expression needs parentheses between two pieces of source."""
    tree = ast.parse(inner, mode="eval").body
    if not isinstance(tree, ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.Lambda | ast.IfExp | ast.Tuple):
        return False
    if _BEFORE.search(before) and not _COMPARED.search(before) and _AFTER.match(after):
        return isinstance(tree, ast.Tuple)
    level = next((i for i, ops in enumerate(_LEVELS) if isinstance(tree, ast.BinOp) and isinstance(tree.op, ops)), None)
    if level is None:
        return True
    left = "" if _BEFORE.search(before) else before.rstrip()[-1:]
    right = "" if _AFTER.match(after) else after.lstrip()[:2]
    if level == 0:  # a sum: the left operand of another
        return bool(left) or right[:1] not in ("+", "-") or right in ("**",)
    # A product: a term of a sum, or the left operand of another product.
    return left not in ("", "+") or right[:1] not in ("", "+", "-", "*", "/", "@") or right in ("**", "//")
