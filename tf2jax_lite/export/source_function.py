"""Runs written source in place of the function that it was written from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax

from tf2jax_lite.calling.params import Stacks, names_of, stacked

from . import codegen
from .reader import call_source, collect_results
from .stage import Staged


def run_source(text: str) -> dict[str, Any]:
    """Return the names that a module defines."""
    module: dict[str, Any] = {}
    exec(compile(text, "model.py", "exec"), module)  # our own text, in which names of the model are string literals
    return module


def returns_all(staged: Staged, entry: codegen.Entry) -> bool:
    """Return whether a function's source returns all of its results."""
    refs = [leaf.index for leaf in jax.tree.leaves(entry.structure) if isinstance(leaf, codegen.Result)]
    return set(refs) == set(range(len(staged.results)))


def from_source(
    staged: Staged,
    entry: codegen.Entry,
    recorded: Mapping[str, Any],
    written: Callable[..., Any],
    constants: Mapping[str, Any],
    state: Collection[str],
    stacks: Stacks,
) -> Staged:
    """Return a traced function that runs its source on stacked params of equal layers.

    Args:
      recorded: the metadata of the function.
      constants: the module's large constants by name.
      state: the names of arrays that do not train.
    """
    keys = {name: key for key, layers in stacks.items() for name in names_of(layers)}
    names = list(dict.fromkeys(keys.get(name, name) for name in staged.variables))
    constants = stacked(constants, stacks)

    def function(variables: list[Any], inputs: list[Any], key: list[Any]) -> Any:
        params = {**dict(zip(names, variables, strict=True)), **constants}
        results, after = call_source(written, recorded, params, state, inputs, {"rng": key[0]} if key else {})
        flat: dict[int, Any] = {}
        collect_results(entry.structure, results, flat)
        return [flat[i] for i in range(len(flat))], [after[name] for name in updates]

    updates = [name for name in staged.updates if name in entry.updates]
    return dataclasses.replace(staged, variables=names, updates=updates, rng=entry.rng, function=function)
