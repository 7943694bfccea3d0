"""Serialize functions as StableHLO, with their VJPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import whole_tracebacks, without_source_paths
from tf2jax_lite.lowering.interpreter.diagnostics import needed_constraint
from tf2jax_lite.support.errors import ExportError
from tf2jax_lite.values import static

from .dimension_syntax import dimension_names, evaluated
from .stage import Staged


@without_source_paths()  # they tell about the machine, and make the bytes depend on it
def serialize(
    staged: Staged, params: Mapping[str, Any], platforms: Sequence[str]
) -> tuple[bytes, ExportError | None, jax.export.Exported]:
    """Lower a traced function for several platforms and serialize it with its VJP.

    The function takes ``(variables, inputs, key)``: lists of arrays, the last one of raw key data (uint32), empty if
    no random numbers are drawn. It returns ``(results, updates)``.

    Returns:
      The module, the reason for which it has no VJP (None if it has one), and the function as JAX exported it.
    """

    def function(variables: list[Any], inputs: list[Any], key: list[Any]) -> Any:
        return staged.function(variables, inputs, [jax.random.wrap_key_data(k) for k in key])

    inputs = staged.arguments()
    variables = [jax.ShapeDtypeStruct(np.shape(params[n]), static.canonical(params[n].dtype)) for n in staged.variables]
    key = [jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))] if staged.rng else []
    floating = any(jnp.issubdtype(v.dtype, jnp.inexact) for v in [*variables, *inputs])
    try:
        with whole_tracebacks():
            exported = jax.export.export(jax.jit(function), platforms=list(platforms))(variables, inputs, key)
    except Exception as error:  # each primitive has its own errors
        kind = type(error).__name__
        raise _problem(f"no StableHLO for {', '.join(platforms)}: {kind}: {error}", error) from error
    _check_sizes(staged, exported, variables, key)
    if floating:
        try:
            with whole_tracebacks():
                return bytes(exported.serialize(vjp_order=1)), None, exported
        except Exception as error:  # a loop without a known trip count, or a primitive without a transpose
            return _serialized(exported), _problem(f"the StableHLO cannot be differentiated: {error}", error), exported
    return _serialized(exported), None, exported


def _problem(text: str, cause: Exception) -> ExportError:
    problem = ExportError(text)
    problem.constraint = needed_constraint(cause)
    return problem


def _check_sizes(staged: Staged, exported: jax.export.Exported, variables: list[Any], key: list[Any]) -> None:
    """Call the function, without computing, with another size for each symbol."""
    names = dict.fromkeys(name for spec in staged.inputs for size in spec.shape for name in dimension_names(str(size)))
    for least in _SIZES:
        sizes = {name: least + i for i, name in enumerate(names)}
        if all(constraint.holds(sizes) for constraint in staged.constraints):
            break
    else:
        return
    inputs = [
        jax.ShapeDtypeStruct([evaluated(str(size), sizes) for size in spec.shape], given.dtype)
        for spec, given in zip(staged.inputs, staged.arguments(), strict=True)
    ]
    try:
        jax.eval_shape(exported.call, variables, inputs, key)
    except Exception as error:  # JAX has various errors for sizes
        raise ExportError(f"the StableHLO does not accept the sizes {sizes}: {error}") from error


_SIZES = (2, 5, 16, 100)


def _serialized(exported: jax.export.Exported) -> bytes:
    try:
        return bytes(exported.serialize())
    except Exception as error:  # a dtype that JAX cannot serialize (int2)
        raise ExportError(f"JAX cannot write the StableHLO: {type(error).__name__}: {error}") from error
