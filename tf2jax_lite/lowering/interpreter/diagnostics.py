"""Errors that name the node at which a problem arose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.dynamic_shapes.dim_expr import Constraint, constraint_asked_for, constraint_of_shapes
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, inconclusive_comparison
from tf2jax_lite.lowering.merging.branch_merge import UNDEFINED, UndefinedValueError, is_variant
from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.support.errors import (
    LoweringError,
    MissingKeyError,
    MissingParamError,
    PreventedGradientError,
    Tf2JaxError,
)

from .frame import Frame

NO_FORWARD_RULE = (
    "a custom gradient here has a reverse rule only, so forward mode (jax.jvp, jax.jacfwd) cannot pass it. Use reverse "
    "mode (jax.vjp, jax.grad, jax.jacrev), or convert with override_config('convert_custom_gradient', False) to "
    "differentiate the forward code instead"
)
NOT_LINEAR = (
    "the custom gradient here is not linear in the gradients it gets (it clips them, say): it is a reverse rule only, "
    "so forward mode (jax.jvp, jax.jacfwd) cannot pass it. Use reverse mode (jax.vjp, jax.grad, jax.jacrev), or "
    "convert with override_config('convert_custom_gradient', False) to differentiate the forward code instead"
)
# Shapes with symbolic dimensions that do not fit each other, although they may be equal.
_SYMBOLIC_SHAPES = (
    " Symbolic sizes are equal if they are written the same: a size may be a multiple (8*h), where it is divided, or "
    "a sum (b+1, p+n), as row splits beside a batch, or past and present. Fixed sizes always work."
)
_EXPLICIT_AXES = (
    "the sharding of its result is ambiguous over mesh axes of type Explicit. Make the mesh with "
    "axis_types=(jax.sharding.AxisType.Auto,), one for each axis, or call "
    "jax.sharding.auto_axes(fn, out_sharding=...) under jax.set_mesh"
)


def describe(step: Step, frame: Frame) -> str:
    """Return the name, op, call path and source line of a node, for messages."""
    node = step.node
    where = f"node {node.name!r} ({node.op})"
    if frame.path:
        where += f" in {' > '.join(frame.path)}"
    if node.location:
        where += f", {node.location}"
    return where


def located(problem: Exception | str, step: Step, frame: Frame, hint: str = "") -> LoweringError:
    """Return an error that names the node at which a problem arose."""
    node, constraint = step.node, getattr(problem, "constraint", None)
    text = str(problem) if isinstance(problem, (str, Tf2JaxError)) else f"{type(problem).__name__}: {problem}"
    if isinstance(problem, TypeError) and "forward-mode" in text:
        text = NO_FORWARD_RULE
    if type(problem).__name__ == "ShardingTypeError":  # which has no public name
        text = _EXPLICIT_AXES
    if isinstance(problem, InconclusiveDimensionOperation):
        text = f"a size must be known here: {str(problem).splitlines()[0]}"
        if (constraint := constraint_asked_for(problem)) is not None:
            told = f"jax.export.symbolic_shape(..., constraints=[{str(constraint)!r}]) tells JAX"
            text += f" It holds, which {told}." if constraint.holds_for_all() else f" Where it has to hold, {told} so."
    if hint:
        text = text.removesuffix(".") + "."
    found = LoweringError(f"{describe(step, frame)}: {text}{hint}", node=node.name, op=node.op, path=frame.path)
    if constraint is not None:
        found.constraint = constraint
    return found


def needed_constraint(error: BaseException | None) -> Constraint | None:
    """Return the constraint on symbolic dimensions that an error asks for."""
    while error is not None:
        found = getattr(error, "constraint", None) or constraint_asked_for(error)
        if found is not None:
            return found
        error = error.__cause__
    return None


def is_explained(error: Exception) -> bool:
    """Return whether an error names its node, or is the lowering's control flow."""
    if isinstance(error, PreventedGradientError):
        return bool(error.node)
    explained = isinstance(error, (LoweringError, MissingKeyError, MissingParamError))
    return explained or getattr(error, "_tf2jax_lite_control", False)


def cause(error: Exception, step: Step, inputs: Sequence[Any]) -> Exception:
    """Return the error, or the reason for it if an input is undefined.

    `select_branch` leaves out a branch whose `LoweringError` was raised from the latter.
    """
    if any(v is UNDEFINED for v in inputs) and not step.op.needs_context and not isinstance(error, Tf2JaxError):
        return UndefinedValueError("it reads a value that is defined only in branches that cannot run")
    return error


def explain(
    error: Exception, step: Step, inputs: Sequence[Any], frame: Frame
) -> LoweringError | PreventedGradientError:
    """Return the error to raise for one that an op raised."""
    if isinstance(error, PreventedGradientError):
        found = located(error, step, frame)
        return PreventedGradientError(str(found), node=found.node, op=found.op, path=found.path)
    shapes = [value.shape for value in inputs if isinstance(value, jax.Array)]
    is_symbolic = not all(isinstance(size, int) for shape in shapes for size in shape)
    is_about_shapes = isinstance(error, (TypeError, ValueError)) and "shape" in str(error)
    if isinstance(error, Tf2JaxError):
        found = located(error, step, frame)
    elif not is_about_shapes or not is_symbolic:
        found = located(error, step, frame, _variant_hint(inputs))
    else:
        found = located(error, step, frame, _SYMBOLIC_SHAPES)
        found.constraint = constraint_of_shapes(shapes)
    met = inconclusive_comparison(error)
    sizes = [tuple(v.reshape(-1)) for v in inputs if isinstance(v, np.ndarray) and v.dtype == object and v.ndim < 2]
    found.shapes = [*shapes, *sizes] if met is None else [met[:1], met[1:]]
    return found


def _variant_hint(inputs: Sequence[Any]) -> str:
    """Return a hint for ops of arrays that get a variant; empty if no input is one."""
    for position, value in enumerate(inputs):
        if is_variant(value):
            return (
                f" Input {position} is a variant ({type(value).__name__}), not an array: only ops for such variants "
                "read it; they return its arrays."
            )
    return ""


def missing_key(nodes: Sequence[str]) -> MissingKeyError:
    """Return the error for a function that draws random numbers and got no key."""
    listed = ", ".join(nodes[:10]) + (", ..." if len(nodes) > 10 else "")
    return MissingKeyError(
        f"PRNG key required: {len(nodes)} node(s) draw random numbers ({listed}). Call with rng=jax.random.key(seed)."
    )
