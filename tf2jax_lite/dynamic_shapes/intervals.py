"""Interval analysis of traced values and jaxprs, by their equations.

The number of true values in a vector is at most its length, so a result of that size has a static capacity. JAX's
tracers refer to the equations that computed them (see provenance.py), which are followed backwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs import interval
from tf2jax_lite.jaxprs.compat import (
    ClosedJaxpr,
    InconclusiveDimensionOperation,
    Literal,
    constant_of,
    equation_of,
)
from tf2jax_lite.jaxprs.interval import UNKNOWN, Interval

from .provenance import FORWARDING

_MAX_DEPTH, _MAX_EQUATIONS = 48, 400
_SLACK = 1e-3


OPAQUE = Interval()
"""The interval of results of equations without a rule; differs from other unbounded intervals by identity."""
LINEAR = Interval()
"""The interval of sums of products whose factors may be negative: results of linear layers, by identity as `OPAQUE`."""


def interval_of(value: Any) -> Interval:
    """Return an interval of all elements; NaN is in every interval."""
    return _Analysis().of(value, _MAX_DEPTH)


def jaxpr_intervals(closed: ClosedJaxpr) -> list[Interval]:
    """Return the intervals of a jaxpr's results for arbitrary arguments and constants."""
    walk = _Analysis()
    walk.limit(math.inf)
    return walk.called({"jaxpr": closed}, [UNKNOWN] * len(closed.in_avals), closed.out_avals)


def _union(*parts: Interval) -> Interval:
    if any(p is OPAQUE for p in parts):
        return OPAQUE
    if all(p is LINEAR for p in parts):
        return LINEAR
    return interval.union(*parts)


def _div(a: Interval, b: Interval) -> Interval:
    """Bound a quotient by a divisor of at least 1; integers round towards zero."""
    if a.lower is None or b.lower is None or a.lower < 0 or b.lower < 1:
        return UNKNOWN
    if isinstance(a.upper, int | float) and b.lower == b.upper and isinstance(a.upper, float):
        return Interval(0, a.upper / b.lower)
    return Interval(0, a.upper)


def _rem(a: Interval, b: Interval) -> Interval:
    if not isinstance(b.upper, int) or b.lower is None or b.lower < 1:
        return UNKNOWN
    return Interval(0 if a.lower is not None and a.lower >= 0 else 1 - b.upper, b.upper - 1)


def _unit(*_: Interval) -> Interval:
    return Interval(0, 1)


_RULES: dict[str, Callable[..., Interval]] = {
    "add": interval.add,
    "add_any": interval.add,
    "sub": interval.sub,
    "mul": interval.mul,
    "max": interval.maximum,
    "min": interval.minimum,
    "neg": interval.neg,
    "abs": lambda a: Interval(0, a.upper if a.lower is not None and a.lower >= 0 else None),
    "div": _div,
    "rem": _rem,
    "sign": lambda a: Interval(0 if a.lower is not None and a.lower >= 0 else -1, 1),
    "logistic": _unit,
    "exp": lambda a: Interval(0, 1 if isinstance(a.upper, int | float) and a.upper <= 0 else None),
    "tanh": lambda a: Interval(-1, 1),
    "erf": lambda a: Interval(-1, 1),
    "square": lambda a: Interval(0),
    "floor": lambda a: Interval(None if a.lower is None else math.floor(a.lower), a.upper),
    "ceil": lambda a: Interval(a.lower, math.ceil(a.upper) if isinstance(a.upper, float) else a.upper),
    "round": lambda a: Interval(
        None if a.lower is None else math.floor(a.lower), math.ceil(a.upper) if isinstance(a.upper, float) else a.upper
    ),
    "clamp": lambda low, x, high: interval.clip(x, low, high),
    "select_n": lambda _, *cases: _union(*cases),
    "concatenate": _union,
    "stack": _union,
    "pad": _union,
    **dict.fromkeys(
        [
            *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "copy", "copy_p", "prefix"),
            *("slice", "dynamic_slice", "stop_gradient", "reduce_max", "reduce_min", "cummax", "cummin", "sort"),
            *("optimization_barrier", "reduce_precision", "gather", "real", "materialize"),
            "convert_element_type",  # NaN becomes any integer, but counts are clipped to their capacity
        ],
        interval.first,
    ),
}
_CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2"),
        *("checkpoint", "outline", "cond"),
    }
)
_UNLIMITED = frozenset(
    {"dot_general", "conv_general_dilated", "log", "log1p", "sin", "cos", "mul_no_nan", "integer_pow"}
)
"""Primitives without a rule whose results may be any numbers, but are not `OPAQUE`."""
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_SUMS = frozenset({"add", "add_any", "sub"})


class _Analysis:
    """One query, with a cache of the values it has seen."""

    def __init__(self) -> None:
        self._found: dict[int, Interval] = {}
        self._left: float = _MAX_EQUATIONS

    def limit(self, equations: float) -> None:
        """Set how many more equations are analyzed."""
        self._left = equations

    def of(self, value: Any, depth: int) -> Interval:
        """Return the interval of a value of the trace."""
        known = constant_of(value)
        if known is not None:
            return interval.of_array(known)
        if id(value) not in self._found:
            self._found[id(value)] = every = _of_dtype(value.dtype)
            if every.upper is None and depth and self._left:
                name, operands, params = equation_of(value)
                if name:
                    self._found[id(value)] = self._of_equation(name, operands, params, value, depth - 1)
        return self._found[id(value)]

    def _of_equation(self, name: str, operands: Sequence[Any], params: Any, result: Any, depth: int) -> Interval:
        self._left -= 1
        if name not in _RULES and name not in _CALLS and name not in _BY_SIZE:
            return _of_dtype(result.dtype)
        return self._apply(name, [self.of(o, depth) for o in operands], operands, params, result)[0]

    def _apply(
        self, name: str, intervals: list[Interval], operands: Sequence[Any], params: Any, *results: Any
    ) -> list[Interval]:
        if name == "cond":
            branches = [self.called({"jaxpr": branch}, intervals[1:], results) for branch in params["branches"]]
            return [_union(*found) for found in zip(*branches, strict=True)]
        if name in _CALLS:
            return self.called(params, intervals, results)
        if name == "sort":  # several operands are sorted by the first
            return [_within_dtype(found, result.dtype) for found, result in zip(intervals, results, strict=False)]
        if len(results) != 1:
            return [_of_dtype(result.dtype) for result in results]
        try:
            if name in _BY_SIZE:
                found = _BY_SIZE[name](intervals, operands, params, results[0])
            else:
                found = _RULES[name](*intervals)
        except (InconclusiveDimensionOperation, OverflowError, TypeError):
            found = UNKNOWN
        return [_within_dtype(found, results[0].dtype)]

    def called(self, params: Any, intervals: list[Interval], results: Sequence[Any]) -> list[Interval]:
        """Return the intervals of the results of a called function."""
        closed = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        inner = getattr(closed, "jaxpr", closed)
        unknown = [_of_dtype(result.dtype) for result in results]
        if inner is None or len(inner.invars) != len(intervals) or len(inner.outvars) != len(results):
            return unknown
        known = dict(zip(inner.invars, intervals, strict=True))

        def read(atom: Any) -> Interval:
            if isinstance(atom, Literal):
                return interval.of_array(np.asarray(atom.val))
            return known.get(atom, _of_dtype(atom.aval.dtype))

        made: dict[Any, Any] = {}
        for eqn in inner.eqns:
            name = eqn.primitive.name
            if not self._left:
                return unknown
            made.update(dict.fromkeys(eqn.outvars, eqn))
            if name not in _RULES and name not in _CALLS and name not in _BY_SIZE:
                if name in _PRODUCTS and not _are_positive(map(read, eqn.invars)):
                    known[eqn.outvars[0]] = LINEAR
                elif name not in _UNLIMITED:
                    known.update(
                        (v, OPAQUE) for v in eqn.outvars if jnp.issubdtype(getattr(v.aval, "dtype", bool), np.floating)
                    )
                continue
            self._left -= 1
            avals = [v.aval for v in eqn.outvars]
            found = self._apply(name, [read(v) for v in eqn.invars], [v.aval for v in eqn.invars], eqn.params, *avals)
            if name == "div" and jnp.issubdtype(avals[0].dtype, np.floating) and _are_positive(map(read, eqn.invars)):
                found = [Interval(0, 1 if _is_softmax(eqn, made) else found[0].upper)]
            elif name == "sub" and _is_log_softmax(eqn, made):
                found = [Interval(None, 0)]
            elif name in _SUMS and any(read(v) is LINEAR for v in eqn.invars):
                found = [LINEAR]
            known.update(zip(eqn.outvars, found, strict=True))
        return [_within_dtype(read(atom), result.dtype) for atom, result in zip(inner.outvars, results, strict=True)]


def _source(atom: Any, made: Mapping[Any, Any]) -> Any:
    """Return the variable of which another one is a reshaped or cast copy."""
    while not isinstance(atom, Literal) and atom in made and made[atom].primitive.name in FORWARDING:
        atom = made[atom].invars[0]
    return atom


def _summed(atom: Any, made: Mapping[Any, Any], name: str = "reduce_sum") -> Any:
    """Return the operand of a sum (or of ``name``) that makes a variable, or None."""
    atom = _source(atom, made)
    is_made = not isinstance(atom, Literal) and atom in made and made[atom].primitive.name == name
    return _source(made[atom].invars[0], made) if is_made else None


def _are_positive(intervals: Iterable[Interval]) -> bool:
    return all(map(interval.is_nonnegative, intervals))


def _is_softmax(eqn: Any, made: Mapping[Any, Any]) -> bool:
    """Return whether a quotient is ``x / sum(x)``, as in softmax."""
    return _summed(eqn.invars[1], made) is _source(eqn.invars[0], made)


def _is_log_softmax(eqn: Any, made: Mapping[Any, Any]) -> bool:
    """Return whether a difference is ``x - log(sum(exp(x)))``, as in log-softmax."""
    total = _summed(eqn.invars[1], made, "log")
    exponential = None if total is None else _summed(total, made)
    return exponential is not None and _summed(exponential, made, "exp") is _source(eqn.invars[0], made)


def _of_dtype(dtype: Any) -> Interval:
    if dtype == np.bool_:
        return Interval(0, 1)
    return Interval(0) if jnp.issubdtype(dtype, np.unsignedinteger) else UNKNOWN


def _within_dtype(found: Interval, dtype: Any) -> Interval:
    """Return an interval, or that of the dtype if integers may overflow."""
    if jnp.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        lower, upper = _rounded(found.lower, math.floor), _rounded(found.upper, math.ceil)
        wraps = (isinstance(upper, int) and upper > info.max) or (lower is not None and lower < info.min)
        return _of_dtype(dtype) if wraps else Interval(lower, upper)
    return found


def _rounded(bound: Any, rounded: Callable[[float], int]) -> Any:
    """Return a bound of floats as a bound of integers, with slack for rounding errors."""
    if not isinstance(bound, float):
        return bound
    slack = _SLACK * (1 + abs(bound))
    return rounded(bound + slack if rounded is math.ceil else bound - slack)


def _times(found: Interval, count: Any) -> Interval:
    """Return the interval of sums of ``count`` numbers; ``count`` may be 0."""
    if found.lower is None or found.lower >= 0:
        lower = found.lower and 0
    else:
        lower = found.lower * count if isinstance(count, int) else None
    is_not_positive = isinstance(found.upper, int | float) and found.upper <= 0
    return Interval(lower, 0 if is_not_positive else interval.product_of_bounds(found.upper, count))


def _sum(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del result
    return _times(intervals[0], math.prod(operands[0].shape[axis] for axis in params["axes"]))


def _cumulative(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del result
    return _times(intervals[0], operands[0].shape[params["axis"]])


def _index(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del intervals, result
    return Interval(0, math.prod(operands[0].shape[axis] for axis in params["axes"]) - 1)


def _count(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del intervals, operands, result
    return Interval(0, params["shape"][params["dimension"]] - 1)


def _dimension(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del intervals, operands, result
    return Interval(0, params["dim"])


def _scatter_added(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del params, result
    start, more = intervals[0], _times(intervals[2], math.prod(operands[1].shape[:-1]))
    lower = None if more.lower is None else min(more.lower, 0)
    upper = None if more.upper is None else interval.larger_bound(more.upper, 0)
    return interval.add(start, Interval(lower, upper))


def _forwarded(intervals: list[Interval], operands: Sequence[Any], params: Any, result: Any) -> Interval:
    del operands, result
    return intervals[params["args"]]  # results stand after the arguments


_BY_SIZE: dict[str, Callable[..., Interval]] = {
    "custom_gradient": _forwarded,
    "reduce_sum": _sum,
    "cumsum": _cumulative,
    "scatter-add": _scatter_added,
    "argmax": _index,
    "argmin": _index,
    "iota": _count,
    "dim_as_value": _dimension,
}
