"""Outline repeated parts of a function, and fold consecutive calls into loops.

This is compression by a grammar: the part whose outlining saves most lines becomes a function, until none does. All
occurrences of a part have equal source and equal dataflow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from .items import Body, Call, Item, Loop, Program
from .plans import subtrees

_LONGEST = 64  # items of a repeated part; bounds the search
_ROUNDS = 64  # parts of one function
_SHORTEST = 3  # iterations of a loop
_SHORT_CALL = 5  # arguments and results of a call in one line
_SHORTEST_MAP = 5  # iterations of a loop that carries nothing
_OVERHEAD = 4  # lines of a function besides its items


def outline(items: Sequence[Item], used: Collection[int], program: Program) -> list[Item]:
    """Return a function's items with repeated parts as calls and loops.

    Args:
      items: the function's items.
      used: values that others use.
      program: gets the outlined functions.
    """
    found = list(items)
    for _ in range(_ROUNDS):
        folded = _folded(found, used, program)
        part = _best(folded, used, program)
        if part is None:
            return folded
        found = _replaced(folded, *part, used, program)
    return found


def _uses(items: Sequence[Item], used: Collection[int]) -> Counter[int]:
    uses = Counter(value for item in items for value in item.inputs)
    uses.update(dict.fromkeys(used, 1))
    return uses


def _best(items: list[Item], used: Collection[int], program: Program) -> tuple[list[int], int] | None:
    """Return the starts and the length of the part that saves most lines, or None."""
    candidates: list[tuple[int, int, list[int]]] = []
    lines = [0]
    for item in items:
        lines.append(lines[-1] + item.lines)
    ids = [item.key for item in items]
    starts = list(range(len(items)))
    starts = [s for s in starts if not isinstance(items[s], Loop)]
    for length in range(2, min(_LONGEST, len(items) // 2) + 1):
        # A part repeats only if the part without its last item does.
        table: dict[tuple[int, int], list[int]] = defaultdict(list)
        for s in starts:
            if s + length <= len(items) and not isinstance(items[s + length - 1], Loop):
                table[ids[s], items[s + length - 1].key].append(s)
        starts = []
        for number, positions in enumerate(table.values()):
            if len(positions) < 2:
                continue
            for s in positions:
                ids[s] = number
            starts.extend(positions)
            saved = _saved(positions, length, lines)
            if saved > 0:
                candidates.append((saved, length, positions))
        if not starts:
            break
    candidates.sort(key=lambda c: (-c[0], c[1]))
    best: tuple[int, list[int], int] | None = None
    uses = _uses(items, used)
    for saved, length, positions in candidates:
        if best is not None and (saved <= best[0]):
            break
        for chosen, score in _equal_parts(items, positions, length, lines, uses, program):
            if best is None or score > best[0]:
                best = score, chosen, length
    return None if best is None else (best[1], best[2])


def _saved(positions: Sequence[int], length: int, lines: Sequence[int], call_lines: int = 1) -> int:
    """Return the number of lines that outlining a part saves.

    Args:
      positions: starts of the part's occurrences, which may overlap.
      length: number of items.
      lines: number of lines before each item.
      call_lines: lines of a call.
    """
    chosen = _apart(positions, length)
    if len(chosen) < 2:
        return 0
    size = lines[chosen[0] + length] - lines[chosen[0]]
    # A loop takes a line, and its call, however often it runs.
    runs = _runs(chosen, length)
    calls = sum(call_lines + 1 if run >= _SHORTEST else call_lines * run for run in runs)
    return len(chosen) * size - (size + _OVERHEAD) - calls


def _runs(positions: Sequence[int], length: int) -> list[int]:
    """Return the lengths of runs of consecutive positions."""
    runs: list[int] = []
    for i, s in enumerate(positions):
        if i and s == positions[i - 1] + length:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs


def _apart(positions: Sequence[int], length: int) -> list[int]:
    """Return positions that do not overlap."""
    chosen: list[int] = []
    for s in sorted(positions):
        if not chosen or s >= chosen[-1] + length:
            chosen.append(s)
    return chosen


def _equal_parts(
    items: list[Item],
    positions: Sequence[int],
    length: int,
    lines: Sequence[int],
    uses: Counter[int],
    program: Program,
) -> list[tuple[list[int], int]]:
    """Return the positions by equal dataflow, each group with the lines that it saves."""
    groups: dict[int, list[int]] = defaultdict(list)
    bodies: dict[int, Body] = {}
    for s in positions:
        body = bodies[s] = Body(items[s : s + length], program)
        groups[body.key].append(s)
    found = []
    for group in groups.values():
        chosen = _apart(group, length)
        if _saved(chosen, length, lines) <= 0:
            continue
        width = 0
        for s in chosen:
            inside = Counter(value for item in bodies[s].items for value in item.inputs)
            results = sum(uses[value] > inside[value] for value in bodies[s].where)
            width = max(width, len(bodies[s].free) + results)
        reads = {j: list(paths) for j, paths in enumerate(zip(*(bodies[s].reads for s in chosen), strict=True))}
        slots = subtrees(reads, len(chosen), indexed=program.indexed) if reads else []
        width += sum(1 + ((slot.names or slot.numbers) is not None) for slot in slots)
        saved = _saved(chosen, length, lines, 1 if width <= _SHORT_CALL else width + 2)
        if saved > 0:
            found.append((chosen, saved))
    return found


def _replaced(
    items: list[Item], positions: Sequence[int], length: int, used: Collection[int], program: Program
) -> list[Item]:
    """Return the items with parts replaced by calls."""
    uses = _uses(items, used)
    found: list[Item] = []
    at = 0
    for s in positions:
        found.extend(items[at:s])
        part = items[s : s + length]
        inside = Counter(value for item in part for value in item.inputs)
        found.append(program.call(part, lambda v, inside=inside: uses[v] > inside[v], ""))
        at = s + length
    return [*found, *items[at:]]


def _folded(items: list[Item], used: Collection[int], program: Program) -> list[Item]:
    """Return the items with consecutive calls of one function as loops."""
    uses = _uses(items, used)
    found: list[Item] = []
    at = 0
    while at < len(items):
        first = items[at]
        end = at + 1
        if isinstance(first, Call):
            while end < len(items) and (items[end].key, items[end].depths) == (first.key, first.depths):
                end += 1
        while end - at > 1:
            calls: Any = items[at:end]
            loop = _loop(calls, uses, program)
            if loop is not None:
                found.append(loop)
                break
            end -= 1
        else:
            found.append(first)
        at = end
    return found


def _loop(calls: list[Call], uses: Counter[int], program: Program) -> Loop | None:
    """Return calls as a loop, None if they are none."""
    own = {value: (n, position) for n, call in enumerate(calls) for position, value in call.outputs()}
    pattern: list[tuple[Any, ...]] = []
    carried: set[Any] = set()
    for values in zip(*(call.inputs for call in calls), strict=True):
        producers = [own.get(v) for v in values]
        later = set(producers[1:])
        if producers[0] is None and None not in later:
            if any(p is None or p[0] != n for n, p in enumerate(producers[1:])):
                return None
            positions = {p[1] for p in producers[1:] if p is not None}
            if len(positions) != 1:
                return None
            pattern.append(("carry", *positions))
            carried |= positions
        elif any(p is not None for p in producers):
            return None
        else:
            pattern.append(("same",) if len(set(values)) == 1 else ("each",))
    if len(carried) != sum(kind[0] == "carry" for kind in pattern):
        return None
    collected = []
    for n, call in enumerate(calls[:-1]):
        following = Counter(calls[n + 1].inputs)
        for position, value in call.outputs():
            by_next = following[value] if position in carried else 0
            if uses[value] > by_next and position not in collected:
                collected.append(position)
    if len(calls) < (_SHORTEST if carried else _SHORTEST_MAP):
        return None
    return Loop(calls, tuple(pattern), tuple(collected), program)
