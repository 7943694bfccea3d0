"""Calls that XLA compiles by themselves, in the place of putting what they do where they stand.

XLA puts a called function's operations among the caller's, and then fuses each into whatever uses it. What two results
are made of is computed twice then: a convolution written as sums of products, say, that a layer normalization uses for
its mean and again for its result. A call that is marked to stay one is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
from jax.interpreters import mlir

__all__ = ["call", "kept"]


def kept(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns ``fn(*args)``, computed by a call that XLA does not take apart. For lowering rules: has no derivative.

    Args:
      fn: a function of arrays; it gives one array.
      *args: arrays.
    """
    (result,) = _kept.bind(*args, jaxpr=jax.make_jaxpr(fn)(*args))
    return result


def call(ctx: Any, *args: Any, jaxpr: Any, name: str = "kept") -> Any:
    """Lowers a jaxpr as a call that is marked to stay one."""
    results = mlir.core_call_lowering(ctx, *args, name=name, call_jaxpr=jaxpr)
    marks: dict[str, Any] = {"inlineable": mlir.ir.StringAttr.get("false")}
    jax.tree.leaves(results)[0].owner.attributes["mhlo.frontend_attributes"] = mlir.ir.DictAttr.get(marks)
    return results


_kept = jex.Primitive("kept")
_kept.multiple_results = True
_kept.def_abstract_eval(lambda *_, jaxpr: jaxpr.out_avals)
mlir.register_lowering(_kept, call)
