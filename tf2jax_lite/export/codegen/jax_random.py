"""Draw random numbers of Keras's seeds by `jax.random` of the caller's key.

The numbers have the same distribution as TensorFlow's. Each draw folds its number into the key, so that a function
draws other numbers for each layer, and the caller passes another key for each call.
"""

from __future__ import annotations

import jax
import numpy as np

from .block_ir import Equation, Literal, Value
from .entries import Entry

DROPOUT = "jax_dropout"
_DRAWS = {"philox_dropout": DROPOUT, "philox_uniform": "jax_uniform", "philox_normal": "jax_normal"}
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
        if found and step.name in _DRAWS:
            draws.append(place)
        elif found and step.name in _ON_SEEDS:
            seeds.update((id(v), found) for v in step.outputs)
    if not draws:
        return
    if not entry.rng:
        block.args.append(Value(jax.eval_shape(lambda: jax.random.key(0)), "rng"))
        entry.rng = True
    key = block.args[-1]
    steps: list[Equation] = []
    for place, step in enumerate(block.steps):
        if place in draws:
            number = draws.index(place)
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
    entry.updates = {name: i for name, i in entry.updates.items() if id(block.results[i]) not in seeds}
    entry.drop_unused_results()
