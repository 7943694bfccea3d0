"""Rewrite matrix products to ``@`` where it applies, else to ``jnp.einsum``.

Reshapes around a product are removed.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite.export.codegen.block_ir import Equation

from .graph import Graph, Item, Replacement
from .shapes import new, same


def _is_plain(step: Equation | None) -> bool:
    """Return whether a step contracts an array's last axis with a matrix's first."""
    if step is None or step.name != "dot_general" or not _has_one_dtype(step):
        return False
    left, right = (v.aval for v in step.inputs)
    return len(right.shape) == 2 and _numbers(step) == (((len(left.shape) - 1,), (0,)), ((), ()))


def _has_one_dtype(step: Equation) -> bool:
    dtypes = {np.dtype(v.aval.dtype) for v in (*step.inputs, *step.outputs)}
    return len(dtypes) == 1 and step.params["precision"] is None


def _numbers(step: Equation) -> Any:
    return tuple(tuple(tuple(int(d) for d in side) for side in pair) for pair in step.params["dimension_numbers"])


def reshape_product(graph: Graph, step: Equation) -> Replacement | None:
    """Multiply without merging axes that are not summed over.

    ``reshape(reshape(x, (n m, k)) @ w, (n, m, ...))`` is the product of ``x`` and ``w`` along the axis of size k; so is
    that with ``reshape(w, (k, ...))``.
    """
    product = graph.definition(step.inputs[0])
    if product is None or not _is_plain(product) or not graph.is_used_once(step.inputs[0]):
        return None
    left, right = product.inputs
    result = step.outputs[0].aval.shape
    before, after = [left], [right]
    for operand, choices in ((left, before), (right, after)):
        maker = graph.definition(operand)
        if maker is not None and maker.name == "reshape":
            choices.append(maker.inputs[0])
    for x in before[::-1]:
        for w in after[::-1]:
            rows, columns = x.aval.shape[:-1], w.aval.shape[1:]
            inner = len(x.aval.shape) and len(w.aval.shape) and same(x.aval.shape[-1:], w.aval.shape[:1])
            if inner and same(x.aval.shape[-1:], left.aval.shape[-1:]) and same((*rows, *columns), result):
                numbers = (((len(rows),), (0,)), ((), ()))
                return [_product(step, product, numbers, [x, w], step.outputs)]
    return None


def merge_contracted_axes(graph: Graph, step: Equation) -> Replacement | None:
    """Contract several axes where both operands of a product merge the same ones.

    The pattern is ``reshape(x) @ reshape(w)``.
    """
    if not _is_plain(step):
        return None
    left, right = (graph.definition(v) for v in step.inputs)
    if left is None or right is None or left.name != "reshape" or right.name != "reshape":
        return None
    x, w = left.inputs[0], right.inputs[0]
    rows, columns = len(step.inputs[0].aval.shape) - 1, 1
    count = len(w.aval.shape) - columns
    summed = x.aval.shape[rows:]
    if count < 2 or not same(summed, w.aval.shape[:count]) or len(x.aval.shape) - rows != count:
        return None
    outer = same(x.aval.shape[:rows], step.inputs[0].aval.shape[:rows])
    if not outer or not same(w.aval.shape[count:], step.inputs[1].aval.shape[1:]):
        return None
    if not all(isinstance(n, int) for n in summed) or math.prod(summed) != step.inputs[1].aval.shape[0]:
        return None
    numbers = ((tuple(range(rows, rows + count)), tuple(range(count))), ((), ()))
    return [_product(step, step, numbers, [x, w], step.outputs)]


def _product(step: Equation, like: Equation, numbers: Any, inputs: Sequence[Any], outputs: Any) -> Equation:
    return new("dot_general", {**like.params, "dimension_numbers": numbers}, inputs, step, outputs)


def einsum(graph: Graph, step: Equation) -> Replacement | None:
    """Write a product as ``jnp.einsum`` if it is none for ``@``."""
    if _is_plain(step) or not _has_one_dtype(step) or not np.issubdtype(step.outputs[0].aval.dtype, np.inexact):
        return None
    (left, right), (left_batch, right_batch) = _numbers(step)
    a, b = (v.aval.shape for v in step.inputs)
    if len(a) + len(b) > len(string.ascii_lowercase):
        return None
    names = list(string.ascii_lowercase[: len(a)])
    others = iter(string.ascii_lowercase[len(a) :])
    shared = dict(zip((*right, *right_batch), (names[i] for i in (*left, *left_batch)), strict=True))
    second = [shared.get(i) or next(others) for i in range(len(b))]
    free = [n for i, n in enumerate(names) if i not in (*left, *left_batch)]
    result = [names[i] for i in left_batch] + free + [n for i, n in enumerate(second) if i not in shared]
    return [_einsum(("".join(names), "".join(second)), "".join(result), step.inputs, step)]


def relabeled(operands: Sequence[str], result: str) -> dict[str, Any]:
    """Return an einsum's parameters with letters in order of first appearance."""
    letters = dict(zip(dict.fromkeys("".join(operands)), string.ascii_lowercase, strict=False))
    table = str.maketrans(letters)
    return {"operands": tuple(o.translate(table) for o in operands), "result": result.translate(table)}


def _einsum(operands: Sequence[str], result: str, inputs: Sequence[Item], step: Equation) -> Equation:
    return new("einsum", relabeled(operands, result), inputs, step, step.outputs)


def transpose_product(graph: Graph, step: Equation) -> Replacement | None:
    """Write the axes of a product in another order."""
    product = graph.definition(step.inputs[0])
    if product is None or product.name != "einsum" or not graph.is_used_once(step.inputs[0]):
        return None
    result = "".join(product.params["result"][i] for i in step.params["permutation"])
    return [_einsum(product.params["operands"], result, product.inputs, step)]


def transpose_operand(graph: Graph, step: Equation) -> Replacement | None:
    """Write an operand's axes in its own order."""
    operands, inputs = list(step.params["operands"]), list(step.inputs)
    for position, item in enumerate(step.inputs):
        maker = graph.definition(item)
        if maker is not None and maker.name == "transpose":
            letters = [""] * len(operands[position])
            for letter, axis in zip(operands[position], maker.params["permutation"], strict=True):
                letters[axis] = letter
            operands[position], inputs[position] = "".join(letters), maker.inputs[0]
    if inputs == list(step.inputs):
        return None
    return [_einsum(operands, step.params["result"], inputs, step)]
