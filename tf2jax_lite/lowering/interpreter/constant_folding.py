"""Nodes whose inputs are all static, computed while tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, is_traced
from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.values.int64 import exceeds_32_bits
from tf2jax_lite.values.symbolic_float import is_float_dim

from .constant_size import check_growth, check_specs
from .frame import FOLDING_FRAME
from .operands import flat_results, grouped, prepare

if TYPE_CHECKING:
    from .trace import Trace

# Elements of a folded constant, if no input is larger. Larger ones are left to XLA, which need not keep them.
_MAX_FOLDED = 1024


def fold(trace: Trace, step: Step, inputs: Sequence[Any]) -> list[Any] | None:
    """Return a node's results as NumPy arrays; None if it is to be traced."""
    args = grouped(step, inputs)
    if inputs or step.op.result_size is not None:
        check_growth(step, inputs, args, trace.program.config.max_constant_bytes)
    if step.op.fold is not None:
        try:
            return flat_results(step.op.fold(*args, **step.kwargs))
        except InconclusiveDimensionOperation:
            return None
        except TypeError:
            if any(map(is_float_dim, inputs)):  # NumPy has no arithmetic for them
                return None
            raise
    return _run(trace, step, inputs)


def _run(trace: Trace, step: Step, inputs: Sequence[Any]) -> list[Any] | None:
    """Run an op without a constant folder at once; None if it must be traced."""
    # Operands beyond 32 bits are computed with in 64-bit mode.
    op = step.op
    if not inputs or not op.plain or step.functions or any(v.dtype == object for v in inputs):
        return None
    wide = jax.enable_x64(True) if any(map(exceeds_32_bits, inputs)) else contextlib.nullcontext()
    with jax.ensure_compile_time_eval(), wide:
        args, kwargs = prepare(trace, step, inputs, FOLDING_FRAME)[0], dict(step.kwargs)
        if op.bound is not None:  # of data-dependent sizes, which constants have not
            kwargs.setdefault(op.bound, None)
        try:
            specs = jax.eval_shape(lambda: flat_results(op.fn(*args, **kwargs)))
        except Exception:  # results that are no arrays, or an error that tracing reports with its node
            return None
        if not all(isinstance(spec, jax.ShapeDtypeStruct) for spec in specs):
            return None
        check_specs(specs, trace.program.config.max_constant_bytes)
        if sum(spec.size for spec in specs) > max(_MAX_FOLDED, *(v.size for v in inputs)):
            return None
        results = flat_results(op.fn(*args, **kwargs))
        # Under vmap, functions with derivative rules of their own (jax.custom_jvp) are traced even here.
        if any(map(is_traced, results)):
            return None
        return [np.asarray(v) for v in results]
