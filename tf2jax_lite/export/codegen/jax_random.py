"""Draw random numbers of Keras's seeds by `jax.random` of the caller's key.

The numbers have the same distribution as TensorFlow's. Each draw folds its number into the key, so that a function
draws other numbers for each layer, and the caller passes another key for each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from .block_ir import Equation, Literal, Value
from .entries import Entry

DROPOUT = "jax_dropout"
_DRAWS = {"philox_dropout": DROPOUT, "philox_uniform": "jax_uniform", "philox_normal": "jax_normal"}
_ON_SEEDS = ("mod", "add", "reshape", "convert_element_type", "copy", "philox_key", "squeeze", "expand_dims")


def draw_from_key(entries: Sequence[Entry]) -> None:
    """Draw by `jax.random` instead of by seeds, which are no longer updated.

    Draws in loops, and those of seeds that the caller passes, stay TensorFlow's.

    Args:
      entries: functions after their idioms are written; changed in place. Keras updates a seed in inference mode, too.
    """
    found = [_find_draws(entry) for entry in entries]
    seeds = set[str]().union(*(f.drawn for f in found)).difference(*(f.held for f in found))
    for entry, draws in zip(entries, found, strict=True):
        if draws.indices:
            _draw(entry, draws.indices)
        kept = {n: i for n, i in entry.updates.items() if draws.sources.get(id(entry.block.results[i])) != {n}}
        kept |= {name: i for name, i in entry.updates.items() if name not in seeds}
        if draws.indices or kept != entry.updates:
            entry.updates = kept
            entry.drop_unused_results()


class _Draws(NamedTuple):
    """Where a function draws numbers of seeds.

    Attributes:
      indices: of the steps that are draws.
      sources: the identity of a value to the names of the seeds that it is computed from.
      drawn: names of the seeds of these draws.
      held: names of seeds that other steps read.
    """

    indices: list[int]
    sources: dict[int, set[str]]
    drawn: set[str]
    held: set[str]


def _find_draws(entry: Entry) -> _Draws:
    block = entry.block
    names = [(n, a) for n, a in zip(entry.variables, block.args, strict=False) if n in entry.updates]
    draws = _Draws([], {id(a): {n} for n, a in names if a.aval.dtype == np.int32}, set(), set())
    for index, step in enumerate(block.steps):
        found = set[str]().union(*(draws.sources.get(id(v), ()) for v in (*step.inputs, *step.captured())))
        if found and step.name in _DRAWS:
            draws.indices.append(index)
            draws.drawn.update(found)
        elif found and step.name in _ON_SEEDS:
            draws.sources.update((id(v), found) for v in step.outputs)
        else:
            draws.held.update(found)
    return draws


def _draw(entry: Entry, indices: Sequence[int]) -> None:
    """Replace steps by draws of the function's key, which becomes an argument."""
    block = entry.block
    if not entry.rng:
        block.args.append(Value(jax.eval_shape(lambda: jax.random.key(0)), "rng"))
        entry.rng = True
    key = block.args[-1]
    steps: list[Equation] = []
    for index, step in enumerate(block.steps):
        if index in indices:
            number = indices.index(index)
            if step.name == "philox_dropout":
                params = {**step.params, "layer": number}
                step = Equation(DROPOUT, params, [step.inputs[0], key], step.outputs, step.path)
            else:
                own = Value(key.aval, "key")
                fold = Literal(np.asarray(number, np.uint32))
                steps.append(Equation("random_fold_in", {}, [key, fold], [own], step.path))
                step = Equation(_DRAWS[step.name], {}, [own], step.outputs, step.path)
        steps.append(step)
    block.steps = steps
