"""Large constants of functions with derivative rules.

They are read from ``params``, which what stands outside of all functions cannot see; and params may be differentiated
and batched. So they are arguments like others, whose derivatives nobody uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp

from .block_ir import Block, Constant, Equation, Literal, Value

__all__ = ["pass_constants"]


def pass_constants(block: Block) -> None:
    """Makes inputs of functions with derivative rules of the large constants in them, wherever such are called.

    Args:
      block: a whole function. It is changed; nothing is left to do for it then.
    """
    for step in block.steps:
        for inner in step.blocks.values():
            pass_constants(inner)
        if "key" in step.params:
            _pass(step)


def _pass(step: Equation) -> None:
    """Makes inputs of a call, and arguments of the function and its rules, of the constants in them."""
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
    """Lets a block read arguments instead of constants, and pass them on where the function calls itself."""

    def read(values: Sequence[Value | Literal]) -> list[Value | Literal]:
        return [own.get(id(v), v) for v in values]

    for step in block.steps:
        step.inputs = read(step.inputs)
        if step.params.get("key") is key:
            step.inputs.extend(own.values())
        for inner in step.blocks.values():
            _replace(inner, own, key)
    block.results = read(block.results)
