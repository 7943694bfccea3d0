"""Convolutions as matrix products, and poolings spelled as they run fast, for CPUs.

XLA's CPU backend runs a convolution by a library call outside loops and by a plain loop nest inside them, which is some
25 times slower; and the gradients of small convolutions are slow everywhere. A convolution is a matrix product of
patches, whose gradients are matrix products too: as fast inside a loop as outside it. Gradients of poolings are slow as
well; `tf2jax_lite.xla_cpu.rules` has the remedy, which converted models have already and models in plain JAX get here.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jex_core

from tf2jax_lite.federated.model import Model
from tf2jax_lite.jaxprs.equations import bind
from tf2jax_lite.xla_cpu import pooling as _window  # noqa: F401
from tf2jax_lite.xla_cpu.conv import rule as _conv  # noqa: F401  (these two register what `variant_of` finds)
from tf2jax_lite.xla_cpu.rules import variant_of

__all__ = [
    "contains_convolution",
    "convolutions_as_products",
    "keeps_convolution_on_cpu",
    "patch_convolution",
    "with_products",
]

# Patches take as many times the memory of the input: beyond this a window is no longer a good bargain.
_LARGEST_WINDOW = 64
# What `ops.spelling` has twins of: all that a maximum over windows and its derivatives are made of.
_SPELLED = ("conv_general_dilated", "reduce_window_max", "reduce_window_sum")
_CALLS = ("jit", "pjit", "closed_call", "core_call")


def patch_convolution(
    x: Any,
    kernel: Any,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int],
    dimension_numbers: lax.ConvDimensionNumbers,
) -> Any:
    """Returns `jax.lax.conv_general_dilated` of ``x`` and ``kernel``, without groups and lhs dilation.

    Args:
      x: batch, channels and spatial axes, in the order that ``dimension_numbers`` says.
      kernel: output channels, input channels and spatial axes, likewise.
      window_strides: a number for each spatial axis.
      padding: ``(low, high)`` for each spatial axis, 0 or more.
      rhs_dilation: a number for each spatial axis.
      dimension_numbers: of ``jax.lax``.
    """
    numbers = dimension_numbers
    x = jnp.transpose(x, (numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1]))  # N, spatial, C
    kernel = jnp.transpose(kernel, (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0]))  # spatial, I, O
    zero = jnp.zeros((), x.dtype)
    x = lax.pad(x, zero, [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)])
    window, channels = kernel.shape[:-2], x.shape[-1]
    reach = [(size - 1) * dilation for size, dilation in zip(window, rhs_dilation, strict=True)]
    out = [
        (length - r - 1) // stride + 1 for length, r, stride in zip(x.shape[1:-1], reach, window_strides, strict=True)
    ]
    parts = []
    for offset in itertools.product(*(range(size) for size in window)):
        start = [o * d for o, d in zip(offset, rhs_dilation, strict=True)]
        limit = [s + (n - 1) * stride + 1 for s, n, stride in zip(start, out, window_strides, strict=True)]
        parts.append(lax.slice(x, [0, *start, 0], [x.shape[0], *limit, channels], [1, *window_strides, 1]))
    patches = parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)
    rows = patches.reshape(-1, patches.shape[-1])
    result = (rows @ kernel.reshape(-1, kernel.shape[-1])).reshape(x.shape[0], *out, kernel.shape[-1])
    spec = numbers.out_spec
    order = [0] * len(spec)  # result is N, spatial, O; axis spec[0] of the output is N, spec[1] is O
    for source, target in enumerate((spec[0], *spec[2:], spec[1])):
        order[target] = source
    return jnp.transpose(result, order)


def _suits(eqn: Any) -> bool:
    p, (x, kernel) = eqn.params, eqn.invars
    if p["feature_group_count"] != 1 or p["batch_group_count"] != 1 or any(d != 1 for d in p["lhs_dilation"]):
        return False
    if any(low < 0 or high < 0 for low, high in p["padding"]) or x.aval.dtype != kernel.aval.dtype:
        return False
    if p["preferred_element_type"] not in (None, x.aval.dtype) or 0 in x.aval.shape:
        return False
    if p["precision"] not in (None, (lax.Precision.DEFAULT, lax.Precision.DEFAULT)):
        return False
    return math.prod(kernel.aval.shape[d] for d in p["dimension_numbers"].rhs_spec[2:]) <= _LARGEST_WINDOW


def _inner(eqn: Any) -> list[Any]:
    found = []
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (jex_core.Jaxpr, jex_core.ClosedJaxpr)):
                found.append(getattr(item, "jaxpr", item))
    return found


def _any_convolution(jaxpr: Any, names: Sequence[str] = ("conv_general_dilated",)) -> bool:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in names:
            return True
        if name == "call_exported" and "convolution" in eqn.params["exported"].mlir_module():
            return True
        if any(_any_convolution(inner, names) for inner in _inner(eqn)):
            return True
    return False


def contains_convolution(fn: Callable[..., Any], *args: Any) -> bool:
    """Returns whether ``fn(*args)`` traces to anything with a convolution that a CPU's loops would be slow at.

    Args:
      fn: a function that can be traced.
      *args: pytrees of arrays, or of anything with shape and dtype.
    """
    return _any_convolution(jax.make_jaxpr(fn)(*args).jaxpr)


def keeps_convolution_on_cpu(fn: Callable[..., Any], *args: Any) -> bool:
    """Returns whether XLA's CPU backend is given a convolution to run for ``fn(*args)``.

    Those of converted models may be spelled as other operations when they are lowered; those inside an artefact's
    StableHLO are found, too.

    Args:
      fn: a function that can be traced.
      *args: pytrees of arrays, or of anything with shape and dtype.
    """
    traced = jax.jit(fn).trace(*args)
    if not _any_convolution(traced.jaxpr.jaxpr):
        return False
    return "stablehlo.convolution" in traced.lower(lowering_platforms=("cpu",)).as_text()


def _evaluate(jaxpr: Any, consts: Sequence[Any], *args: Any) -> list[Any]:
    """Evaluates a jaxpr with its convolutions replaced; calls are entered, custom derivatives left as they are."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(var: Any) -> Any:
        return var.val if isinstance(var, jex_core.Literal) else env[var]

    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        name = eqn.primitive.name
        if name == "conv_general_dilated" and _suits(eqn):
            keep = ("window_strides", "padding", "rhs_dilation", "dimension_numbers")
            found = [patch_convolution(*values, **{k: eqn.params[k] for k in keep})]
        elif name in _CALLS and _any_convolution(eqn.params["jaxpr"].jaxpr, _SPELLED):
            closed = eqn.params["jaxpr"]
            found = _evaluate(closed.jaxpr, closed.consts, *values)
        else:
            found = bind(eqn, *values, primitive=variant_of(eqn.primitive))
        env.update(zip(eqn.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def convolutions_as_products(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``fn`` with convolutions computed as products of patches, where that pays, and poolings spelled for CPUs.

    Convolutions with groups, of dilated inputs, with large windows, in other precisions, or inside loops, branches and
    functions with derivatives of their own stay as they are.
    """

    @functools.wraps(fn)
    def replaced(*args: Any) -> Any:
        closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        if not _any_convolution(closed.jaxpr, _SPELLED):
            return fn(*args)
        leaves = _evaluate(closed.jaxpr, closed.consts, *jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return replaced


def with_products(model: Model, backend: str | None = None) -> Model:
    """Returns the model with `convolutions_as_products` in both modes where the backend is a CPU, else as it is.

    Args:
      model: the model.
      backend: ``"cpu"``, or another; JAX's default backend if None.
    """
    if (backend or jax.default_backend()) != "cpu":
        return model
    return dataclasses.replace(
        model,
        apply_for_train=convolutions_as_products(model.apply_for_train),
        apply_for_eval=convolutions_as_products(model.apply_for_eval),
    )
