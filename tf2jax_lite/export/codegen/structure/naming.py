"""Name the values of a function.

A name is reused once its value has no further use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..names import identifier
from ..templates import Def, For, Marks, Printed, Ref, Stmt, parts_of
from .plans import role

_OTHERS = {"hidden": ("x",)}  # names for values whose own is taken
_LONG = 6  # statements between a value and its last use from which it is a skip connection


def flat(nodes: Sequence[Any]) -> list[Any]:
    """Return statements without the boundaries of equations."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, Printed):
            found.extend(flat(node.nodes))
        elif isinstance(node, Def):
            found.append(dataclasses.replace(node, body=flat(node.body)))
        else:
            found.append(node)
    return found


def name_values(
    nodes: Sequence[Any],
    args: Sequence[int],
    marks: Marks,
    taken: Collection[str],
    fixed: Mapping[int, str],
    single: str = "",
) -> dict[int, str]:
    """Return names for the values of a function.

    Args:
      nodes: its statements, as `flat` returns them.
      args: the values that are its parameters.
      marks: hints for names.
      taken: names that it may not use.
      fixed: names of values that have one.
      single: hint for the name of the only parameter.
    """
    names = dict(fixed)
    _name(nodes, args, marks, set(taken), names, single)
    return names


def _name(
    nodes: Sequence[Any],
    args: Sequence[int],
    marks: Marks,
    taken: set[str],
    names: dict[int, str],
    single: str = "",
) -> None:
    last = _last_uses(nodes)
    live: dict[str, int] = {}
    order = 0

    def give(value: int, hint: str) -> None:
        base = identifier(hint)
        if base == "hidden" and last.get(value, -1) > order + _LONG:
            base = "skip"
        others = _OTHERS.get(base, ())
        name, count = base, 0
        while name in taken or name in live:
            count += 1
            name = others[count - 1] if count <= len(others) else f"{base}_{count - len(others)}"
        names[value] = name
        live[name] = last.get(value, -1)

    for value in args:
        if value in names:
            live[names[value]] = last.get(value, -1)
        else:
            give(value, single if single and len(args) == 1 else role(marks.hints[value]))

    def release(now: int) -> None:
        for name in [n for n, end in live.items() if end <= now]:
            del live[name]

    def visit(nodes: Sequence[Any]) -> None:
        nonlocal order
        for node in nodes:
            order += 1
            if isinstance(node, Stmt):
                release(order)
                unpacked = len(node.targets) > 1 or (node.targets and node.parts[0] == "(")
                for value in node.targets:
                    if value in names:
                        live[names[value]] = max(live.get(names[value], -1), last.get(value, -1))
                    elif unpacked and value not in last:
                        names[value] = "_"
                    else:
                        give(value, role(marks.hints[value]))
            elif isinstance(node, For):
                for value in node.head.targets:
                    give(value, role(marks.hints[value]))
                visit(node.body)
            else:
                if isinstance(node.name, Ref) and node.name.id not in names:
                    give(node.name.id, marks.hints[node.name.id])
                _inner(node, marks, taken, names)

    visit(nodes)


def _inner(node: Def, marks: Marks, taken: set[str], names: dict[int, str]) -> None:
    """Name the values of an inner function.

    Values of outer functions that it reads keep their names.
    """
    params = [part.id for arg in node.args for part in arg if isinstance(part, Ref)]
    own = {*params, *_defined(node.body)}
    read = {names[p.id] for p in parts_of(node.body) if isinstance(p, Ref) and p.id not in own}
    for value in own:
        names.pop(value, None)
    _name(node.body, params, marks, taken | read, names)


def _defined(nodes: Sequence[Any]) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, Stmt):
            found |= set(node.targets)
        elif isinstance(node, For):
            found |= _defined([node.head, *node.body])
        else:
            found |= {part.id for arg in node.args for part in arg if isinstance(part, Ref)}
            if isinstance(node.name, Ref):
                found.add(node.name.id)
            found |= _defined(node.body)
    return found


def _last_uses(nodes: Sequence[Any]) -> dict[int, int]:
    """Return the number of the last statement that uses a value."""
    last: dict[int, int] = {}
    order = 0
    held: dict[int, list[int]] = {}  # an inner function uses its values as long as it is used

    def use(value: int, now: int) -> None:
        last[value] = max(last.get(value, -1), now)
        for inner in held.get(value, ()):
            use(inner, now)

    def visit(nodes: Sequence[Any]) -> int:
        nonlocal order
        for node in nodes:
            order += 1
            now = order
            if isinstance(node, For):
                visit(node.body)
                inside = _defined(node.body)
                for part in parts_of([node]):
                    if isinstance(part, Ref) and (part.id not in inside or part.id in last):
                        use(part.id, order)
            elif isinstance(node, Def):
                own = _defined([node])
                reads = [p.id for p in parts_of(node.body) if isinstance(p, Ref) and p.id not in own]
                for value in reads:
                    use(value, now)
                if isinstance(node.name, Ref):
                    held[node.name.id] = list(dict.fromkeys(reads))
            else:
                targets = list(node.targets)
                for part in node.parts:
                    if isinstance(part, Ref):
                        if part.id in targets:
                            targets.remove(part.id)
                        else:
                            use(part.id, now)
        return order

    visit(nodes)
    return last
