"""Zero analysis: which results of a jaxpr are zero if some arguments are.

A function with the same derivative everywhere is linear if it is zero at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.walk import parts

# Zero if one of these operands is.
_PRODUCTS: dict[str, tuple[int, ...]] = {
    "mul": (0, 1),
    "dot_general": (0, 1),
    "conv_general_dilated": (0, 1),
    "div": (0,),
    **dict.fromkeys(("gather", "dynamic_slice", "reduce_window_sum", "reduce_sum", "cumsum", "expand_dims"), (0,)),
}
# Zero if all operands are.
_SUMS = frozenset(
    """add add_any sub neg concatenate pad complex real imag conj convert_element_type broadcast_in_dim reshape
    transpose squeeze slice rev copy stack tile unstack split materialize""".split()  # noqa: SIM905
)
_CALLS = frozenset({"jit", "pjit", "closed_call"})


def is_zero_at_zero(closed: Any, zeros: Sequence[int]) -> bool:
    """Return whether all results of a jaxpr are zero if some arguments are."""
    return all(zero_results(closed, zeros))


def zero_results(closed: Any, zeros: Sequence[int] = ()) -> list[bool]:
    """Return for each result of a jaxpr whether it is zero if some arguments are.

    Infinite and undefined factors count as finite: the question is whether the function is linear.
    """
    return _results(closed, [i in zeros for i in range(len(closed.in_avals))])


def _results(closed: Any, args: Sequence[bool]) -> list[bool]:
    return evaluate(closed, args, _of, consts=list(map(_is_zero, parts(closed)[1])), literal=_is_zero)


def _of(eqn: Any, operands: list[bool]) -> list[bool]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    if name in _CALLS:
        return _results(eqn.params["jaxpr"], operands)
    if name == "custom_gradient":
        return operands[eqn.params["args"] :][:count]
    if name == "select_n":
        return [all(operands[1:])]
    if name in _PRODUCTS:
        return [any(operands[i] for i in _PRODUCTS[name])] * count
    return [name in _SUMS and all(operands)] * count


def _is_zero(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | float | int | complex) and not np.any(value)
