"""Between which numbers a traced number lies, as far as what it is computed of tells: interval arithmetic.

The number of true values in a row is at most as many as the row is long, so what is made of that size has room in so
many places. JAX's tracers know the equation that made them (see provenance.py); this walks back through those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend import core as jex

from tf2jax_lite.jaxprs.versions import InconclusiveDimensionOperation

from .provenance import FORWARDING, constant_of, equation_of

__all__ = ["OPAQUE", "Range", "jaxpr_ranges", "range_of"]

_MAX_DEPTH, _MAX_EQUATIONS = 48, 400
_SLACK = 1e-3


class Range(NamedTuple):
    """Numbers from ``least`` to ``most``; None where nothing is known. ``most`` may have symbolic dimensions."""

    least: Any = None
    most: Any = None


_UNKNOWN = Range()
OPAQUE = Range()
"""The range of results of equations that nothing is known of; told from other unlimited ranges by identity."""


def range_of(value: Any) -> Range:
    """Returns what all elements of a number or an array lie between. NaN lies between all."""
    return _Walk().of(value, _MAX_DEPTH)


def jaxpr_ranges(closed: jex.ClosedJaxpr) -> list[Range]:
    """Returns the ranges of a jaxpr's results, whatever its arguments and constants are."""
    walk = _Walk()
    walk.limit(math.inf)
    return walk.called({"jaxpr": closed}, [_UNKNOWN] * len(closed.in_avals), closed.out_avals)


def _rounded_up(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two upper bounds, rounded up to integers if one is symbolic.

    A symbolic dimension and a float would be a traced value instead of a bound.
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a, b
    return math.ceil(a) if isinstance(a, float) else a, math.ceil(b) if isinstance(b, float) else b


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    a, b = _rounded_up(a, b)
    return a + b


def _minus(a: Any, b: Any) -> Any:
    return _plus(a, None if b is None else -b)


def _product(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    a, b = _rounded_up(a, b)
    return a * b


def _larger(a: Any, b: Any) -> Any:
    """Returns a bound that two others keep."""
    if a is None or b is None:
        return None
    a, b = _rounded_up(a, b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return max(a, b)
    return core.max_dim(a, b) if isinstance(a, int) or isinstance(b, int) or a is not b else a


def _smaller(a: Any, b: Any) -> Any:
    """Returns the tighter of two bounds from above, either of which holds."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, int | float) and isinstance(b, int | float):
        return min(a, b)
    return a if isinstance(a, int | float) else b


def _joined(*parts: Range) -> Range:
    if any(p is OPAQUE for p in parts):
        return OPAQUE
    least = None if any(p.least is None for p in parts) else min(p.least for p in parts)
    most = parts[0].most
    for part in parts[1:]:
        most = _larger(most, part.most)
    return Range(least, most)


def _add(a: Range, b: Range) -> Range:
    return Range(_plus(a.least, b.least), _plus(a.most, b.most))


def _sub(a: Range, b: Range) -> Range:
    # A bound from below is a number: what is symbolic could be anything.
    most = b.most if isinstance(b.most, int | float) else None
    return Range(_minus(a.least, most), _minus(a.most, b.least))


def _mul(a: Range, b: Range) -> Range:
    if a.least is None or b.least is None or a.least < 0 or b.least < 0:
        return _UNKNOWN
    return Range(a.least * b.least, _product(a.most, b.most))


def _max(a: Range, b: Range) -> Range:
    known = [p.least for p in (a, b) if p.least is not None]
    return Range(max(known, default=None), _larger(a.most, b.most))


def _min(a: Range, b: Range) -> Range:
    least = None if a.least is None or b.least is None else min(a.least, b.least)
    return Range(least, _smaller(a.most, b.most))


def _neg(a: Range) -> Range:
    return Range(-a.most if isinstance(a.most, int | float) else None, None if a.least is None else -a.least)


def _div(a: Range, b: Range) -> Range:
    """A quotient by one or more is no larger; whole ones are rounded towards zero."""
    if a.least is None or b.least is None or a.least < 0 or b.least < 1:
        return _UNKNOWN
    if isinstance(a.most, int | float) and b.least == b.most and isinstance(a.most, float):
        return Range(0, a.most / b.least)
    return Range(0, a.most)


def _rem(a: Range, b: Range) -> Range:
    if not isinstance(b.most, int) or b.least is None or b.least < 1:
        return _UNKNOWN
    return Range(0 if a.least is not None and a.least >= 0 else 1 - b.most, b.most - 1)


def _unit(*_: Range) -> Range:
    return Range(0, 1)


def _first(a: Range, *_: Range) -> Range:
    return a


_RULES: dict[str, Callable[..., Range]] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "max": _max,
    "min": _min,
    "neg": _neg,
    "abs": lambda a: Range(0, a.most if a.least is not None and a.least >= 0 else None),
    "div": _div,
    "rem": _rem,
    "sign": lambda a: Range(0 if a.least is not None and a.least >= 0 else -1, 1),
    "logistic": _unit,
    "exp": lambda a: Range(0, 1 if isinstance(a.most, int | float) and a.most <= 0 else None),
    "tanh": lambda a: Range(-1, 1),
    "erf": lambda a: Range(-1, 1),
    "square": lambda a: Range(0),
    "floor": lambda a: Range(None if a.least is None else math.floor(a.least), a.most),
    "ceil": lambda a: Range(a.least, math.ceil(a.most) if isinstance(a.most, float) else a.most),
    "round": lambda a: Range(
        None if a.least is None else math.floor(a.least), math.ceil(a.most) if isinstance(a.most, float) else a.most
    ),
    "clamp": lambda low, x, high: _min(_max(x, low), high),
    "select_n": lambda _, *cases: _joined(*cases),
    "concatenate": _joined,
    "stack": _joined,
    "pad": _joined,
    **dict.fromkeys(
        [
            *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "copy", "copy_p", "prefix"),
            *("slice", "dynamic_slice", "stop_gradient", "reduce_max", "reduce_min", "cummax", "cummin", "sort"),
            *("optimization_barrier", "reduce_precision", "gather", "real", "materialize"),
            "convert_element_type",  # NaN becomes anything, but sizes are cut to their room
        ],
        _first,
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
"""Primitives without a rule whose results may be any numbers, rather than results that nothing is known of."""


class _Walk:
    """One question, with what was found on the way."""

    def __init__(self) -> None:
        self._found: dict[int, Range] = {}
        self._left: float = _MAX_EQUATIONS

    def limit(self, equations: float) -> None:
        """Sets how many more equations are looked at."""
        self._left = equations

    def of(self, value: Any, depth: int) -> Range:
        """Returns the range of a value of the trace."""
        known = constant_of(value)
        if known is not None:
            return _of_array(known)
        if id(value) not in self._found:
            self._found[id(value)] = every = _of_dtype(value.dtype)
            if every.most is None and depth and self._left:
                name, operands, params = equation_of(value)
                if name:
                    self._found[id(value)] = self._made(name, operands, params, value, depth - 1)
        return self._found[id(value)]

    def _made(self, name: str, operands: Sequence[Any], params: Any, result: Any, depth: int) -> Range:
        self._left -= 1
        if name not in _RULES and name not in _CALLS and name not in _BY_SIZE:
            return _of_dtype(result.dtype)
        return self._apply(name, [self.of(o, depth) for o in operands], operands, params, result)[0]

    def _apply(
        self, name: str, ranges: list[Range], operands: Sequence[Any], params: Any, *results: Any
    ) -> list[Range]:
        if name == "cond":
            branches = [self.called({"jaxpr": branch}, ranges[1:], results) for branch in params["branches"]]
            return [_joined(*found) for found in zip(*branches, strict=True)]
        if name in _CALLS:
            return self.called(params, ranges, results)
        if name == "sort":  # of several, by the first of them
            return [_fitting(found, result.dtype) for found, result in zip(ranges, results, strict=False)]
        if len(results) != 1:
            return [_of_dtype(result.dtype) for result in results]
        try:
            if name in _BY_SIZE:
                found = _BY_SIZE[name](ranges, operands, params, results[0])
            else:
                found = _RULES[name](*ranges)
        except (InconclusiveDimensionOperation, OverflowError, TypeError):
            found = _UNKNOWN
        return [_fitting(found, results[0].dtype)]

    def called(self, params: Any, ranges: list[Range], results: Sequence[Any]) -> list[Range]:
        """Goes through a function that is called."""
        closed = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        inner = getattr(closed, "jaxpr", closed)
        unknown = [_of_dtype(result.dtype) for result in results]
        if inner is None or len(inner.invars) != len(ranges) or len(inner.outvars) != len(results):
            return unknown
        known = dict(zip(inner.invars, ranges, strict=True))

        def read(atom: Any) -> Range:
            if isinstance(atom, jex.Literal):
                return _of_array(np.asarray(atom.val))
            return known.get(atom, _of_dtype(atom.aval.dtype))

        made: dict[Any, Any] = {}
        for eqn in inner.eqns:
            name = eqn.primitive.name
            if not self._left:
                return unknown
            made.update(dict.fromkeys(eqn.outvars, eqn))
            if name not in _RULES and name not in _CALLS and name not in _BY_SIZE:
                if name not in _UNLIMITED:
                    known.update(
                        (v, OPAQUE) for v in eqn.outvars if jnp.issubdtype(getattr(v.aval, "dtype", bool), np.floating)
                    )
                continue
            self._left -= 1
            avals = [v.aval for v in eqn.outvars]
            found = self._apply(name, [read(v) for v in eqn.invars], [v.aval for v in eqn.invars], eqn.params, *avals)
            if name == "div" and jnp.issubdtype(avals[0].dtype, np.floating) and _are_positive(map(read, eqn.invars)):
                found = [Range(0, 1 if _is_share(eqn, made) else found[0].most)]
            elif name == "sub" and _is_log_share(eqn, made):
                found = [Range(None, 0)]
            known.update(zip(eqn.outvars, found, strict=True))
        return [_fitting(read(atom), result.dtype) for atom, result in zip(inner.outvars, results, strict=True)]


def _behind(atom: Any, made: Mapping[Any, Any]) -> Any:
    """Returns the variable whose values another one has, in another shape or dtype."""
    while not isinstance(atom, jex.Literal) and atom in made and made[atom].primitive.name in FORWARDING:
        atom = made[atom].invars[0]
    return atom


def _summed(atom: Any, made: Mapping[Any, Any], name: str = "reduce_sum") -> Any:
    """Returns the variable of which another one is the sum (or another function); None if it is none."""
    atom = _behind(atom, made)
    is_made = not isinstance(atom, jex.Literal) and atom in made and made[atom].primitive.name == name
    return _behind(made[atom].invars[0], made) if is_made else None


def _are_positive(ranges: Iterable[Range]) -> bool:
    return all(found.least is not None and found.least >= 0 for found in ranges)


def _is_share(eqn: Any, made: Mapping[Any, Any]) -> bool:
    """Whether a quotient is ``x / sum(x)``, as in softmax."""
    return _summed(eqn.invars[1], made) is _behind(eqn.invars[0], made)


def _is_log_share(eqn: Any, made: Mapping[Any, Any]) -> bool:
    """Whether a difference is ``x - log(sum(exp(x)))``, as in the logarithm of softmax."""
    total = _summed(eqn.invars[1], made, "log")
    exponential = None if total is None else _summed(total, made)
    return exponential is not None and _summed(exponential, made, "exp") is _behind(eqn.invars[0], made)


def _of_dtype(dtype: Any) -> Range:
    if dtype == np.bool_:
        return Range(0, 1)
    return Range(0) if jnp.issubdtype(dtype, np.unsignedinteger) else _UNKNOWN


def _of_array(value: np.ndarray) -> Range:
    if value.dtype.kind not in "biuf" or not value.size:
        return _UNKNOWN
    least, most = value.min().item(), value.max().item()
    if value.dtype.kind == "f" and not (math.isfinite(least) and math.isfinite(most)):
        return _UNKNOWN
    return Range(int(least), int(most)) if value.dtype.kind == "b" else Range(least, most)


def _fitting(found: Range, dtype: Any) -> Range:
    """What might not fit its dtype may be anything."""
    if jnp.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        least, most = _whole(found.least, math.floor), _whole(found.most, math.ceil)
        wraps = (isinstance(most, int) and most > info.max) or (least is not None and least < info.min)
        return _of_dtype(dtype) if wraps else Range(least, most)
    return found


def _whole(bound: Any, rounded: Callable[[float], int]) -> Any:
    """Returns a bound of floats as one of whole numbers, with room for what floats round to."""
    if not isinstance(bound, float):
        return bound
    slack = _SLACK * (1 + abs(bound))
    return rounded(bound + slack if rounded is math.ceil else bound - slack)


def _times(found: Range, count: Any) -> Range:
    """Returns the range of sums of so many, which may be none."""
    if found.least is None or found.least >= 0:
        least = found.least and 0
    else:
        least = found.least * count if isinstance(count, int) else None
    nothing_more = isinstance(found.most, int | float) and found.most <= 0
    return Range(least, 0 if nothing_more else _product(found.most, count))


def _sum(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del result
    return _times(ranges[0], math.prod(operands[0].shape[axis] for axis in params["axes"]))


def _running(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del result
    return _times(ranges[0], operands[0].shape[params["axis"]])


def _place(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del ranges, result
    return Range(0, math.prod(operands[0].shape[axis] for axis in params["axes"]) - 1)


def _count(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del ranges, operands, result
    return Range(0, params["shape"][params["dimension"]] - 1)


def _dimension(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del ranges, operands, result
    return Range(0, params["dim"])


def _added_up(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del params, result
    places = operands[1].shape[:-1]
    start, more = ranges[0], _times(ranges[2], math.prod(places))
    least = None if more.least is None else min(more.least, 0)
    most = None if more.most is None else _larger(more.most, 0)
    return Range(_plus(start.least, least), _plus(start.most, most))


def _handed_on(ranges: list[Range], operands: Sequence[Any], params: Any, result: Any) -> Range:
    del operands, result
    return ranges[params["args"]]  # results stand after the arguments


_BY_SIZE: dict[str, Callable[..., Range]] = {
    "custom_gradient": _handed_on,
    "reduce_sum": _sum,
    "cumsum": _running,
    "scatter-add": _added_up,
    "argmax": _place,
    "argmin": _place,
    "iota": _count,
    "dim_as_value": _dimension,
}
