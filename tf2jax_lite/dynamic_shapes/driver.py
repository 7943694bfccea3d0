"""Runs a program, with symbols for the sizes that data decides if there are any."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.errors import LoweringError, StaticInputError, Tf2JaxError

from . import rules_control_flow, rules_elementwise, rules_indexing, rules_reductions, rules_shapes, rules_windows  # noqa: F401
from .actual_sizes import Sizes, is_symbolic
from .assumptions import read_only, sizes_in
from .dim_expr import FOUND
from .evaluator import Evaluator
from .tracker import SINGLE, Agreed, Extents, UnboundedError, is_found

__all__ = ["traced"]

_log = logging.getLogger("tf2jax_lite")


_MOST_AGREED = 32  # pairs of sizes: for each the program is traced once more


class _OpenResultError(Exception):
    """A result has a size that data decides, or nothing tells how large one can be.

    Attributes:
      results: what the program returned, as it was traced: flat results, and variables by name.
    """

    def __init__(self, results: Any):
        super().__init__()
        self.results = results


def traced(
    run: Callable[..., Any],
    args: tuple[Any, ...],
    limit: int | None,
    names: Callable[[], Sequence[str]] = list,
    single: Mapping[int, Sequence[int]] | None = None,
) -> Any:
    """Returns what a program gives.

    It is run as it is first. Where an op of it finds a size that data decides, it is traced anew with a symbol for
    it, and what was traced is evaluated with arrays that have room for the most that there can be.

    Args:
      run: called as ``run(*args, extents=..., pads=...)``; see `Trace`.
      args: its arguments: pytrees of arrays.
      limit: what to pad results of such sizes to; None refuses them.
      names: returns the names of the results, for messages.
      single: for inputs, by position in the second of ``args``, the axes of size 1 that the signature leaves open.

    Raises:
      LoweringError: a node's result has a size that data decides, and what follows cannot be computed so.
    """
    leaves, tree = jax.tree.flatten(args)
    moving = [i for i, v in enumerate(leaves) if is_traced(v)]
    if not moving:
        return run(*args, pads=True)
    try:
        return run(*args, pads=False)
    except StaticInputError as error:
        refusal = error
    except LoweringError as error:
        if not isinstance(error.__cause__, UnboundedError):
            raise
        refusal = error
    try:
        return _with_extents(run, leaves, tree, moving, limit)
    except _OpenResultError as error:
        before = len(jax.tree.leaves(args[0]))
        if single and limit is None:
            with contextlib.suppress(_OpenResultError, Tf2JaxError):
                return _with_extents(run, leaves, tree, moving, limit, {before + i: axes for i, axes in single.items()})
        raise _extended(refusal, _shown(error, names())) from refusal.__cause__
    except Tf2JaxError as error:
        if limit is None:
            place = f"Without that it fails at {error}" if getattr(error, "node", "") != refusal.node else ""
            raise _extended(refusal, place) from error
        reason = error
    try:
        results = run(*args, pads=True)
    except LoweringError as error:
        if not isinstance(error, StaticInputError) and not isinstance(error.__cause__, UnboundedError):
            raise
        # To set the bound, as that error says, is no advice where it is set.
        why = f"nor do results padded to {limit} do, which node {error.node!r} ({error.op}) cannot take"
        message = f"{str(reason).rstrip('.')}; {why}"
        raise LoweringError(message, node=refusal.node, op=refusal.op, path=refusal.path) from error
    _log.warning("Results are padded to %d, and what is computed of them counts the padding in: %s", limit, reason)
    return results


def _extended(refusal: LoweringError, text: str) -> LoweringError:
    """Return an error that says more; of the same type, so that it can be caught as that."""
    message = f"{str(refusal).rstrip('.')}. {text}" if text else str(refusal)
    return type(refusal)(message, node=refusal.node, op=refusal.op, path=refusal.path)


def _shown(error: _OpenResultError, names: Sequence[str]) -> str:
    """Return a sentence about the first result of data-dependent size."""
    flat, variables = error.results
    found = [(f"Result {name}", value) for name, value in zip(names, flat, strict=False)]
    found += [(f"Variable {name!r}", value) for name, value in variables.items()]
    for name, value in found:
        if isinstance(value, jax.Array) and is_symbolic(shape := value.shape):
            sizes = ", ".join("?" if is_found(size) else str(size) for size in shape)
            return f"{name} of shape [{sizes}] cannot leave jax.jit otherwise"
    return ""


def _with_extents(
    run: Callable[..., Any],
    leaves: list[Any],
    tree: Any,
    moving: list[int],
    limit: int | None,
    single: Mapping[int, Sequence[int]] | None = None,
) -> Any:
    """Traces with symbols, and evaluates.

    Args:
      run: see `traced`.
      leaves: the arguments' arrays.
      tree: their structure.
      moving: which of them are traced.
      limit: see `traced`.
      single: for leaves, the axes of size 1 that are a symbol, too: a batch of one, which is not to be broadcast.
    """
    form: list[Any] = []
    returned: list[Any] = [([], {})]

    def function(extents: Extents, chosen: list[Any]) -> list[Any]:
        given = list(leaves)
        for i, value in zip(moving, chosen, strict=True):
            given[i] = value
        results = run(*jax.tree.unflatten(tree, given), extents=extents, pads=False)
        returned[:] = [results]
        found, structure = jax.tree.flatten(results, is_leaf=lambda v: v is None)
        arrays = [i for i, v in enumerate(found) if isinstance(v, jax.Array)]
        form[:] = [[None if i in arrays else v for i, v in enumerate(found)], arrays, structure]
        return [found[i] for i in arrays]

    scope, others = _given([leaves[i] for i in moving])
    operands, sizes = [leaves[i] for i in moving], Sizes(others)
    if single:
        scope = export.SymbolicScope() if scope is None else scope
        (one,) = export.symbolic_shape(SINGLE, scope=scope)
        operands = [_with_symbol(leaves[i], single.get(i, ()), one) for i in moving]
        sizes.define(SINGLE, 1, np.int32(1))
    closed = _agreeing(lambda extents: functools.partial(function, extents), operands, limit, scope)
    if closed is None or (limit is None and not sizes_of_results(closed) <= {SINGLE}):
        raise _OpenResultError(returned[0])
    found, arrays, structure = form
    values = Evaluator(sizes).checked(closed, [leaves[i] for i in moving])
    for i, value in zip(arrays, values, strict=True):
        found[i] = value
    return jax.tree.unflatten(structure, found)


def _with_symbol(leaf: Any, axes: Sequence[int], dim: Any) -> Any:
    shape = tuple(dim if axis in axes else size for axis, size in enumerate(leaf.shape))
    return jax.ShapeDtypeStruct(shape, leaf.dtype) if axes else leaf


def sizes_of_results(closed: Any) -> set[str]:
    """Return the names of the data-dependent variables in the shapes of a jaxpr's results."""
    dims = [dim for aval in closed.out_avals for dim in getattr(aval, "shape", ()) if is_found(dim)]
    return {name for dim in dims for name in re.findall(rf"\b{FOUND}\d+", str(dim))}


def _agreeing(function: Callable[[Extents], Any], args: list[Any], limit: int | None, scope: Any) -> Any:
    """Traces a program, and anew wherever it fails as two sizes meet that nothing says are equal: then they are.

    Returns None if nothing tells how large a size can be.
    """
    agreed = Agreed()
    while True:
        before, extents = len(agreed), Extents(limit, export.SymbolicScope() if scope is None else scope, agreed)
        try:
            closed = jax.make_jaxpr(function(extents))(args)
        except Tf2JaxError:
            if len(agreed) == before or len(agreed) > _MOST_AGREED:
                raise
            continue
        if not extents.open:
            return closed
        read = read_only(closed, extents.open)
        if extents.open.isdisjoint(sizes_in(read.jaxpr)):
            return read
        if len(agreed) == before and not extents.settle():
            return None


def _given(arrays: list[Any]) -> tuple[export.SymbolicScope | None, dict[str, Any]]:
    """Returns the scope of the symbolic dimensions that arrays have, and their variables by name."""
    dims = [dim for x in arrays for dim in x.shape if not isinstance(dim, int)]
    if not dims:
        return None, {}
    scope = dims[0].scope
    names = {name for dim in dims for name in re.findall(r"[a-zA-Z_]\w*", str(dim))} - {"max", "min", "mod", "floordiv"}
    return scope, {name: export.symbolic_shape(name, scope=scope)[0] for name in names}
