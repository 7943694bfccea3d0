"""Write functions that differ in training mode alone as one function.

Without its dropout, and with moving statistics in batch normalization, a training function has to compute the same as
the inference function. Both blocks are compared step by step after that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .block_ir import Block, Literal, Value
from .entries import Entry
from .idioms.candidates import rewrite_all
from .idioms.matching import equal_blocks
from .jax_random import DROPOUT
from .norms import STEP as BATCH_NORM
from .norms import has_updates


def merge_modes(entries: Sequence[Entry], rules: Mapping[str, Any]) -> list[Entry]:
    """Return functions, with pairs that differ in training mode alone as one.

    Args:
      entries: the functions, with idioms.
      rules: of idioms, by primitive.
    """
    found = list(entries)
    for train in entries:
        for other in entries:
            if train in found and other in found and other is not train and _is_inference(other, train, rules):
                place = min(found.index(train), found.index(other))
                found = [e for e in found if e is not train and e is not other]
                found.insert(place, _merged(other, train))
    return found


def _is_inference(other: Entry, train: Entry, rules: Mapping[str, Any]) -> bool:
    """Return whether a function is another one in inference mode."""
    if other.returned or train.returned or other.rng or has_updates(other.block):
        return False
    same = (other.inputs, other.arguments, other.structure) == (train.inputs, train.arguments, train.structure)
    if not same or not {*other.variables} <= {*train.variables}:
        return False
    block = _for_inference(train.block)
    rewrite_all(block, rules)
    args = dict(zip(train.variables, block.args, strict=False))
    count = len(train.variables)
    block.args = [*(args[name] for name in other.variables), *block.args[count : count + len(train.inputs)]]
    return equal_blocks(block, other.block)


def _for_inference(block: Block) -> Block:
    """Return a copy of a block in inference mode."""
    same: dict[int, Value | Literal] = {}
    steps = []

    def read(item: Any) -> Any:
        return same.get(id(item), item)

    for step in block.steps:
        inputs = [read(v) for v in step.inputs]
        if step.name == DROPOUT:
            same[id(step.outputs[0])] = inputs[0]
            continue
        params = step.params
        if step.name == BATCH_NORM:
            params = {**params, "momentum": None}
            inputs = [*inputs[:-1], Literal(np.asarray(False))]
        steps.append(dataclasses.replace(step, inputs=inputs, params=params))
    copy = Block(list(block.args), steps, [read(r) for r in block.results])
    copy.prune()
    return copy


def _merged(other: Entry, train: Entry) -> Entry:
    """Return a function of both modes."""
    block = train.block
    updates = has_updates(block)
    flag = Value(None, "train") if updates else None
    steps = [
        dataclasses.replace(s, inputs=[*s.inputs[:-1], flag])
        if flag is not None and s.name == BATCH_NORM and s.params["momentum"] is not None
        else s
        for s in block.steps
    ]
    block = dataclasses.replace(block, steps=steps)
    return dataclasses.replace(train, block=block, train=flag, callers=(other, train))
