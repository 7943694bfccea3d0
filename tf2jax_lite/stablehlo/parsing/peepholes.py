"""Peepholes: ops that JAX expands, with original derivatives and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .module import Op, TensorType


def restore(ops: Sequence[Op], outer: Mapping[int, Op], returns: Sequence[int], *, names: bool) -> list[Op]:
    """Return a region's ops with peephole rewrites.

    `finish` drops ops that become dead.
    """
    ops = _named(ops, returns) if names else list(ops)
    made: dict[int, Op] = dict(outer)
    out = []
    for op in ops:
        found = op
        if op.name == "stablehlo.divide":
            found = _logistic(op, made) or op
        elif op.name == "stablehlo.select":
            found = _filled_gather(op, made) or op
        made.update(dict.fromkeys(op.results, found))
        out.append(found)
    return out


def repeated(number: int, made: Mapping[int, Op]) -> Any:
    """Return the scalar that a constant repeats; ``made`` has ops by value."""
    op = made.get(number)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"):
        op = made.get(op.operands[0])
    if op is None or op.name != "stablehlo.constant":
        return None
    value = op.attrs["value"]
    return value.reshape(-1)[0] if value.size == 1 or not any(value.strides) else None


# ---- logistic ----


def _logistic(op: Op, made: Mapping[int, Op]) -> Op | None:
    """Match 1 / (1 + exp(-x)), for the logistic derivative without inf * 0."""
    one, below = op.operands
    add = made.get(below)
    if add is None or add.name != "stablehlo.add" or repeated(one, made) != 1:
        return None
    for first, second in (add.operands, add.operands[::-1]):
        exp = made.get(second)
        if exp is None or exp.name != "stablehlo.exponential" or repeated(first, made) != 1:
            continue
        negate = made.get(exp.operands[0])
        if negate is not None and negate.name == "stablehlo.negate":
            return dataclasses.replace(
                op, name="stablehlo.logistic", operands=negate.operands, operand_types=negate.operand_types
            )
    return None


# ---- gathers that fill ----


def _filled_gather(op: Op, made: Mapping[int, Op]) -> Op | None:
    """select(indices inside, gather, fill): a gather in JAX's mode "fill"."""
    pred, chosen, other = op.operands
    gather = made.get(chosen)
    fill = repeated(other, made)
    if gather is None or gather.name != "stablehlo.gather" or fill is None:
        return None
    mask = made.get(pred)
    while mask is not None and mask.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        mask = made.get(mask.operands[0])
    if mask is None or mask.name != "stablehlo.reduce":
        return None
    inside = made.get(mask.operands[0])
    if inside is None or inside.name != "stablehlo.and":
        return None
    low, high = (made.get(v) for v in inside.operands)
    if low is None or high is None or not (_compares(low, "GE") and _compares(high, "LE")):
        return None
    indices = gather.operands[1]
    if low.operands[0] != indices or high.operands[0] != indices or repeated(low.operands[1], made) != 0:
        return None
    numbers = gather.attrs["dimension_numbers"]
    if numbers["index_vector_dim"] != len(gather.operand_types[1].shape) - 1:
        return None
    shape, sizes = gather.operand_types[0].shape, gather.attrs["slice_sizes"]
    bounds = _vector(high.operands[1], made)
    expected = [None if shape[d] is None else shape[d] - sizes[d] for d in numbers["start_index_map"]]
    if bounds is None or None in expected or list(np.broadcast_to(bounds, len(expected))) != expected:
        return None
    return dataclasses.replace(
        gather, results=op.results, types=op.types, attrs={**gather.attrs, "fill": fill}, where=op.where
    )


def _compares(op: Op, direction: str) -> bool:
    return op.name == "stablehlo.compare" and op.attrs["comparison_direction"] == direction


def _vector(number: int, made: Mapping[int, Op]) -> np.ndarray | None:
    op = made.get(number)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        op = made.get(op.operands[0])
    if op is None or op.name != "stablehlo.constant":
        return None
    return np.asarray(op.attrs["value"]).reshape(-1)


# ---- special functions ----

# Primitives of one argument that jax writes out as polynomials under their own name.
_SPECIAL = {"bessel_i1e", "digamma", "erf_inv", "lgamma"}


def _named(ops: Sequence[Op], returns: Sequence[int]) -> list[Op]:
    """Replace runs of ops by the special function that names them."""
    # They take its arguments and make one result.
    groups: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        if op.name != "stablehlo.constant" and op.where.rpartition("/")[2] in _SPECIAL:
            groups.setdefault(op.where, []).append(i)
    if not groups:
        return list(ops)
    constants = {v for op in ops if op.name == "stablehlo.constant" for v in op.results}
    replaced: dict[int, Op] = {}
    dropped: set[int] = set()
    for where, members in groups.items():
        name = f"chlo.{where.rpartition('/')[2]}"
        for part in _runs(ops, members):
            made = [v for i in part for v in ops[i].results]
            read = dict.fromkeys(v for i in part for v in ops[i].operands if v not in made and v not in constants)
            inside = set(part)
            needed = {v for i, op in enumerate(ops) if i not in inside for v in _reads(op)} | set(returns)
            results = [v for v in made if v in needed]
            last = ops[part[-1]]
            # Fewer ops than this are not a polynomial.
            if len(part) < 12 or len(results) != 1 or len(read) != 1 or results[0] != last.results[0]:
                continue
            types = {v: t for i in part for v, t in zip(ops[i].operands, ops[i].operand_types, strict=True)}
            if any(types[v] != last.types[0] for v in read) or not isinstance(last.types[0], TensorType):
                continue
            operands = tuple(read)
            replaced[part[-1]] = Op(
                name, operands, last.results, last.types, tuple(types[v] for v in operands), {}, where=where
            )
            dropped.update(part[:-1])
    return [replaced.get(i, op) for i, op in enumerate(ops) if i not in dropped]


def _runs(ops: Sequence[Op], members: list[int]) -> list[list[int]]:
    """Split into runs that only constants interrupt."""
    runs = [[members[0]]]
    for i in members[1:]:
        if all(ops[j].name == "stablehlo.constant" for j in range(runs[-1][-1] + 1, i)):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _reads(op: Op) -> list[int]:
    found = list(op.operands)
    for region in op.regions:
        for inner in region.ops:
            found.extend(_reads(inner))
        found.extend(region.returns)
    return found
