"""Ops without implementation, compiled to StableHLO for given shapes."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.providers import InputSpec, NodeCompiler, NodeEvaluator
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Context
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.op_traits import UNSUPPORTED
from tf2jax_lite.values import static
from tf2jax_lite.values import static as values


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
        name: _compiled_op(name, found, compiler)
        for name, found in unknown.items()
        if all(compiler.accepts(node) and not node.functions for node in found)
    }


def _compiled_op(name: str, nodes: Sequence[ir.Node], compiler: NodeCompiler) -> registry.Op:
    attrs = {attr for node in nodes for attr in node.attrs}
    evaluate = _evaluator(compiler)
    evaluate.__signature__ = signature_of(attrs, "ctx")  # type: ignore[attr-defined]
    with registry.override_op(name, evaluate):
        return registry.ops_in_force()[name]


def _evaluator(compiler: NodeCompiler) -> Callable[..., list[Any]]:
    def evaluate(ctx: Any, *args: Any, **attrs: Any) -> list[Any]:
        del attrs  # the compiler has them with the node
        from tf2jax_lite.stablehlo import api  # few models need it

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


_TRACED = (
    "an input is not static, and it runs on static strings only; JAX has no string arrays. If "
    "it prepares the inputs, leave it in TensorFlow: convert_saved_model(..., split_host=True)"
)


def evaluated_ops(
    specs: Iterable[ir.NodeSpec], known: Mapping[str, registry.Op], evaluator: NodeEvaluator
) -> dict[str, registry.Op]:
    """Return implementations by evaluation of unknown ops with kernels.

    Args:
      specs: those of all nodes of a graph.
      known: the ops that need none.
      evaluator: evaluates them. It is stored, and called whenever such a node is traced.
    """
    attrs: dict[str, set[str]] = {}
    for spec in specs:
        if spec.op not in known and spec.op not in UNSUPPORTED and evaluator.accepts(spec.op):
            attrs.setdefault(spec.op, set()).update(name for name in spec.attrs if not name.startswith("_"))
    return {name: _evaluated_op(name, names, evaluator) for name, names in attrs.items()}


def _evaluated_op(name: str, attrs: Iterable[str], evaluator: NodeEvaluator) -> registry.Op:
    signature = signature_of(attrs)
    host = _host(name, evaluator)
    for fn in (host, traced := _refusing()):
        fn.__signature__ = signature  # type: ignore[attr-defined]
    with registry.override_op(name, traced, fold=host):
        return registry.ops_in_force()[name]


def _refusing() -> Callable[..., Any]:
    def traced(*inputs: Any, **attrs: Any) -> Any:
        del inputs, attrs
        raise OpError(_TRACED)

    return traced


def _host(name: str, evaluator: NodeEvaluator) -> Callable[..., Any]:
    def host(*inputs: Any, **attrs: Any) -> Any:
        for value in (v for group in inputs for v in (group if isinstance(group, list) else [group])):
            if not isinstance(value, np.ndarray) or (static.is_symbolic(value) and value.size):
                raise OpError(_TRACED)
        return tuple(evaluator.evaluate(name, inputs, {k: v for k, v in attrs.items() if v is not None}))

    return host


_INPUTS = "inputs"


def signature_of(attrs: Iterable[str], first: str | None = None) -> inspect.Signature:
    """Return a signature of any inputs, and attributes as keywords (None).

    Attributes whose names are no Python identifiers are left out: plans raise an error for them.
    """
    kinds = inspect.Parameter
    taken = {_INPUTS, first}
    names = sorted({a for a in attrs if a.isidentifier() and not keyword.iskeyword(a) and a not in taken})
    before = [] if first is None else [kinds(first, kinds.POSITIONAL_ONLY, annotation=Context)]
    after = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in names]
    return inspect.Signature([*before, kinds(_INPUTS, kinds.VAR_POSITIONAL), *after])
