"""An optimizer step, the cost of compilation, and counts of equations and kernels."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import optax


def optimizer_step(forward: Callable[[Any, Any], Any], trainable: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step of SGD with momentum on a smooth loss, and its state.

    Args:
      forward: weights and inputs to results.
      trainable: the weights.
    """
    optimizer = optax.sgd(1e-3, momentum=0.9)

    def step(trainable: Any, state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return sum(jnp.mean(jnp.square(r)) for r in jax.tree.leaves(forward(weights, x)))

        value, grads = jax.value_and_grad(loss)(trainable)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(trainable, updates), state, value

    return step, optimizer.init(trainable)


def compile_once(fn: Any, args: Any) -> tuple[Any, dict[str, Any]]:
    """Trace and compile.

    Args:
      fn: what ``jax.jit`` gave.
      args: its arguments.

    Returns:
      The compiled function; and seconds of ``trace``, ``compile`` and ``cpu`` (processor time of both together), how
      many ``equations`` there are, how many ``kernels``, and how many ``different`` ones.
    """
    start, begun = time.perf_counter(), time.process_time()
    traced = fn.trace(*args)
    middle = time.perf_counter()
    compiled = traced.lower().compile()
    end, cpu = time.perf_counter(), time.process_time() - begun
    sizes = {
        "equations": equations(traced.jaxpr),
        "kernels": kernels(compiled),
        "different": different_kernels(compiled.as_text()),
    }
    return compiled, {"trace": middle - start, "compile": end - middle, "cpu": cpu, **sizes}


def equations(closed: Any) -> int:
    """Return the number of a jaxpr's equations, with those of called jaxprs."""
    count = 0
    for eqn in closed.jaxpr.eqns:
        inner = [j for v in eqn.params.values() for j in (v if isinstance(v, (tuple, list)) else [v])]
        closed_inner = [
            j if isinstance(j, jex.ClosedJaxpr) else jex.ClosedJaxpr(j, ())
            for j in inner
            if isinstance(j, (jex.ClosedJaxpr, jex.Jaxpr))
        ]
        count += sum(map(equations, closed_inner)) if closed_inner else 1
    return count


def kernels(compiled: Any) -> int:
    """Return the number of fusions, which XLA compiles separately."""
    return sum(" fusion(" in line for line in compiled.as_text().splitlines())


def different_kernels(text: str) -> int:
    """Return the number of different fusions, without library calls.

    Args:
      text: of a compiled program.
    """
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for line in text.splitlines():
        if line.endswith("{") and " -> " in line:
            body = bodies[line.split(" ", 1)[0]] = []
        else:
            body.append(re.sub(r", (metadata|backend_config)=.*", "", line))
    return len(
        {
            (form, _renamed("\n".join(bodies[called])))
            for form, kind, called in re.findall(r"= (\S+) fusion\(.*kind=(\w+), calls=([^\s,]+)", text)
            if kind != "kCustom"
        }
    )


def _renamed(body: str) -> str:
    """Return a computation with its values called by numbers."""
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda found: names.setdefault(found[0], f"%{len(names)}"), body)
