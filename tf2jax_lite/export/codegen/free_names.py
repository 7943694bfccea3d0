"""Free names of written functions: symbolic dimensions, and undefined names."""

from __future__ import annotations

import ast
import builtins
import symtable
import textwrap
from collections.abc import Mapping, Sequence

from tf2jax_lite.dynamic_shapes.dim_expr import linear_terms, names_in
from tf2jax_lite.support.errors import ExportError

from .block_ir import Value


def dimension_sources(values: Sequence[tuple[str, Value]]) -> dict[str, str]:
    """Return symbolic dimensions with the expressions that compute them.

    A size that is the dimension itself has priority over a size that is a multiple of it.
    """
    found: dict[str, str] = {}
    multiples: dict[str, str] = {}
    for name, value in values:
        for axis, dim in enumerate(value.aval.shape):
            terms = linear_terms(dim) or {}
            symbols = terms.keys() - {""}
            if len(symbols) != 1:
                continue
            (symbol,), more = symbols, terms.get("", 0)
            times, size = terms[symbol], f"{name}.shape[{axis}]"
            if (times, more) == (1, 0):
                found.setdefault(symbol, size)
            elif times > 0 and more >= 0:
                less = f"({size} - {more})" if more else size
                multiples.setdefault(symbol, f"{less} // {times}" if times > 1 else less)
    return multiples | found


def loaded(lines: Sequence[str]) -> set[str]:
    """Return the names that lines of a function use."""
    text = textwrap.dedent("\n".join(lines))
    return {n.id for n in ast.walk(ast.parse("def f():\n" + textwrap.indent(text, "    "))) if isinstance(n, ast.Name)}


def undefined(source: str) -> list[str]:
    """Return the undefined names of a module's functions.

    Defined names are their own, the module's and Python's.

    Raises:
      SyntaxError: it is no Python.
    """
    module = symtable.symtable(source, "model.py", "exec")
    known = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    known |= {*dir(builtins), "__file__"}
    tables, unknown = [module], set()
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        used = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        unknown |= used - known
    return sorted(unknown)


def dimensions(names: Sequence[str], args: Sequence[Value], count: int) -> dict[str, str]:
    """Return the symbolic dimensions of a function, each with an expression for it.

    Args:
      names: of its inputs.
      args: its arguments, of which the inputs come after the variables.
      count: number of the variables.

    Raises:
      ExportError: no input tells a dimension.
    """
    found = dimension_sources(list(zip(names, args[count:], strict=False)))
    needed = {d for value in args if hasattr(value.aval, "shape") for dim in value.aval.shape for d in names_in(dim)}
    if needed - found.keys():
        raise ExportError(f"no input tells the dimensions {sorted(needed - found.keys())} directly")
    return found


def check_multiple(dim: str, source: str) -> list[str]:
    """Return lines that raise `ValueError` unless a size is a required multiple."""
    size, _, times = source.partition(" // ")
    if not times:
        return []
    return [
        f"if {size} != {times} * {dim}:",
        f'    raise ValueError(f"{size} must be a multiple of {times}, not {{{size}}}")',
    ]


def roots(dims: Mapping[str, str]) -> set[str]:
    """Return the names from whose shapes dimensions are read."""
    return {source.split(".")[0] for source in dims.values()}
