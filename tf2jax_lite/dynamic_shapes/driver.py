"""Trace with symbols for dynamic dimensions, and evaluate with padded arrays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.errors import LoweringError, StaticInputError, Tf2JaxError
from tf2jax_lite.support.retrace import retrace

from . import rules  # noqa: F401
from .bounds import is_data_dependent
from .dim_expr import DYNAMIC, names_in, variable
from .evaluator import Evaluator, Sizes, is_symbolic
from .tracker import DynamicShapes, UnboundedError
from .unification import SINGLE, Equalities, variables_in, without_dead_sizes

_MAX_EQUALITIES = 32  # each costs one more trace
_ADVICE = (
    "A padded result would change its numbers, with dynamic_shape_bound, too: call the function without jax.jit, or "
    "select elements by weights (tf.where) instead of removing them"
)


class _DynamicResultError(Exception):
    """A result has a data-dependent dimension, or one without an upper bound.

    Attributes:
      results: the traced results: a flat list, and variables by name.
    """

    def __init__(self, results: Any):
        super().__init__()
        self.results = results


class _BoundsAssumedError(Exception):
    """A trace met sizes without bounds, which are assumed to have some now."""


def trace_and_evaluate(
    run: Callable[..., Any],
    args: tuple[Any, ...],
    limit: int | None,
    names: Callable[[], Sequence[str]] = list,
    single: Mapping[int, Sequence[int]] | None = None,
) -> Any:
    """Return the results of a program that may have data-dependent dimensions.

    The program is traced as it is first. If an op raises because its result has a data-dependent size, the program is
    traced again with a symbol for that size, and the jaxpr is evaluated with arrays padded to upper bounds.

    Args:
      run: called as ``run(*args, tracker=...)``; see `Trace`.
      limit: the length to which the function's results of such sizes are padded; None: they are not supported.
      single: for inputs, by position in the second of ``args``, the axes of size 1 that are symbolic in the signature.
    """
    leaves, tree = jax.tree.flatten(args)
    traced = [i for i, v in enumerate(leaves) if is_traced(v)]
    if not traced:
        return run(*args)
    try:
        return run(*args)
    except StaticInputError as error:
        first_error = error
    except LoweringError as error:
        if not isinstance(error.__cause__, UnboundedError):
            raise
        first_error = error
    try:
        return _with_symbols(run, leaves, tree, traced, limit)
    except _DynamicResultError as error:
        before = len(jax.tree.leaves(args[0]))
        if single and limit is None:
            with contextlib.suppress(_DynamicResultError, Tf2JaxError):
                return _with_symbols(run, leaves, tree, traced, limit, {before + i: axes for i, axes in single.items()})
        raise _with_text(first_error, _describe_dynamic_result(error, names())) from first_error.__cause__
    except Tf2JaxError as error:
        if limit is None:
            text = f"Without that it fails at {error}" if getattr(error, "node", "") != first_error.node else ""
            raise _with_text(first_error, text) from error
        # The first error advises to set the bound, which is set.
        message = f"{str(error).rstrip('.')}. {_ADVICE}"
        raise LoweringError(message, node=first_error.node, op=first_error.op, path=first_error.path) from error


def _with_text(first_error: LoweringError, text: str) -> LoweringError:
    """Return an error of the same type with more text."""
    message = f"{str(first_error).rstrip('.')}. {text}" if text else str(first_error)
    return type(first_error)(message, node=first_error.node, op=first_error.op, path=first_error.path)


def _describe_dynamic_result(error: _DynamicResultError, names: Sequence[str]) -> str:
    """Return a sentence about the first result of data-dependent size."""
    flat, variables = error.results
    found = [(f"Result {name}", value) for name, value in zip(names, flat, strict=False)]
    found += [(f"Variable {name!r}", value) for name, value in variables.items()]
    for name, value in found:
        if isinstance(value, jax.Array) and is_symbolic(shape := value.shape):
            sizes = ", ".join("?" if is_data_dependent(size) else str(size) for size in shape)
            return f"{name} of shape [{sizes}] cannot leave jax.jit otherwise"
    return ""


def _with_symbols(
    run: Callable[..., Any],
    leaves: list[Any],
    tree: Any,
    traced: list[int],
    limit: int | None,
    single: Mapping[int, Sequence[int]] | None = None,
) -> Any:
    """Trace a program with symbols, and evaluate the jaxpr."""
    # single: for leaves, the axes of size 1 that become a symbol, too: a batch of one must not broadcast.
    form: list[Any] = []
    returned: list[Any] = [([], {})]

    def function(tracker: DynamicShapes, chosen: list[Any]) -> list[Any]:
        given = list(leaves)
        for i, value in zip(traced, chosen, strict=True):
            given[i] = value
        results = run(*jax.tree.unflatten(tree, given), tracker=tracker)
        returned[:] = [results]
        found, structure = jax.tree.flatten(results, is_leaf=lambda v: v is None)
        arrays = [i for i, v in enumerate(found) if isinstance(v, jax.Array)]
        indices = None if limit is None else [tracker.are_indices(found[i]) for i in arrays]
        form[:] = [[None if i in arrays else v for i, v in enumerate(found)], arrays, structure, indices]
        return [found[i] for i in arrays]

    scope, others = _symbols_of([leaves[i] for i in traced])
    operands, sizes = [leaves[i] for i in traced], Sizes(others)
    if single:
        scope = export.SymbolicScope() if scope is None else scope
        one = variable(SINGLE, scope)
        operands = [_with_symbol(leaves[i], single.get(i, ()), one) for i in traced]
        sizes.define(SINGLE, 1, np.int32(1))
    closed = _trace_until_unified(lambda tracker: functools.partial(function, tracker), operands, limit, scope)
    if closed is None or (limit is None and not variables_of_results(closed) <= {SINGLE}):
        raise _DynamicResultError(returned[0])
    found, arrays, structure, indices = form
    values = Evaluator(sizes).checked(closed, [leaves[i] for i in traced], indices)
    for i, value in zip(arrays, values, strict=True):
        found[i] = value
    return jax.tree.unflatten(structure, found)


def _with_symbol(leaf: Any, axes: Sequence[int], dim: Any) -> Any:
    shape = tuple(dim if axis in axes else size for axis, size in enumerate(leaf.shape))
    return jax.ShapeDtypeStruct(shape, leaf.dtype) if axes else leaf


def variables_of_results(closed: Any) -> set[str]:
    """Return the data-dependent variables in the shapes of a jaxpr's results."""
    dims = [dim for aval in closed.out_avals for dim in getattr(aval, "shape", ())]
    return {name for dim in dims for name in names_in(dim) if name.startswith(DYNAMIC)}


def _trace_until_unified(
    function: Callable[[DynamicShapes], Any], args: list[Any], limit: int | None, scope: Any
) -> Any:
    """Trace again with one more equality whenever sizes meet that may differ."""
    # Returns None if a dimension has no upper bound.
    equalities = Equalities()
    scope = export.SymbolicScope() if scope is None else scope  # one for all traces, since equalities hold dimensions
    before = 0

    def attempt() -> Any:
        nonlocal before
        before, tracker = len(equalities), DynamicShapes(limit, scope, equalities)
        closed = jax.make_jaxpr(function(tracker))(args)
        if not tracker.unbounded:
            return closed
        live = without_dead_sizes(closed, tracker.unbounded)
        if tracker.unbounded.isdisjoint(variables_in(live.jaxpr)):
            return live
        if len(equalities) == before and not tracker.assume_expected_bounds():
            return None
        raise _BoundsAssumedError

    def learn(error: Exception) -> bool:
        return isinstance(error, _BoundsAssumedError) or before < len(equalities) <= _MAX_EQUALITIES

    return retrace(attempt, learn, Tf2JaxError, _BoundsAssumedError)


def _symbols_of(arrays: list[Any]) -> tuple[export.SymbolicScope | None, dict[str, Any]]:
    """Return the scope of arrays' symbolic dimensions, and variables by name."""
    dims = [dim for x in arrays for dim in x.shape if not isinstance(dim, int)]
    if not dims:
        return None, {}
    scope = dims[0].scope
    return scope, {name: variable(name, scope) for dim in dims for name in names_in(dim)}
