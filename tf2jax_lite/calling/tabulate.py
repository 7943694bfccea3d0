"""Params as a table, for terminals and notebooks."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.html_page import code, escaped, fragment, table
from tf2jax_lite.support.text import printable, size_text

from .params import flatten_params, is_trainable

_TITLES = ("name", "shape", "dtype", "trains", "elements", "size")
_NUMERIC = ("elements", "size")


@dataclasses.dataclass(frozen=True)
class _Row:
    name: str
    shape: str
    dtype: str
    trains: bool | None
    elements: int
    bytes: int

    def cells(self) -> list[str]:
        trains = "" if self.trains is None else "yes" if self.trains else "no"
        return [self.name, self.shape, self.dtype, trains, f"{self.elements:,}", size_text(self.bytes)]


@dataclasses.dataclass(frozen=True)
class ParamsTable:
    """The table of `tabulate`, for ``print`` and for notebooks.

    Attributes:
      totals: of the params that train, of the others, and of all; only those that there are.
    """

    rows: tuple[_Row, ...]
    totals: tuple[_Row, ...]

    def __rich__(self) -> Any:
        """Return the table for a `rich.console.Console`."""
        from rich.table import Table
        from rich.text import Text

        found = Table(show_footer=False)
        for title in _TITLES:
            found.add_column(title, justify="right" if title in _NUMERIC else "left", overflow="fold")
        for row in self.rows:
            found.add_row(*(Text(printable(cell)) for cell in row.cells()))
        found.add_section()
        for row in self.totals:
            found.add_row(*(Text(printable(cell), "bold") for cell in row.cells()))
        return found

    def __str__(self) -> str:
        from rich.console import Console

        file = io.StringIO()
        Console(file=file, width=1000, color_system=None, force_jupyter=False).print(self)  # wide enough for any name
        return file.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [[code(row.name), *map(escaped, row.cells()[1:])] for row in self.rows]
        totals = [[f"<b>{escaped(cell)}</b>" for cell in row.cells()] for row in self.totals]
        return fragment([table(_TITLES, [*rows, *totals], numeric=_NUMERIC)])


def tabulate(params: Mapping[str, Any], depth: int | None = None) -> ParamsTable:
    """Tabulate params: names, shapes, dtypes, sizes, and which of them train.

    Args:
      params: flat or nested, of arrays or `jax.ShapeDtypeStruct`.
      depth: add up the params whose names have the same first ``depth`` scopes; by default each has a row.

    Returns:
      A table that prints itself in a terminal and in a notebook.

    Raises:
      InputError: ``depth`` is not positive, or a param is not an array.

    Example:
      >>> print(tf2jax.tabulate(params))  # doctest: +SKIP
    """
    if depth is not None and depth < 1:
        raise InputError(f"depth is at least 1, got {depth}.")
    rows = tuple(_described(params))
    totals = {
        "trains": [row for row in rows if row.trains],
        "does not train": [row for row in rows if row.trains is False],
        "total": list(rows),
    }
    summed = tuple(_sum(name, some) for name, some in totals.items() if some or name == "total")
    return ParamsTable(rows if depth is None else tuple(_by_scope(rows, depth)), summed)


def _described(params: Mapping[str, Any]) -> Iterator[_Row]:
    for name, value in flatten_params(params).items():
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None or dtype is None:
            raise InputError(f"param {str(name)!r} is not an array, but a {type(value).__name__}.")
        elements = math.prod(shape)
        listed = "×".join(map(str, shape)) or "scalar"
        yield _Row(str(name), listed, str(dtype), is_trainable(name, value), elements, elements * dtype.itemsize)


def _by_scope(rows: tuple[_Row, ...], depth: int) -> Iterator[_Row]:
    scopes: dict[str, list[_Row]] = {}
    for row in rows:
        scopes.setdefault("/".join(row.name.split("/")[:depth]), []).append(row)
    for name, inside in scopes.items():
        yield inside[0] if len(inside) == 1 and inside[0].name == name else _sum(f"{name}/", inside)


def _sum(name: str, rows: list[_Row]) -> _Row:
    """Return the sum of rows, with the values that all of them share."""
    trains = {row.trains for row in rows}
    dtypes = sorted({row.dtype for row in rows})
    noun = "param" if len(rows) == 1 else "params"
    return _Row(
        name,
        f"{len(rows)} {noun}",
        ", ".join(dtypes),
        trains.pop() if len(trains) == 1 else None,
        sum(row.elements for row in rows),
        sum(row.bytes for row in rows),
    )
