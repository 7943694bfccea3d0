"""Compare JAX functions before and after StableHLO, in all transforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import tf2jax_lite as tf2jax
from tf2jax_lite.jaxprs.compat import COMPOSITE, ClosedJaxpr, Jaxpr, composite_jaxpr

# JAX since 0.12 expands the arcsine in its lowering; the imported function is equally long.
WRITTEN_OUT = None if jax.version.__version_info__ >= (0, 12) else 1.3


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    grad: bool = False
    vmap: bool = False
    size: float | None = 1.3  # how many times the original's equations there may be; None: any number
    tol: float = 2e-5
    jit: bool = True
    forward: bool = True  # with grad: forward mode, too
    second: bool = True  # with grad: its gradient, too

    def __str__(self):
        return self.name


def case(name, fn, *args, **options):
    return Case(name, fn, args, **options)


def imported(fn, *args, **options):
    specs = [jax.ShapeDtypeStruct(np.shape(a), jnp.asarray(a).dtype) for a in args]
    exported = export.export(jax.jit(fn))(*specs)
    return tf2jax.from_stablehlo(exported.mlir_module_serialized, **options)


def equations(fn, *args):
    return _count(jax.make_jaxpr(fn)(*args).jaxpr)


def _count(jaxpr):
    total = 0
    for eqn in jaxpr.eqns:
        total += eqn.primitive.name not in ("loop_start", "while_residuals")  # which compile to nothing
        # Single equations of JAX since 0.12 are expanded in modules.
        inside = [composite_jaxpr(eqn).jaxpr] if eqn.primitive.name == COMPOSITE else _jaxprs(eqn.params)
        total += sum(map(_count, inside))
    return total


def _jaxprs(value):
    """Yield jaxprs in an equation's parameters, as jax.extend's from 0.10 on."""
    if isinstance(value, ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _jaxprs(item)


def same(got, want, tol=2e-5):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (g.shape, g.dtype, w.shape, w.dtype)
        wide = np.complex128 if jnp.iscomplexobj(w) else np.float64
        np.testing.assert_allclose(np.asarray(g, wide), np.asarray(w, wide), rtol=tol, atol=tol)


def check(case):
    args = [jnp.asarray(a) for a in case.args]
    fn = imported(case.fn, *args)
    if case.size is not None:
        ours, theirs = equations(fn, *args), equations(case.fn, *args)
        assert ours <= max(case.size * theirs, theirs + 1), (ours, theirs, jax.make_jaxpr(fn)(*args))

    def run(f):
        def total(*inexact):
            full = _merged(args, inexact)
            return sum(
                jnp.sum((jnp.real(v) + jnp.imag(v)) * jnp.cos(jnp.arange(v.size).reshape(v.shape)))
                for v in _inexact(f(*full))
            )

        def everything(*full):
            out = {"value": jax.tree.leaves(f(*full))}
            inexact = _inexact(full)
            if case.vmap:
                out["vmap"] = jax.tree.leaves(jax.vmap(f)(*(jnp.stack([v, v[::-1] if v.ndim else v]) for v in full)))
            if case.grad:
                which = tuple(range(len(inexact)))
                grad = jax.grad(total, which) if not _complex(inexact) else _pulled(total)
                out["grad"] = grad(*inexact)
                if case.forward:
                    tangents = [jnp.ones_like(v) for v in inexact]
                    out["jvp"] = jax.jvp(total, inexact, tangents)[1]
                if not case.second:
                    return out
                second = lambda *x: sum(jnp.sum(jnp.sin(jnp.real(g) + jnp.imag(g))) for g in grad(*x))  # noqa: E731
                out["second"] = (_pulled(second) if _complex(inexact) else jax.grad(second))(*inexact)
            return out

        return everything(*args)

    # One program for both: where they are the same, the compiler meets everything once.
    got, want = jax.jit(lambda: (run(fn), run(case.fn)))() if case.jit else (run(fn), run(case.fn))
    for key in want:
        same(got[key], want[key], case.tol if key == "value" else 20 * case.tol)


def _complex(arrays):
    return any(jnp.iscomplexobj(v) for v in arrays)


def _pulled(fn):
    """Return the gradient of a real function of complex numbers."""
    return lambda *x: jax.vjp(fn, *x)[1](jnp.float32(1))


def _inexact(tree):
    return [v for v in jax.tree.leaves(tree) if jnp.issubdtype(v.dtype, jnp.inexact)]


def _merged(args, inexact):
    remaining = iter(inexact)
    return [next(remaining) if jnp.issubdtype(v.dtype, jnp.inexact) else v for v in args]
