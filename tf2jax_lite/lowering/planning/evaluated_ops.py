"""Ops without implementation and with static inputs, run by TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.providers import NodeEvaluator
from tf2jax_lite.ops import registry
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.support.op_traits import UNSUPPORTED
from tf2jax_lite.values import static

from .keywords import signature_of

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
    return {name: _op(name, names, evaluator) for name, names in attrs.items()}


def _op(name: str, attrs: Iterable[str], evaluator: NodeEvaluator) -> registry.Op:
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
