"""Sample sizes of a node's operands to find which it accepts, abstractly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.values import static

from .dim_expr import DYNAMIC, names_in, value

# Two sizes that are unlikely in a program, with many divisors for reshapes.
_SIZES = (120, 168)
_MAX_TRIED = 512


def fitting_sizes(
    run: Callable[[list[Any]], Any], inputs: Sequence[Any], shapes: Sequence[Sequence[Any]]
) -> Sequence[Mapping[str, int]]:
    """Return the samples of symbolic variables for which a node accepts its operands.

    Each variable takes two values, and each fixed size of an operand. So an equality that the node needs holds in all
    returned samples, and one that it does not need fails in some.

    Args:
      inputs: traced arrays, static arrays with symbolic entries, and other static values.
      shapes: of the inputs, symbolic entries of static ones included.
    """
    sizes = {size for shape in shapes for size in shape}
    variables = sorted({name for size in sizes for name in names_in(size)})
    fixed = {size for size in sizes if isinstance(size, int)}
    # A size of 1 broadcasts, so it tells nothing about equalities; it is a sample only if no other works.
    for tried in ({*_SIZES, *fixed} - {0, 1}, {*_SIZES, *fixed}):
        chosen = sorted(tried if len(tried) ** len(variables) <= _MAX_TRIED else _SIZES)
        # A data-dependent dimension is its variable minus 1.
        each = [[size + name.startswith(DYNAMIC) for size in chosen] for name in variables]
        some = itertools.islice(itertools.product(*each), _MAX_TRIED)
        found = [dict(zip(variables, numbers, strict=True)) for numbers in some]
        if fitting := [given for given in found if _fits(run, inputs, given)]:
            return fitting
    return []


def _fits(run: Callable[[list[Any]], Any], inputs: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    def call(chosen: Mapping[int, Any]) -> None:
        run([chosen.get(i, v) for i, v in enumerate(given)])

    try:
        given: list[Any] = list(inputs)
        structs = {}
        for i, v in enumerate(inputs):
            if static.is_symbolic(v):
                given[i] = np.array([value(dim, sizes) for dim in v.reshape(-1)], np.int32).reshape(v.shape)
            elif isinstance(v, jax.Array):
                structs[i] = jax.ShapeDtypeStruct(tuple(value(dim, sizes) for dim in v.shape), v.dtype)
        jax.eval_shape(call, structs)
    except Exception:  # any error of the node about its operands' sizes
        return False
    return True
