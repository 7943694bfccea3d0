"""Lay out Python statements as ruff format does.

A statement takes one line if it fits. Otherwise its bracketed items move to lines of their own, one level deeper.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tf2jax_lite.support.text import printable

WIDTH = 88


def statement(text: str, indent: int, comment: str = "") -> list[str]:
    """Return a statement's lines, formatted as by ruff.

    It is first written on one line.

    Args:
      text: an assignment, an expression, or a return or raise statement.
      indent: spaces before it.
      comment: appended if the line is short enough.
    """
    pad = " " * indent
    if comment and len(pad + text) + len(comment) + 4 <= WIDTH:
        return [f"{pad}{text}  # {comment}"]
    if len(pad + text) <= WIDTH:
        return [pad + text]
    prefix, value = _split(text)
    lines = _broken(prefix, value, indent, "")
    if any(len(line) > WIDTH for line in lines):
        targets = [line for target in _targets(prefix) for line in _broken("", target, indent + 4, ",")]
        lines = [f"{pad}(", *targets, *_broken(") = ", value, indent, "")] if targets else lines
    if comment and len(lines[-1]) + len(comment) + 4 <= WIDTH:
        lines[-1] += f"  # {comment}"
    return lines


def loop(text: str, indent: int) -> list[str]:
    """Return the first lines of a loop, given on one line."""
    if indent + len(text) <= WIDTH:
        return [" " * indent + text]
    tree = ast.parse(f"{text} pass").body[0]
    assert isinstance(tree, ast.For)
    value = ast.get_source_segment(text, tree.iter)
    assert value is not None
    return _broken(text[: tree.iter.col_offset], value, indent, ":")


def define(name: str, args: list[str], indent: int) -> list[str]:
    """Return the first lines of a function."""
    pad = " " * indent
    flat = f"{pad}def {name}({', '.join(args)}):"
    if len(flat) <= WIDTH:
        return [flat]
    body = f"{pad}    {', '.join(args)}"
    if len(body) <= WIDTH:
        return [f"{pad}def {name}(", body, f"{pad}):"]
    return [f"{pad}def {name}(", *(f"{pad}    {arg}," for arg in args), f"{pad}):"]


def _split(text: str) -> tuple[str, str]:
    """Split a statement into the text before its value, and the value."""
    for keyword in ("return ", "raise "):
        if text.startswith(keyword):
            return keyword, text.removeprefix(keyword)
    tree = ast.parse(text).body[0]
    if isinstance(tree, ast.Assign):
        value = ast.get_source_segment(text, tree.value)
        assert value is not None
        start = text.rindex(value)
        return text[:start], text[start:]
    return "", text


def _targets(prefix: str) -> list[str]:
    """Return the targets of an assignment to a tuple, none for other statements."""
    if not prefix.endswith(" = "):
        return []
    target = prefix.removesuffix(" = ")
    node = ast.parse(target, mode="eval").body
    found = node.elts if isinstance(node, ast.Tuple) else []
    return [ast.get_source_segment(target, item) or "" for item in found]


def _pieces(value: str) -> tuple[str, list[str], str] | None:
    """Return a value's opening bracket, items and closing bracket, or None."""
    node = ast.parse(value, mode="eval").body

    def text(item: ast.AST) -> str:
        found = ast.get_source_segment(value, item)
        assert found is not None
        return found

    if isinstance(node, ast.Call):
        items = [text(arg) for arg in node.args]
        items += [f"{word.arg}={text(word.value)}" for word in node.keywords]
        return text(node.func) + "(", items, ")"
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.left, (ast.Name, ast.Constant, ast.Subscript))
        and _has_arguments(node.right)
    ):
        # One operator: broken within the call behind it.
        opening, items, closing = _pieces(text(node.right)) or ("", [], "")
        return value[: value.rindex(text(node.right))] + opening, items, closing
    if isinstance(node, ast.Subscript):
        return text(node.value) + "[", [text(node.slice)], "]"
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        items = [text(item) for item in node.elts]
        if (
            isinstance(node, ast.Tuple) and node.elts and node.elts[0].col_offset == 0
        ):  # the bracket is its first item's
            return "(", items, ")"
        return value[0], items, value[-1]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return "{", [f"{text(key)}: {text(item)}" for key, item in pairs if key is not None], "}"
    return None


def _has_arguments(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(node.args)


def _broken(prefix: str, value: str, indent: int, end: str) -> list[str]:
    """Return a value broken at its brackets."""
    pad, deeper = " " * indent, " " * (indent + 4)
    flat = f"{pad}{prefix}{value}{end}"
    if len(flat) <= WIDTH:
        return [flat]
    found = _comprehension(value)
    if found is not None:
        opening, element, start, iterable = found
        one_line = f"{deeper}{element} {start}{iterable}"
        inner = [*_broken("", element, indent + 4, ""), *_broken(start, iterable, indent + 4, "")]
        inner = [one_line] if len(one_line) <= WIDTH else inner
        return [f"{pad}{prefix}{opening}", *inner, f"{pad}{value[-1]}{end}"]
    pieces = _pieces(value)
    if pieces is None or len(f"{pad}{prefix}{pieces[0]}") > WIDTH:
        if end == "," or prefix.endswith("="):  # an argument: nothing more to do
            return [flat]
        return [f"{pad}{prefix}(", f"{deeper}{value}", f"{pad}){end}"]
    opening, items, closing = pieces
    if not items:
        return [flat]
    one_line = f"{deeper}{', '.join(items)}"
    if closing == "]" and opening != "[":
        return [f"{pad}{prefix}{opening}", one_line, f"{pad}{closing}{end}"]
    if len(one_line) <= WIDTH and opening.endswith("(") and opening != "(":
        return [f"{pad}{prefix}{opening}", one_line, f"{pad}{closing}{end}"]
    lines = [f"{pad}{prefix}{opening}"]
    for item in items:
        keyword, content = _keyword(item)
        lines.extend(_broken(keyword, content, indent + 4, ","))
    return [*lines, f"{pad}{closing}{end}"]


def _comprehension(value: str) -> tuple[str, str, str, str] | None:
    """Split a list comprehension or a call of a generator: opening to iterable."""
    node = ast.parse(value, mode="eval").body
    match node:
        case ast.ListComp():
            opening, inner = "[", node
        case ast.Call(args=[ast.GeneratorExp() as inner], keywords=[]):
            opening = (ast.get_source_segment(value, node.func) or "") + "("
        case _:
            return None
    element = ast.get_source_segment(value, inner.elt) or ""
    rest = value[value.index(element, len(opening)) + len(element) : -1].strip()
    iterable = ast.get_source_segment(value, inner.generators[0].iter) or ""
    start = rest[: rest.rindex(iterable)]
    return opening, element, start, rest[len(start) :]


def _keyword(item: str) -> tuple[str, str]:
    """Split ``name=value`` or ``"key": value``."""
    for separator in ("=", ": "):
        name, found, value = item.partition(separator)
        plain = name.isidentifier() if separator == "=" else name[:1] == '"' and name.count('"') == 2
        if found and plain and not value.startswith("="):
            return name + separator, value
    return "", item


def docstring(lines: Sequence[str], indent: int) -> list[str]:
    """Return the lines of a docstring."""
    pad, mark = " " * indent, '"' * 3
    safe = [printable(line.replace("\\", "\\\\").replace(mark, "'" * 3)) for line in lines]
    if len(safe) == 1:
        if safe[0].endswith('"'):
            safe[0] = safe[0][:-1] + '\\"'
        return [f"{pad}{mark}{safe[0]}{mark}"]
    return [f"{pad}{mark}{safe[0]}", *(f"{pad}{line}" if line else "" for line in safe[1:]), f"{pad}{mark}"]


def tidy(lines: Sequence[str]) -> list[str]:
    """Drop blank lines that a formatter would drop."""
    out: list[str] = []
    for line in lines:
        if line == "" and (not out or out[-1].endswith(":") or out[-2:] == ["", ""]):
            continue
        if line.startswith(" "):  # inside a function one blank line is enough
            while out[-2:] == ["", ""]:
                out.pop()
        out.append(line)
    return out
