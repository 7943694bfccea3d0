"""Render functions: fill in params and constants, name values, lay out lines."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..formatter import define, loop, statement
from ..idioms.defaults import without_defaults
from ..templates import Def, For, Marks, Part, Printed, Ref, Stmt, parts_of
from .calls import FUNCTIONS, Calls, Invocation, Iteration, is_scan, scan
from .folding import fold
from .items import Call, Code, Item, Loop, Program
from .naming import flat, name_values
from .plans import role
from .sequences import Header


def nodes_of(
    items: Sequence[Any],
    texts: Iterator[str],
    headers: Mapping[int, Header],
    results: Collection[int],
    program: Program,
    calls: Calls = FUNCTIONS,
) -> tuple[list[Any], dict[int, int]]:
    """Return the statements of a function.

    Args:
      items: its items, and statements between them.
      texts: source for its params and constants, in order.
      headers: first lines of loops, by identity of the item.
      results: the values that it returns.
      program: the module's functions.
      calls: writes params, constants and calls of outlined functions.

    Returns:
      The statements, and values that are replaced by others.
    """
    filler = _Filler(items, texts, headers, results, program, calls)
    return filler.nodes, filler.alias


def _expanded(items: Sequence[Any]) -> list[Any]:
    """Return items with the bodies of functions that are not written apart."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, Call) and item.function.inline:
            found.extend(_expanded(item.body.items))
        else:
            found.append(item)
    return found


class _Filler:
    def __init__(
        self,
        items: Sequence[Any],
        texts: Iterator[str],
        headers: Mapping[int, Header],
        results: Collection[int],
        program: Program,
        calls: Calls,
    ):
        self.texts = texts
        self.headers = headers
        self.program = program
        self.calls = calls
        self.alias: dict[int, int] = {}
        self.nodes: list[Any] = []
        every = _expanded(items)
        # How many items are still to come that use a value.
        self.pending = Counter(value for item in every if isinstance(item, Item) for value in item.inputs)
        self.pending.update(dict.fromkeys(results, 1))
        for item in every:
            if isinstance(item, Item):
                self.pending.subtract(item.inputs)
            if isinstance(item, Call):
                targets = [item.output_at(position, self.program) for position in item.function.results]
                plan = item.function.plan
                given = [next(self.texts) for _ in range(len(plan.slots) + len(plan.words()))]
                call = Invocation(plan, targets, given, [Ref(v) for v in item.inputs])
                self.nodes.append(calls.call(call, program.marks))
            elif isinstance(item, Loop):
                self._loop(item, headers[id(item)])
            else:
                self.nodes.extend(self._filled(item.nodes if isinstance(item, Code) else [item]))

    def _filled(self, nodes: Sequence[Any]) -> list[Any]:
        """Return statements with source for params and constants."""
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, Stmt):
                found.append(dataclasses.replace(node, parts=self.calls.fill(node.parts, self.texts)))
            elif isinstance(node, Printed):
                found.append(Printed(self._filled(node.nodes), node.path))
            else:
                args = [self.calls.fill(arg, self.texts) for arg in node.args]
                results = {p.id for p in parts_of([n for n in node.body if isinstance(n, Stmt)]) if isinstance(p, Ref)}
                body, alias = nodes_of(node.body, self.texts, self.headers, results, self.program, self.calls)
                self.alias |= alias
                found.append(Def(node.name, args, body, node.decorators))
        return found

    def _loop(self, item: Loop, head: Header) -> None:
        first, last = item.calls[0], item.calls[-1]
        marks = self.program.marks
        plan, results = first.function.plan, first.function.results
        given = [text.format(*(next(self.texts) for _ in range(count))) for count, text in head.arguments]
        iterable = next(self.texts)
        values = {position: last.output_at(position, self.program) for position in results}
        lists: list[tuple[Any, int, list[int]]] = []
        appended: list[Stmt] = []
        carried = {kind[1] for kind in item.pattern if kind[0] == "carry"}
        for position in item.collected:
            each = [call.output_at(position, self.program) for call in item.calls]
            hint = marks.hints[each[0]]
            if position in carried:
                each[-1] = marks.number(hint)
            else:
                values[position] = marks.number(hint, marks.avals[each[0]])
            found = marks.number(f"{role(hint)}s")
            self.nodes.append(Stmt((Ref(found), " = []"), (found,)))
            appended.append(Stmt((Ref(found), ".append(", Ref(values[position]), ")")))
            lists.append((position, found, each))
        args: list[Part] = []
        columns: list[tuple[int, list[int]]] = []
        for i, kind in enumerate(item.pattern):
            start = first.inputs[i]
            if kind[0] == "same":
                args.append(Ref(start))
            elif kind[0] == "each":
                column = marks.number(marks.hints[start], marks.avals[start])
                columns.append((column, [call.inputs[i] for call in item.calls]))
                args.append(Ref(column))
            else:
                value = values[kind[1]]
                if role(marks.hints[start]) not in ("hidden", "state", role(marks.hints[value])):
                    marks.hints[start] = marks.hints[value] = "x"
                again = sum(call.inputs.count(start) for call in item.calls) > 1
                if self.pending[start] or again:
                    self.nodes.append(Stmt((Ref(value), " = ", Ref(start)), (value,)))
                else:
                    self.alias[value] = start
                args.append(Ref(value))
        if self.program.scan_layers and is_scan(item, head, self.program):
            self.nodes.extend(scan(item, head, iterable, values, given, args, self.program))
            return
        found = Invocation(plan, [values[p] for p in results], given, args)
        first_line, call = self.calls.loop(found, Iteration(head, iterable, columns), marks)
        self.nodes.append(For(first_line, [call, *appended]))
        for _, found, each in lists:
            parts: list[Part] = [piece for value in each for piece in (Ref(value), ", ")]
            self.nodes.append(Stmt((*parts[:-1], " = ", Ref(found)), tuple(each)))


def lay_out(
    nodes: Sequence[Any],
    args: Sequence[int],
    marks: Marks,
    taken: Collection[str],
    fixed: Mapping[int, str] | None = None,
    alias: Mapping[int, int] | None = None,
    *,
    single: str = "",
    indent: int = 4,
    comments: bool = False,
) -> tuple[list[str], dict[int, str]]:
    """Return the lines of statements, and the names of their values.

    Args:
      nodes: filled statements.
      args: values that are parameters.
      marks: hints for names.
      taken: names that it may not use.
      fixed: names of values that have one.
      alias: values that are replaced by others.
      single: hint for the name of the only parameter.
      indent: spaces before each line.
      comments: whether to write shapes behind lines.
    """
    found = flat(nodes)
    if alias:
        found = _renamed(found, alias)
    found = fold(found, marks, args if single and len(args) == 1 else ())
    names = name_values(found, args, marks, taken, fixed or {}, single)
    lines: list[str] = []
    # Inner functions name their own values, so names are looked up when a function's lines are written.
    _write(found, names, indent, comments, lines)
    return lines, names


def _renamed(nodes: Sequence[Any], alias: Mapping[int, int]) -> list[Any]:
    def final(value: int) -> int:
        while value in alias:
            value = alias[value]
        return value

    def parts(given: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(Ref(final(p.id)) if isinstance(p, Ref) else p for p in given)

    found: list[Any] = []
    for node in nodes:
        if isinstance(node, Stmt):
            found.append(dataclasses.replace(node, parts=parts(node.parts), targets=tuple(map(final, node.targets))))
        elif isinstance(node, For):
            head, *body = _renamed([node.head, *node.body], alias)
            found.append(For(head, body))
        else:
            name = Ref(final(node.name.id)) if isinstance(node.name, Ref) else node.name
            args = [parts(arg) for arg in node.args]
            found.append(Def(name, args, _renamed(node.body, alias), node.decorators))
    return found


_UNUSED = re.compile(r"\(_(?:, _)+\)(?=.* = )")
"""A tuple of results that are all unused."""


def _text(parts: Sequence[Part], names: Mapping[int, str]) -> str:
    return "".join(names[p.id] if isinstance(p, Ref) else str(p) for p in parts)


def _write(nodes: Sequence[Any], names: Mapping[int, str], indent: int, comments: bool, lines: list[str]) -> None:
    pad = " " * indent
    for node in nodes:
        if isinstance(node, Stmt):
            text = _UNUSED.sub("_", without_defaults(_text(node.parts, names)))
            lines.extend(statement(text, indent, node.comment if comments else ""))
        elif isinstance(node, For):
            lines.extend(loop(_text(node.head.parts, names), indent))
            _write(node.body, names, indent + 4, comments, lines)
        else:
            if indent:
                lines.append("")
            lines.extend(pad + line for line in node.decorators)
            lines.extend(define(_text([node.name], names), [_text(arg, names) for arg in node.args], indent))
            _write(node.body, names, indent + 4, comments, lines)
            lines.extend([""] if indent else ["", ""])
