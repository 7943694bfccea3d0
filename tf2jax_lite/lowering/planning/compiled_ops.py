"""Ops without implementation, compiled to StableHLO for given shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.providers import InputSpec, NodeCompiler
from tf2jax_lite.ops import registry
from tf2jax_lite.stablehlo import api
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.op_traits import UNSUPPORTED
from tf2jax_lite.values import static as values

from .keywords import signature_of


def fallback_ops(
    nodes: Iterable[ir.Node], known: Mapping[str, registry.Op], compiler: NodeCompiler
) -> dict[str, registry.Op]:
    """Return implementations by compilation of unknown ops that compile.

    Args:
      compiler: compiles them. It is stored, and called whenever such a node is traced.
    """
    unknown: dict[str, list[ir.Node]] = {}
    for node in nodes:
        if node.op not in known and node.op not in UNSUPPORTED:
            unknown.setdefault(node.op, []).append(node)
    return {
        name: _op(name, found, compiler)
        for name, found in unknown.items()
        if all(compiler.accepts(node) and not node.functions for node in found)
    }


def _op(name: str, nodes: Sequence[ir.Node], compiler: NodeCompiler) -> registry.Op:
    attrs = {attr for node in nodes for attr in node.attrs}
    evaluate = _evaluator(compiler)
    evaluate.__signature__ = signature_of(attrs, "ctx")  # type: ignore[attr-defined]
    with registry.override_op(name, evaluate):
        return registry.ops_in_force()[name]


def _evaluator(compiler: NodeCompiler) -> Callable[..., list[Any]]:
    def evaluate(ctx: Any, *args: Any, **attrs: Any) -> list[Any]:
        del attrs  # the compiler has them with the node
        flat = [v for arg in args for v in (arg if isinstance(arg, list) else [arg])]
        inputs = [_input(v) for v in flat]
        compiled = compiler.compile(ctx.step.node, inputs)
        return api.evaluate(
            api.parse(compiled.module, own=True),
            [values.as_array(flat[i]) for i in compiled.arguments],
            infer_relu=False,
            cast=ctx.trace.promote_dtypes,
        )

    return evaluate


def _input(value: Any) -> InputSpec:
    if values.is_symbolic(value) or any(not isinstance(d, int) for d in np.shape(value)):
        raise OpError(
            "this op has no implementation, and TensorFlow's XLA bridge compiles it for sizes that are numbers "
            f"only, not for {value}; trace it with fixed shapes, or add the op with @tf2jax_lite.register_op"
        )
    if not (values.is_static(value) or isinstance(value, jax.Array)):
        raise OpError(f"a value that is no JAX array ({type(value).__name__}); 64-bit words need jax_enable_x64")
    return InputSpec(tuple(value.shape), values.is_static(value), values.static_value(value))
