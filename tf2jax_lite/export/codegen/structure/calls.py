"""Write calls of outlined functions.

Calls stand alone, in a loop, or in a scan over stacked params.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import literals
from ..templates import Def, Hole, Marks, Part, Read, Ref, Stmt
from .items import Loop, Program
from .plans import Plan
from .sequences import Header


@dataclasses.dataclass(frozen=True)
class Invocation:
    """A call of an outlined function.

    Attributes:
      plan: the function's parameters.
      targets: the values that the call assigns.
      given: source of what `Plan.given` returns.
      values: the other arguments.
    """

    plan: Plan
    targets: Sequence[int]
    given: Sequence[Any]
    values: Sequence[Part]


@dataclasses.dataclass(frozen=True)
class Iteration:
    """The first line of a loop over calls.

    Attributes:
      head: its variables.
      iterable: the source that these iterate over.
      columns: values that differ between the calls: the variable, and the value of each call.
    """

    head: Header
    iterable: str
    columns: Sequence[tuple[int, list[int]]] = ()


def call_of(call: Invocation, marks: Marks) -> Stmt:
    """Return a statement that calls an outlined function."""
    plan, targets, given = call.plan, call.targets, call.given
    args: list[list[Part]] = [[text] for text in given[: len(plan.slots)]]
    args += [[value] for value in call.values]
    words = zip(plan.words(), given[len(plan.slots) :], strict=True)
    args += [[f"{word}=", text] for word, text in words if text != plan.defaults.get(word)]
    parts = joined([[Ref(value)] for value in targets])
    parts += [f"{' = ' if targets else ''}{plan.name}("]
    for i, arg in enumerate(args):
        parts += [*([", "] if i else []), *arg]
    aval = marks.avals[targets[0]] if len(targets) == 1 else None
    return Stmt((*parts, ")"), tuple(targets), literals.type_comment(aval) if aval is not None else "")


def head_of(loop: Iteration) -> Stmt:
    """Return the first line of a loop."""
    head = loop.head
    names = head.variables[head.indexed :] if head.table else []
    variables: list[list[Part]] = []
    sequences: list[list[Part]] = []
    if names:
        variables.append([names[0] if len(names) == 1 else f"({', '.join(names)})"])
        sequences.append([loop.iterable])
    for column, values in loop.columns:
        variables.append([Ref(column)])
        parts = joined([[Ref(value)] for value in values])
        sequences.append(["(", *parts, ")"])
    targets = tuple(column for column, _ in loop.columns)
    if not sequences:
        return Stmt((f"for {'i' if head.indexed else '_'} in range({loop.iterable}):",))
    if len(sequences) == 1:
        inner, whole = variables[0], sequences[0]
        if names and len(names) > 1 and not head.indexed:
            inner = [", ".join(names)]
    else:
        inner = joined(variables)
        whole = ["zip(", *joined(sequences), ", strict=True)"]
    if head.indexed:
        if len(sequences) > 1:
            inner = ["(", *inner, ")"]
        return Stmt(("for i, ", *inner, " in enumerate(", *whole, "):"), targets)
    return Stmt(("for ", *inner, " in ", *whole, ":"), targets)


class Calls:
    """Write reads of params and constants, and calls of outlined functions.

    This class passes them as arguments.
    """

    def fill(self, parts: Sequence[Part], texts: Iterator[str]) -> tuple[Part, ...]:
        """Return a statement's parts with source for params and constants.

        Args:
          parts: the parts.
          texts: expressions of the params and constants in the function's parameters, in order.
        """
        return tuple(next(texts) if isinstance(p, Read | Hole) else p for p in parts)

    def call(self, call: Invocation, marks: Marks) -> Stmt:
        """Return a statement that calls an outlined function; see `call_of`."""
        return call_of(call, marks)

    def loop(self, call: Invocation, loop: Iteration, marks: Marks) -> tuple[Stmt, Stmt]:
        """Return the first line of a loop over calls, and the call; see `head_of`."""
        return head_of(loop), self.call(call, marks)


FUNCTIONS = Calls()


def joined(items: Sequence[Sequence[Part]]) -> list[Part]:
    """Return items with commas between them."""
    return [part for i, item in enumerate(items) for part in ([", "] if i else []) + list(item)]


def is_scan(item: Loop, head: Header, program: Program) -> bool:
    """Return whether a loop's iterations differ only in params of equal shapes."""
    function = item.calls[0].function
    carried = {kind[1] for kind in item.pattern if kind[0] == "carry"}
    if item.collected or ("each",) in item.pattern or carried != set(function.results):
        return False
    if any(head.varying[len(function.plan.slots) :]) or not any(head.varying):
        return False
    return all(_has_equal_shapes(loop, head, program) for loop in head.loops)


def _has_equal_shapes(item: Loop, head: Header, program: Program) -> bool:
    """Return whether a loop's carried values and varying params have fixed shapes."""
    first, last, marks = item.calls[0], item.calls[-1], program.marks

    def differs(a: Any, b: Any) -> bool:
        return (a.shape, a.dtype) != (b.shape, b.dtype)

    for start, kind in zip(first.inputs, item.pattern, strict=True):
        if kind[0] == "carry" and differs(marks.avals[start], marks.avals[last.output_at(kind[1], program)]):
            return False
    return all(
        all(program.under(path) == program.under(paths[0]) for path in paths) for paths in _stacked_paths(item, head)
    )


def _stacked_paths(item: Loop, head: Header) -> list[list[tuple[str, ...]]]:
    """Return the paths of params that a loop stacks.

    Returns:
      One list for each subtree of params, with one path for each iteration.
    """
    given = [call.function.plan.given(call.number) for call in item.calls]
    columns = zip(*given, strict=True)
    return [
        [part.path for part in column if isinstance(part, Read)]
        for column, varying in zip(columns, head.varying, strict=True)
        if varying
    ]


def scan(
    item: Loop,
    head: Header,
    iterable: str,
    values: Mapping[Any, int],
    given: Sequence[str],
    args: Sequence[Part],
    program: Program,
) -> list[Any]:
    """Return the statements of a loop as `jax.lax.scan` over stacked params.

    Args:
      item: the loop.
      head: its first line.
      iterable: the source that it iterates over.
      values: position of a result to the value that the loop carries.
      given: source for the params and constants of the call.
      args: the other arguments.
      program: the module's functions.
    """
    for loop in head.loops:
        for paths in _stacked_paths(loop, head):
            program.stacks.setdefault(tuple(paths), []).append(loop)
    marks, plan = program.marks, item.calls[0].function.plan
    slots = [i for i in range(len(plan.slots)) if head.varying[i]]
    layers, layer, name = (marks.number(hint) for hint in ("layers", "layer", "layer_body"))
    trees = ", ".join(given[i] for i in slots)
    variables = "".join(str(part) for part in head_of(Iteration(head, iterable)).parts).removesuffix(":")
    tree = trees if len(slots) == 1 else f"({trees})"
    stacked = Stmt((Ref(layers), f" = _stacked({tree} {variables})"), (layers,))

    carried = {i: kind[1] for i, kind in enumerate(item.pattern) if kind[0] == "carry"}
    finals = [values[position] for position in carried.values()]
    before, after = ([marks.number(marks.hints[value], marks.avals[value]) for value in finals] for _ in range(2))
    subtrees = [layer] if len(slots) == 1 else [marks.number(plan.slots[i].parameter) for i in slots]
    inside = dict(zip(carried, before, strict=True))
    results = dict(zip(carried.values(), after, strict=True))
    own: list[Part] = list(given)
    for slot, subtree in zip(slots, subtrees, strict=True):
        own[slot] = Ref(subtree)
    whole = len(slots) == len(plan.slots) > 1  # all come from the layer, in order
    arguments = [Ref(inside[i]) if i in inside else arg for i, arg in enumerate(args)]
    targets = [results[position] for position in item.calls[0].function.results]
    call = call_of(Invocation(plan, targets, own, arguments), marks)
    if whole:
        first, last = call.parts.index(Ref(subtrees[0])), call.parts.index(Ref(subtrees[-1]))
        call.parts = (*call.parts[:first], "*", Ref(layer), *call.parts[last + 1 :])

    carry = before[0] if len(before) == 1 else marks.number("carry")
    body = [_unpacked(before, carry)] if len(before) > 1 else []
    body += [_unpacked(subtrees, layer)] if len(slots) > 1 and not whole else []
    body += [call, Stmt(("return ", *_display(after), ", None"))]
    starts = [arg.id for i, arg in enumerate(args) if i in carried and isinstance(arg, Ref)]
    start = (*_display(finals), ", _ = lax.scan(")
    run = Stmt((*start, Ref(name), ", ", *_display(starts), ", ", Ref(layers), ")"), tuple(finals))
    return [stacked, Def(Ref(name), [(Ref(carry),), (Ref(layer),)], body), run]


def _display(values: Sequence[int]) -> list[Part]:
    """Return a value, or a tuple of values."""
    parts = joined([[Ref(value)] for value in values])
    return parts if len(values) == 1 else ["(", *parts, ")"]


def _unpacked(targets: Sequence[int], value: int) -> Stmt:
    parts = joined([[Ref(target)] for target in targets])
    return Stmt((*parts, " = ", Ref(value)), tuple(targets))
