"""Contents of lookup tables, from their initializers: constants or text files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import attributes, op_defs
from tf2jax_lite.frontend.safety.unsafe_ops import outside_file
from tf2jax_lite.ops.containers.lookup_table import Table, table_of
from tf2jax_lite.support.errors import InvalidModelError, OpError, UnsupportedError
from tf2jax_lite.support.limits import regular

TABLE_OPS = frozenset({"HashTable", "HashTableV2"})
"""Ops that make a table which an initializer fills once."""

_FROM_ARRAYS = frozenset({"InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2"})
_FROM_FILE = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_WHOLE_LINE, _LINE_NUMBER = -2, -1
_DEEPEST = 4  # ends a cycle of nodes
_MAX_NUMBERS = 1 << 24  # of a range, which an untrusted graph can declare in a few bytes


class Tables:
    """The tables of a graph.

    Args:
      assets: for each constant that names a file, the path of the file.
      model: the model's directory; files outside of it are read only if ``config.trusted`` names them.
    """

    def __init__(
        self, graph: Any, assets: Mapping[str, str] | None = None, model: str | os.PathLike[str] | None = None
    ):
        self._graph = graph
        self._model = model
        self._assets = dict(assets or {})
        self._protos: dict[str, Any] | None = None
        self._fillers: dict[str, Any] = {}

    def table(self, node: ir.Node) -> Table:
        """Return the contents of a table."""
        if self._protos is None:
            self._protos = {proto.name: proto for proto in self._graph.node}
            for proto in self._protos.values():
                if proto.op in _FROM_ARRAYS | _FROM_FILE:
                    self._fillers.setdefault(self._source(proto.input[0]).name, proto)
        filler = self._fillers.get(node.name)
        if filler is None:
            raise UnsupportedError(f"table {node.name!r}: no node of the graph initializes it.")
        try:
            if filler.op in _FROM_ARRAYS:
                return table_of(self._constant(filler, 1).reshape(-1), self._constant(filler, 2))
            return self._read(node, filler)
        except OpError as error:
            raise InvalidModelError(f"table {node.name!r}, filled by {filler.name!r}: {error}") from error

    def _source(self, text: str) -> Any:
        assert self._protos is not None
        seen: set[str] = set()
        while True:
            name = text.lstrip("^").split(":")[0]
            if name in seen:
                raise InvalidModelError(f"node {name!r} is on a cycle.")
            seen.add(name)
            proto = self._protos.get(name)
            if proto is None:
                raise InvalidModelError(f"there is no node {name!r}.")
            if proto.op not in ("Identity", "RefIdentity"):
                return proto
            text = proto.input[0]

    def _constant(self, filler: Any, index: int, depth: int = 0) -> np.ndarray:
        """Return an initializer's keys or values: a constant, or a range of one's size."""
        if index >= len(filler.input):
            raise InvalidModelError(f"node {filler.name!r} ({filler.op}) has no input {index}.")
        proto = self._source(filler.input[index])
        if proto.op == "Const":
            return attributes.tensor_of(proto.attr["value"].tensor)
        options = op_defs.read_attrs(proto) if depth < _DEEPEST else {}
        if proto.op == "Cast" and isinstance(options.get("DstT"), np.dtype):
            found = self._constant(proto, 0, depth + 1)
            if found.dtype.kind in "iu":
                return found.astype(options["DstT"])
        elif proto.op == "Range" and options and len(proto.input) == 3:
            bounds = [self._constant(proto, i, depth + 1) for i in range(3)]
            if all(v.size == 1 and v.dtype.kind in "iu" for v in bounds):
                numbers = range(*(int(v.item()) for v in bounds)) if bounds[2] else range(0)
                if len(numbers) <= _MAX_NUMBERS:
                    return np.asarray(numbers, bounds[0].dtype)
        elif proto.op == "Size" and isinstance(options.get("out_type"), np.dtype):
            return np.asarray(self._constant(proto, 0, depth + 1).size, options["out_type"])
        raise UnsupportedError(
            f"node {filler.name!r} ({filler.op}) fills a table with the result of {proto.name!r} ({proto.op}); "
            "only constants and text files can be read without running the model."
        )

    def _read(self, node: ir.Node, filler: Any) -> Table:
        options = op_defs.read_attrs(filler)
        source = self._source(filler.input[1])
        given = self._assets.get(source.name)
        if given is not None:
            file = Path(given)
        else:
            file = outside_file(attributes.text_of(self._constant(filler, 1).item()), self._model)
        try:
            lines = regular(file).read_bytes().split(b"\n")
        except OSError as error:
            raise InvalidModelError(f"table {node.name!r}: the file {file} cannot be read ({error}).") from error
        if lines and not lines[-1]:
            lines.pop()
        lines = [line.removesuffix(b"\r") for line in lines]
        size = options.get("vocab_size", -1)
        lines = lines[options.get("offset", 0) :]
        if size >= 0:
            if size > len(lines):
                raise InvalidModelError(f"table {node.name!r}: {file} has {len(lines)} lines, {size} are expected.")
            lines = lines[:size]
        delimiter = options.get("delimiter", "\t").encode()
        rows = [line.split(delimiter) for line in lines]

        def column(index: int, dtype: ir.DType | None) -> np.ndarray:
            if index == _LINE_NUMBER:
                return np.arange(len(lines), dtype=np.int64)
            texts = lines if index == _WHOLE_LINE else [_field(row, index, file, i) for i, row in enumerate(rows)]
            if isinstance(dtype, np.dtype):
                return _numbers(texts, dtype, file)
            found = np.empty(len(texts), object)
            found[:] = texts
            return found

        keys = column(options["key_index"], node.attrs.get("key_dtype"))
        values = column(options["value_index"], node.attrs.get("value_dtype"))
        return table_of(keys, values)


def _field(row: list[bytes], index: int, file: Path, number: int) -> bytes:
    if index >= len(row):
        raise InvalidModelError(f"{file}, line {number + 1}: has {len(row)} columns, but column {index} is read.")
    return row[index]


def _numbers(texts: list[bytes], dtype: np.dtype, file: Path) -> np.ndarray:
    try:
        return np.array([text.strip().decode() for text in texts]).astype(dtype) if texts else np.zeros(0, dtype)
    except ValueError as error:
        raise InvalidModelError(f"{file}: not a column of numbers ({error}).") from error
