"""Optimizer steps on rows of variables (``ResourceSparseApply*``).

TensorFlow's CPU kernels update the rows in the given order; a repeated row is updated repeatedly. Here unique rows are
updated in one scatter; repeated ones in a loop, as in the kernels. An index out of range is an error in TensorFlow;
under ``jit`` its row is skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Marker, marker_of
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

from . import optimizers as dense

Step = Callable[..., Any]


def _rows(step: Step, variables: tuple[Any, ...], grad: Any, indices: Any) -> tuple[Any, ...]:
    """Apply a step to rows of variables.

    Args:
      step: a function of rows of each variable and of the gradient; returns a tuple of new rows.
      grad: [n, ...], one row for each index.
    """
    variables = tuple(jnp.asarray(v) for v in variables)
    grad, count = jnp.asarray(grad), variables[0].shape[0]
    found = static_value(indices)
    if found is not None and isinstance(count, int) and ((found < 0) | (found >= count)).any():
        raise OpError(f"an index is out of range for a variable of {count} rows")
    indices = jnp.asarray(indices)
    # Negative indices are out of range too, and must not index from the end.
    indices = jnp.where(indices < 0, jnp.asarray(count, indices.dtype), indices)

    def at_once(variables: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = step(*(v.at[indices].get(mode="clip") for v in variables), grad)
        return tuple(v.at[indices].set(r.astype(v.dtype), mode="drop") for v, r in zip(variables, rows, strict=True))

    def one_by_one(variables: tuple[Any, ...]) -> tuple[Any, ...]:
        def body(variables: tuple[Any, ...], item: Any) -> Any:
            index, row = item
            rows = step(*(v.at[index].get(mode="clip") for v in variables), row)
            updated = (v.at[index].set(r.astype(v.dtype), mode="drop") for v, r in zip(variables, rows, strict=True))
            return tuple(updated), None

        return scan(body, variables, (indices, grad))[0]

    if found is not None:
        return (at_once if np.unique(found).size == found.size else one_by_one)(variables)
    ordered = lax.sort(indices)
    # Skipped rows may share an index. Their number may be dynamic: slices would differ in size.
    before = lax.pad(ordered, np.asarray(-1, ordered.dtype), [(1, -1, 0)])
    repeated = (ordered == before) & (ordered < count)
    return lax.cond(jnp.any(repeated), one_by_one, at_once, variables)


def _register(name: str, step: Callable[..., Any]) -> None:
    """Register a dense step for rows, with ``indices`` after the gradient."""
    signature = inspect.signature(step)
    parameters = [p.replace(name="grad") if p.name == "delta" else p for p in signature.parameters.values()]
    at = [p.name for p in parameters].index("grad")
    count = sum(marker_of(p.annotation, step.__globals__) is Marker.UPDATE for p in parameters)

    def call(*inputs, **attrs):
        """Take an optimizer step on rows. TF: core/kernels/training_ops.cc."""

        def step_of_rows(*values: Any) -> tuple[Any, ...]:
            *rows, grad = values
            result = step(*rows, *inputs[count:at], grad, *inputs[at + 2 :], **attrs)
            return result if isinstance(result, tuple) else (result,)

        return _rows(step_of_rows, inputs[:count], inputs[at], inputs[at + 1])

    indices = inspect.Parameter("indices", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters.insert(at + 1, indices)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    op(name)(call)


_register("ResourceSparseApplyProximalGradientDescent", dense.proximal_gradient_descent)
_register("ResourceSparseApplyMomentum", dense.momentum)
_register("ResourceSparseApplyKerasMomentum", dense.keras_momentum)
_register("ResourceSparseApplyAdagrad", dense.adagrad)
_register("ResourceSparseApplyAdagradV2", dense.adagrad_v2)
_register("ResourceSparseApplyProximalAdagrad", dense.proximal_adagrad)
_register("ResourceSparseApplyAdagradDA", dense.adagrad_da)
_register("ResourceSparseApplyAdadelta", dense.adadelta)
_register("ResourceSparseApplyRMSProp", dense.rms_prop)
_register("ResourceSparseApplyCenteredRMSProp", dense.centered_rms_prop)
_register("ResourceSparseApplyFtrl", dense.ftrl)
_register("ResourceSparseApplyFtrlV2", dense.ftrl_v2)
