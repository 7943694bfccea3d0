"""Represent printed statements whose values have no names yet.

Statements are text with references to values, params and constants.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .idioms.defaults import DEFAULTS

_MARK = re.compile(r"_v(\d+)_")
_DTYPES = re.compile(r"(?:np|jnp)\.(?:u?int\d+|b?float\d+\w*|complex\d+|bool_)")
_ARRAYS = ("np.array", "np.full", "np.zeros", "np.arange", "np.tri")
_NUMBERS = ("jnp.inf", "jnp.nan", "np.inf", "np.nan")
# Names of positional arguments that may differ between equal functions.
_POSITIONS = {
    "lax.reshape": ("", "shape"),
    "jnp.pad": ("", "padding"),
    "jnp.reshape": ("", "shape"),
    "jnp.full": ("shape", "value"),
    "jnp.zeros": ("shape",),
    "jnp.ones": ("shape",),
    "jnp.broadcast_to": ("", "shape"),
    "lax.broadcast_in_dim": ("", "shape", "dimensions"),
    "lax.transpose": ("", "axes"),
    "jnp.einsum": ("equation",),
    "jax.random.fold_in": ("", "layer"),
    "lax.slice": ("", "start", "limit", "strides"),
    "lax.pad": ("", "value", "padding"),
}


@dataclasses.dataclass(frozen=True)
class Ref:
    """A value."""

    id: int


@dataclasses.dataclass(frozen=True)
class Read:
    """A param, by the components of its name."""

    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Hole:
    """A constant: equal functions may have different ones.

    Attributes:
      text: its source.
      hint: name for it as an argument.
      dims: symbolic dimensions in it.
      default: source of the constant that the argument has if it is left out; None if it cannot be.
    """

    text: str
    hint: str = "value"
    dims: frozenset[str] = frozenset()
    default: str | None = None


Part = str | Ref | Read | Hole
OPEN, LOAD, CLOSE = "\0make ", "\0load ", "\0end"
"""Text around a member of a class: the source that makes it, then names of its variables, each before its param."""


@dataclasses.dataclass(eq=False)
class Stmt:
    """A statement.

    Attributes:
      parts: its text, with references.
      targets: the values that it assigns.
      comment: a comment for it.
      kept: whether it stays a statement of its own, where it stands.
    """

    parts: tuple[Part, ...]
    targets: tuple[int, ...] = ()
    comment: str = ""
    kept: bool = False


@dataclasses.dataclass(eq=False)
class Def:
    """A local function: its name, the parts of its parameters, and its body."""

    name: Ref | str
    args: list[tuple[Part, ...]]
    body: list[Any]
    decorators: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Printed:
    """The statements of one equation, with its name scopes."""

    nodes: list[Any]
    path: tuple[str, ...]


@dataclasses.dataclass(eq=False)
class For:
    """A loop: its first line, and its statements."""

    head: Stmt
    body: list[Stmt]


Node = Stmt | Def | Printed | For


class Marks:
    """Hands out marks for values, each with a hint for its name and an abstract value."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self.avals: list[Any] = []

    def new(self, hint: str, aval: Any = None) -> str:
        """Return the mark of a new value."""
        return mark(self.number(hint, aval))

    def number(self, hint: str, aval: Any = None) -> int:
        """Return the number of a new value."""
        self.hints.append(hint)
        self.avals.append(aval)
        return len(self.hints) - 1


def mark(number: int) -> str:
    """Return the text that stands for a value."""
    return f"_v{number}_"


def parse(text: str, reads: Mapping[str, tuple[str, ...]], dims: Collection[str], comment: str = "") -> Stmt:
    """Parse a statement with marks of values, and names of params and dimensions.

    Args:
      text: one line of Python.
      reads: names that stand for params.
      dims: names of symbolic dimensions.
      comment: for the statement.
    """
    found: list[tuple[int, int, Part]] = []
    targets: list[int] = []
    _visit(ast.parse(text).body[0], "value", text, reads, dims, found, targets)
    if not text.isascii():  # the tree has offsets in bytes
        data = text.encode()
        found = [(len(data[:a].decode()), len(data[:b].decode()), part) for a, b, part in found]
    parts: list[Part] = []
    at = 0
    for start, end, part in sorted(found, key=lambda f: f[0]):
        if start > at:
            parts.append(text[at:start])
        parts.append(dataclasses.replace(part, text=text[start:end]) if isinstance(part, Hole) else part)
        at = end
    if at < len(text):
        parts.append(text[at:])
    return Stmt(tuple(parts), tuple(targets), comment)


def _visit(
    node: Any,
    hint: str,
    text: str,
    reads: Mapping[str, tuple[str, ...]],
    dims: Collection[str],
    found: list[tuple[int, int, Part]],
    targets: list[int],
) -> None:
    if isinstance(node, ast.Name):
        match = _MARK.fullmatch(node.id)
        if match:
            found.append((node.col_offset, node.end_col_offset or 0, Ref(int(match[1]))))
            if isinstance(node.ctx, ast.Store):
                targets.append(int(match[1]))
        elif node.id in reads:
            found.append((node.col_offset, node.end_col_offset or 0, Read(reads[node.id])))
        elif node.id in dims:
            found.append((node.col_offset, node.end_col_offset or 0, Hole("", hint, frozenset((node.id,)))))
        return
    if isinstance(node, ast.Tuple) and node.elts and node.elts[0].col_offset == node.col_offset:
        pass  # without parentheses: not one expression elsewhere
    elif isinstance(node, ast.expr) and _is_constant(node, dims):
        inside = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in dims)
        start, end = node.col_offset, node.end_col_offset or 0
        if not (isinstance(node, ast.Constant) and node.value is None):
            found.append((start, end, Hole("", _hint(node, hint), inside)))
        return
    if isinstance(node, ast.Call):
        _visit(node.func, hint, text, reads, dims, found, targets)
        function = ast.unparse(node.func)
        names = _POSITIONS.get(function, ())
        for i, arg in enumerate(node.args):
            _visit(arg, names[i] if i < len(names) else "value", text, reads, dims, found, targets)
        defaults = DEFAULTS.get(function, {})
        for word in node.keywords:
            first = len(found)
            _visit(word.value, word.arg or "value", text, reads, dims, found, targets)
            if word.arg in defaults and len(found) == first + 1:
                start, end, hole = found[first]
                if isinstance(hole, Hole):
                    found[first] = start, end, dataclasses.replace(hole, default=defaults[word.arg])
        return
    for child in node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node):
        _visit(child, hint, text, reads, dims, found, targets)


def _hint(node: ast.expr, hint: str) -> str:
    if hint == "value" and isinstance(node, (ast.Tuple, ast.List)):
        return "sizes"
    return hint


def _is_constant(node: ast.expr, dims: Collection[str]) -> bool:
    """Return whether an expression depends on nothing but symbolic dimensions."""
    match node:
        case ast.Constant():
            return True
        case ast.Name():
            return node.id in dims
        case ast.UnaryOp():
            return _is_constant(node.operand, dims)
        case ast.BinOp():
            return _is_constant(node.left, dims) and _is_constant(node.right, dims)
        case ast.Tuple() | ast.List():
            return bool(node.elts) and all(_is_constant(item, dims) for item in node.elts)
        case ast.Attribute():
            return ast.unparse(node) in _NUMBERS
        case ast.Subscript():
            return _is_constant(node.value, dims) and _is_constant(node.slice, dims)
        case ast.Call(func=ast.Attribute() | ast.Name()):
            name = ast.unparse(node.func)
            if name in ("max", "min") and not node.keywords:
                return all(_is_constant(arg, dims) for arg in node.args)
            if name not in _ARRAYS and not _DTYPES.fullmatch(name):
                return False
            values = [*node.args, *(word.value for word in node.keywords)]
            return all(_is_constant(v, dims) or _DTYPES.fullmatch(ast.unparse(v)) for v in values)
    return False


def parts_of(nodes: Iterable[Any]) -> Iterator[Part]:
    """Yield all parts of statements and functions, in order."""
    for node in nodes:
        if isinstance(node, Stmt):
            yield from node.parts
        elif isinstance(node, Printed):
            yield from parts_of(node.nodes)
        elif isinstance(node, For):
            yield from parts_of([node.head, *node.body])
        else:
            yield node.name
            for arg in node.args:
                yield from arg
            yield from parts_of(node.body)
