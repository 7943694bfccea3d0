"""Public functions of a module: their computation, arguments and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.params import param_path
from tf2jax_lite.calling.structures import OutputRef

from . import literals
from .block_ir import Block, Literal, Scope, Value
from .registry import tuple_of


@dataclasses.dataclass(frozen=True)
class Result(OutputRef):
    """A leaf in the structure of results: which result of the block."""


@dataclasses.dataclass
class Entry:
    """One public function of the module.

    Attributes:
      name: its unique name in the source.
      block: its computation. Its arguments are the variables, the inputs, and the key, in this order.
      variables: names of the variables that it takes.
      inputs: names of its arrays, in the block's order.
      arguments: its parameters: names, each with a structure of `Result` leaves into ``inputs``.
      rng: whether it takes a key.
      structure: of its results: dicts, lists and tuples with `Result` leaves, and plain values.
      updates: variable name to the index of the result that is its new value.
      doc: the first line of its docstring.
      args_doc: the lines about its arrays.
      results_doc: the results' shapes; without them the docstring has one line.
      statistics: variables that hold statistics of batches.
      state: whether it takes arrays that do not train apart from those that do.
      in_place: names of updated variables that layers assign themselves, in a copy of the params.
      train: the argument that selects training mode, if it has one.
      callers: public functions that call it: for inference, and for training.
      training: whether a class has to be in training mode for it.
    """

    name: str
    block: Block
    variables: list[str]
    inputs: list[str]
    arguments: Mapping[str, Any]
    rng: bool
    structure: Any
    updates: Mapping[str, int]
    doc: str = ""
    args_doc: Sequence[str] = ()
    results_doc: str = ""
    statistics: Collection[str] = ()
    state: bool = False
    in_place: set[str] = dataclasses.field(default_factory=set)
    train: Value | None = None
    callers: Sequence[Entry] = ()
    training: bool = False

    def docstring(self, params: Sequence[str], key: str, after: str = "") -> list[str]:
        """Return the lines of its docstring.

        Args:
          params: lines about the arguments before the arrays.
          key: the line about the key, if it takes one.
          after: the text about results after the model's.
        """
        if not self.results_doc:
            return [self.doc] if self.doc else []
        given = [f"  {line}" for line in (*params, *self.args_doc, *([key] if self.rng else []))]
        returned = f"  The results ({self.results_doc}){after}."
        return [self.doc, *(["", "Args:", *given] if given else []), "", "Returns:", returned]

    @property
    def returned(self) -> dict[str, int]:
        """Indices of updated variables' new values, but for those in place."""
        return {name: index for name, index in self.updates.items() if name not in self.in_place}

    def drop_unused_results(self) -> None:
        """Replace results by 0 that are neither returned nor new values of variables."""
        returned = {leaf.index for leaf in jax.tree.leaves(self.structure) if isinstance(leaf, Result)}
        kept = {*returned, *self.returned.values()}
        results = self.block.results
        self.block.results = [r if i in kept else Literal(np.zeros((), np.int32)) for i, r in enumerate(results)]
        self.block.prune()


def is_read(name: str, entry: Entry) -> bool:
    """Return whether a function reads or updates a variable."""
    used = {id(v): v for v in entry.block.used()}
    args = dict(zip(entry.variables, entry.block.args, strict=False))
    if name in entry.updates or id(args.get(name)) in used:
        return True
    path = param_path(name, entry.variables)
    return any(isinstance(v, Scope) and path[: len(v.path)] == v.path for v in used.values())


def nested_text(updates: Mapping[tuple[str, ...], str]) -> str:
    """Return the source of nested dicts."""
    groups: dict[str, dict[tuple[str, ...], str]] = {}
    for path, text in updates.items():
        groups.setdefault(path[0], {})[path[1:]] = text
    items = [f"{literals.value(k)}: {inner[()] if () in inner else nested_text(inner)}" for k, inner in groups.items()]
    return "{" + ", ".join(items) + "}"


def structure_text(structure: Any, results: Sequence[str]) -> str:
    """Return the source of an entry's results."""
    if isinstance(structure, Result):
        return results[structure.index]
    if isinstance(structure, Mapping):
        items = [f"{literals.value(str(k))}: {structure_text(v, results)}" for k, v in structure.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(structure, list):
        return f"[{', '.join(structure_text(v, results) for v in structure)}]"
    if isinstance(structure, tuple):
        return tuple_of([structure_text(v, results) for v in structure]) if structure else "()"
    return literals.value(structure)


def leaves_of(structure: Any, source: str) -> list[tuple[int, str]]:
    """Return the arrays in a structure: number and the source that reads it."""
    if isinstance(structure, Result):
        return [(structure.index, source)]
    if isinstance(structure, Mapping):
        return [x for k, v in structure.items() for x in leaves_of(v, f"{source}[{literals.value(str(k))}]")]
    if isinstance(structure, (list, tuple)):
        return [x for i, v in enumerate(structure) for x in leaves_of(v, f"{source}[{i}]")]
    return []
