"""Products with mostly zero constants on CPU: gathers of the other values.

That takes a fourth to a tenth of the time of a matrix product, which multiplies mostly by zero (two cores with AVX-512,
JAX 0.10), and the derivative, for which JAX would scatter, gathers too: by the transposed weights.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.constant_dot import MIN_SAVING, Weights, constant_dot_p
from tf2jax_lite.jaxprs.materialize import materialize

from . import cost_model
from .rules import Rule, by_table, with_cpu_rules


@functools.lru_cache(maxsize=256)
def _terms(weights: Weights) -> tuple[np.ndarray, np.ndarray] | None:
    """Return nonzero columns and weights, (terms, rows); None if gathering is no gain."""
    matrix = weights.matrix
    rows, columns = np.nonzero(matrix)
    counts = np.bincount(rows, minlength=len(matrix))
    most = int(counts.max(initial=0))
    if not 0 < most <= min(cost_model.CONSTANT_DOT_MAX_TERMS, matrix.shape[1] // MIN_SAVING):
        return None
    term = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.zeros((most, len(matrix)), np.int32)
    weight = np.zeros(index.shape, matrix.dtype)
    index[:] = matrix.argmax(1)  # unused terms repeat a value that the result depends on anyway
    index[term, rows], weight[term, rows] = columns, matrix[rows, columns]
    return index, weight


def _is_sparse(x: Any, matrix: Any, *, weights: Weights, **params: Any) -> bool:
    return _terms(weights) is not None


def _gather(x: Any, matrix: Any, *, weights: Weights, dimension_numbers: Any, **params: Any) -> Any:
    (((axis,), _), _) = dimension_numbers
    terms = _terms(weights)
    assert terms is not None
    total: Any = None
    for index, weight in zip(*terms, strict=True):
        values = x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")
        part = lax.mul(values, lax.broadcast_in_dim(weight, values.shape, (axis,)))
        total = part if total is None else lax.add(total, part)
    if len(terms[0]) > cost_model.CONSTANT_DOT_MAX_FUSED_TERMS:
        total = materialize(total)
    order = [d for d in range(x.ndim) if d != axis]
    return lax.transpose(total, (*order, axis))


RULES = (
    Rule("constant_dot_gather", _is_sparse, _gather, "Most of the matrix product is with zeros: gather the others."),
)

with_cpu_rules(constant_dot_p, by_table(RULES))
