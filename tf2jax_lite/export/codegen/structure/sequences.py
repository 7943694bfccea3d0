"""Write the first lines of loops.

An expression of an index, or a table, has the params and constants of each iteration.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import literals
from ..names import common_prefix
from ..templates import Hole, Part, Read


@dataclasses.dataclass
class Header:
    """The first line of a loop.

    Attributes:
      variables: its variables: ``i`` if there is an index, and one for each column of the table.
      indexed: whether there is an index.
      table: whether there is a table.
      arguments: how to write what the loop's function is given: for each argument the number of leaves that it takes,
        and a format string for them.
      varying: for each argument, whether it differs between iterations.
      loops: the loop in each of the equal functions.
    """

    variables: list[str]
    indexed: bool
    table: bool
    arguments: list[tuple[int, str]]
    varying: list[bool]
    loops: Sequence[Any] = ()


def header(given: Sequence[Sequence[Sequence[Part]]], words: Sequence[str]) -> tuple[Header, list[list[Part]]]:
    """Return the first line of equal loops in equal functions.

    Args:
      given: for each function and each iteration the paths and the constants that the loop's function is given.
      words: names of these arguments.

    Returns:
      The first line, and its leaves for each function: those of the arguments, then the iterable.
    """
    arguments: list[tuple[int, str]] = []
    varying: list[bool] = []
    parts: list[list[Part]] = [[] for _ in given]
    columns: list[list[list[str]]] = []
    names: list[str] = []
    dims = [frozenset[str]() for _ in given]
    indexed = False

    def expression(vectors: list[list[str]], word: str, *, quoted: bool) -> str:
        """Return the source of a constant that differs between iterations."""
        nonlocal indexed
        found = {by_index(vector, quoted=quoted) for vector in vectors}
        text = found.pop()
        if text is not None and not found:
            indexed = True
            return text
        if quoted:
            vectors = [[literals.value(v) for v in vector] for vector in vectors]
        if vectors not in columns:
            columns.append(vectors)
            count = sum(name.rstrip("_0123456789") == word for name in names)
            names.append(f"{word}_{count}" if count else word)
        return names[columns.index(vectors)]

    for position in range(len(given[0][0])):
        vectors = [[iteration[position] for iteration in loop] for loop in given]
        varying.append(any(part != vector[0] for vector in vectors for part in vector))
        if isinstance(vectors[0][0], Read):
            paths = [[p.path for p in vector if isinstance(p, Read)] for vector in vectors]
            arguments.append(_path(paths, parts, functools.partial(expression, word="name")))
            continue
        holes = [[p for p in vector if isinstance(p, Hole)] for vector in vectors]
        if all(len({h.text for h in vector}) == 1 for vector in holes):
            arguments.append((1, "{}"))
            for own, vector in zip(parts, holes, strict=True):
                own.append(vector[0])
            continue
        texts = [[h.text for h in vector] for vector in holes]
        strings = all(re.fullmatch(r'"[^"\\]*"', t) for vector in texts for t in vector)
        plain = [[t[1:-1] for t in vector] if strings else vector for vector in texts]
        dims = [own.union(*(h.dims for h in vector)) for own, vector in zip(dims, holes, strict=True)]
        arguments.append((0, _escaped(expression(plain, words[position], quoted=strings))))
    for i, own in enumerate(parts):
        own.append(_iterable([column[i] for column in columns], len(given[i]), dims[i]))
    return Header(["i", *names] if indexed else names or ["_"], indexed, bool(columns), arguments, varying), parts


def _iterable(columns: list[list[str]], count: int, dims: frozenset[str]) -> Hole:
    if not columns:
        return Hole(str(count), "depth")
    rows = list(zip(*columns, strict=True))
    items = [row[0] if len(row) == 1 else f"({', '.join(row)})" for row in rows]
    return Hole(f"({', '.join(items)})", "names", dims)


def _path(
    paths: list[list[tuple[str, ...]]], parts: list[list[Part]], expression: Callable[..., str]
) -> tuple[int, str]:
    """Return the expression for a subtree of params in an iteration.

    It is the path that all iterations share, with subscripts.
    """
    length = len(paths[0][0])  # of all: `Item.depths`
    varying = [any(len({path[k] for path in vector}) > 1 for vector in paths) for k in range(length)]
    start = varying.index(True) if True in varying else length
    for own, vector in zip(parts, paths, strict=True):
        own.append(Read(vector[0][:start]))
    count, text = 1, "{}"
    for k in range(start, length):
        if varying[k]:
            words = [[path[k] for path in vector] for vector in paths]
            text += f"[{_escaped(expression(words, quoted=True))}]"
        else:
            count += 1
            text += "[{}]"
            for own, vector in zip(parts, paths, strict=True):
                own.append(Hole(literals.value(vector[0][k]), "name"))
    return count, text


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def by_index(vector: Sequence[str], *, quoted: bool) -> str | None:
    """Return an expression of ``i`` for a vector's elements, None if none exists."""
    if not quoted:
        numbers = integers(vector)
        return affine(numbers, range(len(numbers)), "i") if numbers else None
    names = NumberedNames.of(vector)
    index = affine(names.numbers, range(len(vector)), "i") if names is not None else None
    return names.source(index) if names is not None and index is not None else None


@dataclasses.dataclass(frozen=True)
class NumberedNames:
    """Names that differ in a number.

    Attributes:
      start: text before the number.
      numbers: that of each name.
      end: text after the number; None: Keras has numbered the names, of which the first has none.
    """

    start: str
    numbers: Sequence[int]
    end: str | None

    @classmethod
    def of(cls, names: Sequence[str]) -> NumberedNames | None:
        """Return names as such, None if they are none."""
        start = common_prefix(names).rstrip("0123456789")
        rests = [name[len(start) :] for name in names]
        end = common_prefix([rest[::-1] for rest in rests])[::-1].lstrip("0123456789")
        numbers = integers([rest[: len(rest) - len(end)] for rest in rests])
        if numbers and min(numbers) >= 0:
            return cls(start, numbers, end)
        base = min(names, key=len)
        later = [re.fullmatch(re.escape(base) + r"_([1-9]\d{0,8})", name) for name in names]
        if any(match is None and name != base for match, name in zip(later, names, strict=True)):
            return None
        return cls(base, [int(match[1]) if match else 0 for match in later], None)

    def source(self, index: str) -> str:
        """Return the source of the name with an index, given by its source."""
        if self.end is None:
            return f"_numbered({literals.value(self.start)}, {index})"
        return f'f"{_in_f_string(self.start)}{{{index}}}{_in_f_string(self.end)}"'


def integers(texts: Sequence[str]) -> list[int]:
    """Return the integers that texts are, none if one is none."""
    return [int(t) for t in texts] if all(re.fullmatch(r"0|-?[1-9]\d{0,8}", t) for t in texts) else []


def _in_f_string(text: str) -> str:
    return literals.value(text)[1:-1].replace("{", "{{").replace("}", "}}")


def affine(numbers: Sequence[int], given: Sequence[int], name: str) -> str | None:
    """Return numbers as a multiple of given ones plus a constant, or None.

    Args:
      numbers: they.
      given: the values of ``name``.
      name: a variable.
    """
    first = given[0]
    other = next((i for i, value in enumerate(given) if value != first), None)
    if other is None or numbers[other] == numbers[0]:
        return None
    step, rest = divmod(numbers[other] - numbers[0], given[other] - first)
    start = numbers[0] - step * first
    if rest or any(n != start + step * value for n, value in zip(numbers, given, strict=True)):
        return None
    factor = name if step == 1 else f"{step} * {name}"
    return factor if not start else f"{factor} {'+' if start > 0 else '-'} {abs(start)}"
