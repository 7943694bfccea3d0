"""Turn a block's equations into nested calls, one function for a name scope."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from ..names import common_prefix
from ..templates import Def, Printed, Ref, parts_of
from .items import BODY, Code, Item, Program
from .outline import outline

# Scopes of up to so many lines are inlined where there is one call.
_FEW = 3
_FEW_WITHOUT_PARAMS = 8
# A scope of one statement is a function if the statement takes so many lines.
_SEVERAL = 3


def structure(equations: Sequence[Printed], results: Collection[int], program: Program) -> list[Item]:
    """Outline a function's equations by name scope and by repetition.

    Args:
      equations: the function's printed equations.
      results: the values that it returns.
      program: gets the outlined functions.
    """
    found = program.layers(equations, results)
    codes: list[Any] = [
        e if isinstance(e, Item) else Code(_with_items(e.nodes, program), e.path, program) for e in found
    ]
    _leave_scopes(codes, results)
    uses = Counter(value for code in codes for value in code.inputs)
    uses.update(dict.fromkeys(results, 1))
    return _tree(codes, 0, uses, program)


def _leave_scopes(codes: Sequence[Any], results: Collection[int]) -> None:
    """Move equations on which several scopes depend to the scope that these share.

    Such an equation reads no params, and all of its operands come from there: TensorFlow computes it in the first of
    the scopes, and the others would depend on that one.
    """
    makers = {value: code for code in codes for _, value in code.outputs()}
    level: dict[int, int] = {}  # number of scopes that an equation cannot leave
    for code in codes:
        found = len(code.path[:-1]) if code.reads else 0
        for maker in (makers[v] for v in code.inputs if v in makers):
            shared = len(common_prefix([code.path[:-1], maker.path[:-1]]))
            found = max(found, min(shared, level[id(maker)]) if shared == len(maker.path[:-1]) else shared)
        level[id(code)] = found
    own = {id(code): code.path[:-1] for code in codes}
    users: dict[int, list[Any]] = {}
    for code in codes:
        for value in code.inputs:
            users.setdefault(value, []).append(code)
    for code in reversed(codes):
        scope = own[id(code)]
        following = [user for _, value in code.outputs() for user in users.get(value, ())]
        outside = any(value in results for _, value in code.outputs())
        # An equation without a path stands with its neighbors.
        target = common_prefix([scope, *(u.path[:-1] for u in following if u.path), *([()] if outside else [])])
        depth = len(target)
        inside = any(own[id(user)][: depth + 1] == scope[: depth + 1] for user in following)
        if level[id(code)] <= depth < len(scope) and inside:
            code.path = (*target, code.path[-1])


def _with_items(nodes: Sequence[Any], program: Program) -> list[Any]:
    """Return statements with the bodies of local functions as items.

    A body becomes one call if it may be used again.
    """
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, Def):
            equations = [n for n in node.body if isinstance(n, Printed)]
            others = [n for n in node.body if not isinstance(n, Printed)]
            used = {part.id for part in parts_of(others) if isinstance(part, Ref)}
            items = structure(equations, used, program)
            if sum(item.lines for item in items) > _FEW_WITHOUT_PARAMS:
                items = [program.call(items, used.__contains__, BODY, small=True)]
            first = next((i for i, n in enumerate(node.body) if isinstance(n, Printed)), 0)
            node = dataclasses.replace(node, body=[*node.body[:first], *items, *others[first:]])
        found.append(node)
    return found


def _tree(codes: list[Code], depth: int, uses: Counter[int], program: Program) -> list[Item]:
    """Return the items of a scope.

    Args:
      codes: its equations.
      depth: the number of components that their paths have in common.
      uses: number of equations of the whole function that use a value, and 1 for results.
      program: gets the outlined functions.
    """
    groups = _grouped(_scheduled(codes, depth), depth)
    while len(groups) == 1 and groups[0][0] is not None:
        depth += 1
        groups = _grouped(_scheduled(groups[0][1], depth), depth)
    items: list[Item] = []
    for scope, members in groups:
        if scope is None:
            items.extend(members)
            continue
        inner = _tree(members, depth + 1, uses, program) if len(members) > 1 else members
        lines = sum(item.lines for item in inner)
        shared = any(path in program.shared for item in inner for path in item.reads)
        if (len(inner) == 1 and lines < _SEVERAL) or lines <= program.inlined or shared:
            items.extend(inner)
            continue
        inside = Counter(value for code in members for value in code.inputs)
        reads = any(item.reads for item in inner)
        small = lines <= (_FEW if reads else _FEW_WITHOUT_PARAMS)
        items.append(program.call(inner, lambda v, inside=inside: uses[v] > inside[v], scope, small=small))
    inside = Counter(value for code in codes for value in code.inputs)
    used = {value for code in codes for _, value in code.outputs() if uses[value] > inside[value]}
    return outline(items, used, program)


@dataclasses.dataclass(eq=False)
class _Run:
    """Equations of one scope, where they stand, and whether others use their values."""

    order: int
    codes: list[Code]
    used: bool = False


def _scope(code: Code, depth: int) -> str | None:
    return code.path[depth] if len(code.path) > depth + 1 else None


def _grouped(codes: Sequence[Code], depth: int) -> list[tuple[str | None, list[Code]]]:
    """Split equations into runs of one scope.

    Equations without a scope belong to the surrounding scope.
    """
    scopes = [_scope(code, depth) for code in codes]
    following: str | None = None
    after: list[str | None] = []
    for code, scope in zip(reversed(codes), reversed(scopes), strict=True):
        following = scope if code.path else following
        after.append(following)
    groups: list[tuple[str | None, list[Code]]] = []
    for code, scope, later in zip(codes, scopes, reversed(after), strict=True):
        before = groups[-1][0] if groups else None
        if groups and (before == scope is not None or (not code.path and before == later)):
            groups[-1][1].append(code)
        else:
            groups.append((scope, [code]))
    return groups


def _scheduled(codes: list[Code], depth: int) -> list[Code]:
    """Join runs of one scope where data dependences allow.

    A later run moves to the earlier one, or the earlier one to it.
    """
    runs = _grouped(codes, depth)
    if len(runs) == len({scope for scope, _ in runs}):
        return codes
    latest: dict[str, _Run] = {}
    place: dict[int, _Run] = {}
    found: dict[int, _Run] = {}
    for number, (scope, members) in enumerate(runs):
        own = {value for code in members for _, value in code.outputs()}
        producers = {id(place[v]): place[v] for code in members for v in code.inputs if v in place and v not in own}
        run = latest.get(scope) if scope is not None else None
        if run is not None and max((p.order for p in producers.values()), default=-1) <= run.order:
            run.codes.extend(members)
        elif run is not None and not run.used:
            del found[run.order]
            run.order = number
            run.codes.extend(members)
        else:
            run = _Run(number, list(members))
        found[run.order] = run
        for producer in producers.values():
            producer.used |= producer is not run
        place.update(dict.fromkeys(own, run))
        if scope is not None:
            latest[scope] = run
    return [code for number in sorted(found) for code in found[number].codes]
