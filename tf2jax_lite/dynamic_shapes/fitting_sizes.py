"""Which sizes the operands of a node may have, found by evaluating its shapes for some."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.values import static

from .dim_expr import FOUND, names, parsed, value

__all__ = ["fitting_sizes"]

# Two sizes that occur nowhere else, with divisors enough for reshapes: whether a node tells them apart is the question.
_SIZES = (120, 168)
_MAX_TRIED = 512


def fitting_sizes(
    run: Callable[[list[Any]], Any], inputs: Sequence[Any], shapes: Sequence[Sequence[Any]]
) -> Sequence[Mapping[str, int]]:
    """Return the values of symbolic variables for which a node's operands fit, of some that are tried.

    Each size is tried as either of two numbers, and as each fixed size that an operand has: so an equality that the
    node needs holds in all of the results, and one that it does not need fails in some.

    Args:
      run: evaluates the node, given its inputs.
      inputs: traced arrays, static arrays with symbolic entries, and other static values.
      shapes: of the inputs, symbolic entries of static ones included.
    """
    sizes = {size for shape in shapes for size in shape}
    variables = sorted({name for size in sizes if not isinstance(size, int) for name in names(parsed(str(size)))})
    fixed = {size for size in sizes if isinstance(size, int)}
    # Of a size that is broadcast where it is 1, nothing is to be learned, unless nothing else fits.
    for tried in ({*_SIZES, *fixed} - {0, 1}, {*_SIZES, *fixed}):
        chosen = sorted(tried if len(tried) ** len(variables) <= _MAX_TRIED else _SIZES)
        # A data-dependent size is one less than its variable.
        each = [[size + name.startswith(FOUND) for size in chosen] for name in variables]
        some = itertools.islice(itertools.product(*each), _MAX_TRIED)
        found = [dict(zip(variables, numbers, strict=True)) for numbers in some]
        if fitting := [given for given in found if _fits(run, inputs, given)]:
            return fitting
    return []


def _fits(run: Callable[[list[Any]], Any], inputs: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    def size(dim: Any) -> Any:
        return dim if isinstance(dim, int) else value(parsed(str(dim)), sizes)

    def call(chosen: Mapping[int, Any]) -> None:
        run([chosen.get(i, v) for i, v in enumerate(given)])

    try:
        given: list[Any] = list(inputs)
        structs = {}
        for i, v in enumerate(inputs):
            if static.is_symbolic(v):
                given[i] = np.array([size(dim) for dim in v.reshape(-1)], np.int32).reshape(v.shape)
            elif isinstance(v, jax.Array):
                structs[i] = jax.ShapeDtypeStruct(tuple(map(size, v.shape)), v.dtype)
        jax.eval_shape(call, structs)
    except Exception:  # whatever a node says of sizes that it does not take
        return False
    return True
