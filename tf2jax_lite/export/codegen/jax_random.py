"""Draw random numbers of Keras's seeds by `jax.random` of the caller's key.

The numbers have the same distribution as TensorFlow's. Each draw folds its number into the key, so that a function
draws other numbers for each layer, and the caller passes another key for each call.
"""

from __future__ import annotations

import jax
import numpy as np

from .block_ir import Equation, Literal, Value
from .entries import Entry

_ON_SEEDS = ("mod", "add", "reshape", "convert_element_type", "copy", "philox_key", "squeeze", "expand_dims")


def draw_from_key(entry: Entry) -> None:
    """Draw by `jax.random` instead of by seeds, which are no longer updated.

    Draws in loops, and those of seeds that the caller passes, stay TensorFlow's.

    Args:
      entry: a function after its idioms are written; changed in place.
    """
    block, count = entry.block, len(entry.variables)
    updated = {id(arg) for name, arg in zip(entry.variables, block.args, strict=False) if name in entry.updates}
    seeds = {id(a): {id(a)} for a in block.args[:count] if id(a) in updated and a.aval.dtype == np.int32}
    draws: list[int] = []
    for place, step in enumerate(block.steps):
        found = {source for v in step.inputs for source in seeds.get(id(v), ())}
        if found and step.name in ("philox_dropout", "philox_uniform"):
            draws.append(place)
        elif found and step.name in _ON_SEEDS:
            seeds.update((id(v), found) for v in step.outputs)
    if not draws:
        return
    if not entry.rng:
        block.args.append(Value(jax.eval_shape(lambda: jax.random.key(0)), "rng"))
        entry.rng = True
        entry.doc = _with_key(list(entry.doc))
    key = block.args[-1]
    steps: list[Equation] = []
    for place, step in enumerate(block.steps):
        if place in draws:
            number = Literal(np.asarray(draws.index(place), np.uint32))
            own = Value(key.aval, "key")
            steps.append(Equation("random_fold_in", {}, [key, number], [own], step.path))
            name = step.name.replace("philox", "jax")
            others = step.inputs[:1] if step.name == "philox_dropout" else []
            step = Equation(name, step.params, [*others, own], step.outputs, step.path)
        steps.append(step)
    block.steps = steps
    entry.updates = {name: i for name, i in entry.updates.items() if id(block.results[i]) not in seeds}
    returned = {leaf.index for leaf in jax.tree.leaves(entry.structure) if hasattr(leaf, "index")}
    kept = {*returned, *entry.updates.values()}
    block.results = [r if i in kept else Literal(np.zeros((), np.int32)) for i, r in enumerate(block.results)]
    block.prune()


def _with_key(doc: list[str]) -> list[str]:
    """Return a docstring with the key among the arguments."""
    line = "  rng: a key, as jax.random.key makes it."
    at = doc.index("Returns:") - 1 if "Returns:" in doc else len(doc)
    return [*doc[:at], line, *doc[at:]] if "Args:" in doc else [*doc[:at], "", "Args:", line, *doc[at:]]
