"""Functions with derivative rules, which are written at module level.

They get all they use as arguments: values, large constants (`constants.py`), and those sizes that the shapes of their
arguments do not tell, which are not arrays (``nondiff_argnums``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax.numpy as jnp

from . import literals
from .block_ir import Block, Equation, Literal, Value
from .formatter import WIDTH
from .functions import FunctionWriter, hint_of, named, one_or_all, structured, targets, tuple_of
from .templates import Def


def stop_gradients_of_loops(block: Block) -> None:
    """Stop gradients where a reverse-mode rule has none for a result of a while loop.

    JAX transposes a ``lax.while_loop`` even if the gradients of its results are zero, which raises an error.

    Args:
      block: a whole function; changed in place, and idempotent.
    """
    _stop_gradients(block, {}, from_loop=False)


def _stop_gradients(block: Block, gradients: dict[Any, Collection[int]], *, from_loop: bool) -> None:
    """Insert ``without_gradient`` steps.

    Args:
      block: changed in place.
      gradients: the inputs that get a gradient from functions with reverse-mode rules, by key; gets those of the block.
      from_loop: whether arguments of the block may be results of while loops.
    """
    reached = {id(a) for a in block.args if from_loop}
    steps: list[Equation] = []
    for step in block.steps:
        key = step.params.get("key")
        if "backward" in step.blocks:
            gradients[key] = step.params["gradients"]
        for i, item in enumerate(step.inputs):
            if id(item) in reached and _is_inexact(item) and i not in gradients.get(key, (i,)):
                detached = Value(item.aval, getattr(item, "hint", ""))
                steps.append(Equation("without_gradient", {}, [item], [detached], step.path))
                step.inputs[i] = detached
        steps.append(step)
        loops = step.name == "while" or (key is None and any(b.has("while") for b in step.blocks.values()))
        loops = loops or any(id(v) in reached for v in (*step.inputs, *step.captured()))
        if loops and step.name not in ("without_gradient", "stop_gradient"):
            reached.update(map(id, step.outputs))
        for inner in step.blocks.values():
            _stop_gradients(inner, gradients, from_loop=loops)
    block.steps = steps


@structured("without_gradient")
def _without_gradient(writer: FunctionWriter, step: Equation) -> None:
    writer.assign(step.outputs, f"_without_gradient({writer.text(step.inputs[0])})")


def write_rules(writer: FunctionWriter, step: Equation, name: str) -> None:
    """Write a function with its derivative rules.

    Args:
      writer: it stands outside of all functions; ``missing`` tells afterwards which sizes it has to be given.
      step: an equation that calls the function.
      name: the function's name.
    """
    if "refused" in step.params:
        _write_refused(writer, step, name)
    elif "jvp" in step.blocks:
        _write_jvp(writer, step, name)
    else:
        _write_vjp(writer, step, name)


def _decorator(kind: str, given: Sequence[str]) -> list[str]:
    if not given:
        return [f"@jax.{kind}"]
    args = f"jax.{kind}, nondiff_argnums={tuple(range(len(given)))}"
    flat = f"@functools.partial({args})"
    return [flat] if len(flat) <= WIDTH else ["@functools.partial(", f"    {args}", ")"]


def _float0(value: Value) -> str:
    return f"np.zeros({literals.shape(value.aval.shape)}, jax.dtypes.float0)"


def _is_inexact(item: Value | Literal) -> bool:
    return jnp.issubdtype(item.aval.dtype, jnp.inexact)


def _write_jvp(writer: FunctionWriter, step: Equation, name: str) -> None:
    """Write a function with its forward-mode rule."""
    primal, rule = step.blocks["primal"], step.blocks["jvp"]
    count, outputs = len(step.inputs), len(step.outputs)
    decorators = _decorator("custom_jvp", writer.given)
    writer.function(name, named(writer, primal.args, "x"), primal, one_or_all, dims=primal.args, decorators=decorators)
    inexact = [i for i, v in enumerate(step.inputs) if _is_inexact(v)]
    primals = named(writer, rule.args[:count], "x")
    tangents = ["_"] * count
    for i, arg in zip(inexact, rule.args[count:], strict=True):
        tangents[i] = named(writer, [arg], "x_dot")[0]

    def results(texts: list[str]) -> str:
        remaining = iter(texts[outputs:])
        dots = [next(remaining) if _is_inexact(v) else _float0(v) for v in step.outputs]
        return f"{one_or_all(texts[:outputs])}, {one_or_all(dots)}"

    unpack = [f"{targets(primals)} = primals", f"{targets(tangents)} = tangents"]
    decorators = [f"@{name}.defjvp"]
    writer.function(f"{name}_jvp", ["primals", "tangents"], rule, results, unpack, rule.args, decorators)


def _write_refused(writer: FunctionWriter, step: Equation, name: str) -> None:
    """Write a function whose derivative, in either mode, is refused."""
    primal = step.blocks["primal"]
    decorators = _decorator("custom_jvp", writer.given)
    writer.function(name, named(writer, primal.args, "x"), primal, one_or_all, dims=primal.args, decorators=decorators)
    args = [writer.parse(arg).parts for arg in (*writer.given, "primals", "tangents")]
    body = [writer.parse(f"raise ValueError({literals.value(step.params['refused'])})")]
    writer.nodes.append(Def(f"{name}_jvp", args, body, [f"@{name}.defjvp"]))


def _write_vjp(writer: FunctionWriter, step: Equation, name: str) -> None:
    """Write a function with its reverse-mode rule."""
    primal, forward, backward = (step.blocks[k] for k in ("primal", "forward", "backward"))
    outputs = len(step.outputs)
    saved = len(forward.results) - outputs
    decorators = _decorator("custom_vjp", writer.given)
    writer.function(name, named(writer, primal.args, "x"), primal, one_or_all, dims=primal.args, decorators=decorators)

    def pair(texts: list[str]) -> str:
        return f"{one_or_all(texts[:outputs])}, {tuple_of(texts[outputs:]) if saved else '()'}"

    writer.function(f"{name}_fwd", named(writer, forward.args, "x"), forward, pair, dims=forward.args)
    residuals = named(writer, backward.args[:saved], "saved")
    cotangents = named(writer, backward.args[saved:], "bar")

    def gradients(texts: list[str]) -> str:
        out = ["None"] * len(step.inputs)
        for i, text in zip(step.params["gradients"], texts, strict=True):
            out[i] = text
        return tuple_of(out)

    unpack = [f"{targets(residuals)} = residuals"] if saved else []
    unpack += [f"{targets(cotangents)} = cotangents"] if len(cotangents) > 1 else []
    arguments = ["residuals" if saved else "_", "cotangents" if len(cotangents) > 1 else cotangents[0]]
    writer.function(f"{name}_bwd", arguments, backward, gradients, unpack, dims=backward.args)
    writer.add(f"{name}.defvjp({name}_fwd, {name}_bwd)")


@structured("custom_jvp_call", "custom_vjp_call", "custom_gradient")
def _custom(writer: FunctionWriter, step: Equation) -> None:
    name, dims = writer.module.custom(step)
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    operands = ", ".join([*dims, *(writer.text(v) for v in step.inputs)])
    writer.add(f"{one_or_all(outputs)} = {name}({operands})")
