"""Passes large constants to functions with derivative rules as arguments.

Constants are read from ``params``, which module-level functions cannot access, and which may be differentiated and
batched. So they become ordinary arguments, whose derivatives are unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp

from .block_ir import Block, Constant, Equation, Literal, Value
from .names import identifier


def pass_constants(block: Block) -> None:
    """Turn large constants of functions with derivative rules into arguments.

    Args:
      block: a whole function; changed in place, and idempotent.
    """
    for step in block.steps:
        for inner in step.blocks.values():
            pass_constants(inner)
        if "key" in step.params:
            _pass(step)


def _pass(step: Equation) -> None:
    """Turn the constants of a function and its rules into arguments of the call."""
    found = list({id(v): v for b in step.blocks.values() for v in b.used() if isinstance(v, Constant)}.values())
    if not found:
        return
    count, outputs = len(step.inputs), len(step.outputs)
    used = {role: {id(v) for v in block.used()} for role, block in step.blocks.items()}
    saved = [c for c in found if id(c) in used.get("backward", ())]
    for role, block in step.blocks.items():
        own = {id(c): Value(c.aval, c.hint) for c in found}
        _replace(block, own, step.params["key"])
        every, args = list(own.values()), block.args
        if role == "jvp":
            tangents = [Value(c.aval) for c in found if jnp.issubdtype(c.aval.dtype, jnp.inexact)]
            block.args = [*args[:count], *every, *args[count:], *tangents]
        elif role == "backward":
            before = len(step.blocks["forward"].results) - outputs - len(saved)
            block.args = [*args[:before], *(own[id(c)] for c in saved), *args[before:]]
        else:
            block.args = [*args, *every]
        if role == "forward":
            block.results = [*block.results, *(own[id(c)] for c in saved)]
    step.inputs = [*step.inputs, *found]


def _replace(block: Block, own: Mapping[int, Value], key: object) -> None:
    """Replace constants in a block by arguments, which recursive calls forward."""

    def read(values: Sequence[Value | Literal]) -> list[Value | Literal]:
        return [own.get(id(v), v) for v in values]

    for step in block.steps:
        step.inputs = read(step.inputs)
        if step.params.get("key") is key:
            step.inputs.extend(own.values())
        for inner in step.blocks.values():
            _replace(inner, own, key)
    block.results = read(block.results)


def name_constants(block: Block) -> None:
    """Name large constants for the steps that use them."""
    for step in block.steps:
        for item in (*step.inputs, *step.captured()):
            if isinstance(item, Constant) and not item.hint:
                item.hint = identifier("_".join(step.path[-2:])) if step.path else "array"
