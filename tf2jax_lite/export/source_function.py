"""Runs written source in place of the function that it was written from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from tf2jax_lite.calling.params import flatten_params, nest_params
from tf2jax_lite.calling.structures import map_structure

from . import codegen
from .stage import Staged

__all__ = ["from_source"]


def from_source(staged: Staged, entry: codegen.Entry, source: str, constants: Mapping[str, Any]) -> Staged:
    """Return a traced function that runs its source.

    Args:
      staged: the function.
      entry: its entry in the source.
      source: the module, as `codegen.write_module` returned it.
      constants: the module's large constants by name.
    """
    refs = [leaf.index for leaf in jax.tree.leaves(entry.structure) if isinstance(leaf, codegen.Result)]
    if set(refs) != set(range(len(staged.results))):  # the source does not return all results
        return staged
    module: dict[str, Any] = {}
    exec(compile(source, "model.py", "exec"), module)  # our own text, in which names of the model are string literals
    written = module[entry.name]

    def function(variables: list[Any], inputs: list[Any], key: list[Any]) -> Any:
        params = nest_params({**dict(zip(staged.variables, variables, strict=True)), **constants})
        given = [
            map_structure(lambda x: inputs[x.index] if isinstance(x, codegen.Result) else x, structure)
            for structure in entry.arguments.values()
        ]
        results, after = written(params, *given, **({"rng": key[0]} if key else {}))
        flat: dict[int, Any] = {}
        _collect(entry.structure, results, flat)
        updated = flatten_params(after)
        return [flat[i] for i in range(len(flat))], [updated[name] for name in staged.updates]

    return dataclasses.replace(staged, function=function)


def _collect(structure: Any, results: Any, flat: dict[int, Any]) -> None:
    """Add the results that stand where the structure has references, by number."""
    if isinstance(structure, codegen.Result):
        flat[structure.index] = results
    elif isinstance(structure, Mapping):
        for key, inner in structure.items():
            _collect(inner, results[str(key)], flat)
    elif isinstance(structure, (list, tuple)):
        for inner, result in zip(structure, results, strict=True):
            _collect(inner, result, flat)
