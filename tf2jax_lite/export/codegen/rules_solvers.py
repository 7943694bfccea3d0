"""Print equations whose parameters are functions.

These are linear solves, and reductions by any function.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import literals
from .block_ir import Block, Equation, Literal, Value
from .functions import FunctionWriter, hint_of, named, one_or_all, share, structured, targets

__all__: list[str] = []


def _computation(
    writer: FunctionWriter,
    step: Equation,
    role: str,
    block: Block,
    operands: Sequence[Sequence[Value]],
    before: Sequence[str] = (),
) -> str:
    """Write a function of arrays or tuples of arrays; return its name."""
    name = writer.names.new(f"{hint_of(step, 'value')}_{role}")
    args, unpack = list(before), []
    for letter, values in zip("xyz", operands, strict=False):
        names = named(writer, values, letter)
        args.append(names[0] if len(values) == 1 else writer.names.new(f"{letter}s"))
        if len(values) > 1:
            unpack.append(f"{targets(names)} = {args[-1]}")
    writer.function(name, args, block, one_or_all, unpack)
    return name


@structured("custom_linear_solve")
def _linear_solve(writer: FunctionWriter, step: Equation) -> None:
    lengths = step.params["const_lengths"]
    known = sum(lengths)
    sides = len(step.inputs) - known
    taken = 0
    names = {}
    for role, length in zip(lengths._fields, lengths, strict=True):
        block = step.blocks.get(role)
        if block is not None:
            share(writer, block.args[:length], step.inputs[taken : taken + length])
            product = [] if role == "matvec" else ["_"]  # solvers are given it, too
            names[role] = _computation(writer, step, role, block, [block.args[length:]], product)
        taken += length
    right = one_or_all([writer.text(v) for v in step.inputs[known:]])
    words = [f"transpose_solve={names['transpose_solve']}"] if "transpose_solve" in names else []
    call = f"lax.custom_linear_solve({', '.join([names['matvec'], right, names['solve'], *words])}"
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    if len(outputs) == sides:
        writer.add(f"{one_or_all(outputs)} = {call})")
    else:  # the solver tells something of its own
        writer.add(f"{one_or_all(outputs[:sides])}, {one_or_all(outputs[sides:])} = {call}, has_aux=True)")


def _reduced(writer: FunctionWriter, step: Equation, operands: Sequence[Value | Literal]) -> list[str]:
    """Return a reduction's operands, initial values and computation."""
    count, block = len(step.outputs), step.blocks["body"]
    name = _computation(writer, step, "computation", block, [block.args[:count], block.args[count:]])
    texts = [writer.text(v) for v in operands]
    return [one_or_all(texts[:count]), one_or_all(texts[count:]), name]


@structured("reduce")
def _reduce(writer: FunctionWriter, step: Equation) -> None:
    args = [*_reduced(writer, step, step.inputs), literals.value(tuple(int(d) for d in step.params["dimensions"]))]
    writer.add(f"{one_or_all(named(writer, step.outputs, hint_of(step, 'value')))} = lax.reduce({', '.join(args)})")


@structured("reduce_window")
def _reduce_window(writer: FunctionWriter, step: Equation) -> None:
    p = step.params
    args = _reduced(writer, step, step.inputs)
    for name in ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"):
        args.append(f"{name}={literals.value(tuple(p[name]))}")
    outputs = named(writer, step.outputs, hint_of(step, "value"))
    writer.add(f"{one_or_all(outputs)} = lax.reduce_window({', '.join(args)})")
