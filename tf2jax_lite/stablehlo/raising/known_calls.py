"""The catalog of expanded calls, and the cheap search for them.

Each has a function that calls it again; `recognizer` proves or drops each candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.interpreter.core import OpContext, rule
from tf2jax_lite.stablehlo.parsing.module import Op, Region, TensorType

from .subgraph_match import Makers


@dataclasses.dataclass(frozen=True)
class Idiom:
    """A call that may be in a module."""

    name: str
    types: tuple[TensorType, ...]
    options: tuple[tuple[str, Any], ...] = ()
    platform: str = "cpu"

    def call(self, *args: Any) -> list[Any]:
        """Call it."""
        return jax.tree.leaves(_CALLS[self.name](*args, **dict(self.options)))


def frozen(value: Any) -> Any:
    """Return an attribute hashable: pairs for mappings, tuples for arrays, lists."""
    if isinstance(value, dict):
        return tuple((k, frozen(v)) for k, v in value.items())
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


# ---- random numbers ----


def _key(data: Any, impl: str) -> Any:
    return jax.random.wrap_key_data(data, impl=impl)


def _mapped(fn: Callable[..., Any], axes: list[tuple[int | None, ...]]) -> Callable[..., Any]:
    for level in axes:
        fn = jax.vmap(fn, in_axes=level)
    return fn


def _gamma(key: Any, a: Any, *, shape: tuple[int, ...], log_space: bool, mapped: bool) -> Any:
    def draw(key: Any, a: Any) -> Any:
        variates = jax.random.loggamma if log_space else jax.random.gamma
        return variates(_key(key, "threefry2x32"), a, shape, a.dtype)

    return _mapped(draw, [(0, 0 if mapped else None)] * (key.ndim - 1))(key, a)


def _window_tangent(x: Any, tangent: Any, *, kind: str, window: tuple[Any, ...]) -> Any:
    reduce = lax.max if kind == "max" else lax.min
    start = -np.inf if kind == "max" else np.inf
    pool = lambda y: lax.reduce_window(y, np.asarray(start, y.dtype), reduce, *window)  # noqa: E731
    return jax.jvp(pool, (x,), (tangent,))


ARITY = {"nextafter": 2, "zeta": 2, "polygamma": 2}
"""Numbers of arguments of elementwise functions with more than one."""

POLYNOMIALS = ("bessel_i1e", "digamma", "erf_inv", "lgamma")
"""Functions that are found by name if their argument is not a constant: see `recognizer`."""

ELEMENTWISE = (*ARITY, *POLYNOMIALS, "bessel_i0e", "erfc")
"""Functions whose op histogram is the same for all shapes."""

_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in ELEMENTWISE},
    "window_tangent": _window_tangent,
    "gamma": _gamma,
}


@rule(*(f"jax.{name}" for name in _CALLS))
def _idiom(ctx: OpContext, *args: Any) -> Any:
    return ctx.attr("idiom").call(*args)


def candidates(region: Region, makers: Makers) -> Iterator[Idiom]:
    """Yield the candidate idioms of a region's own ops, each once."""
    seen: dict[Idiom, None] = {}
    for op in region.ops:
        for found in _of_op(op, region, makers):
            seen[found] = None
    yield from seen


Search = Callable[[Op, Region, Makers], Iterator[Idiom]]
_SEARCHES: dict[str, list[Search]] = {}
"""The searches that start at an op, by its name."""


def _starts_at(*names: str) -> Callable[[Search], Search]:
    """Register a search that starts at ops of these names."""

    def register(search: Search) -> Search:
        for name in names:
            _SEARCHES.setdefault(name, []).append(search)
        return search

    return register


def _of_op(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    for search in _SEARCHES.get(op.name, ()):
        yield from search(op, region, makers)
    named = op.where.rpartition("/")[2]
    if named in _NAMED and not op.name.startswith("chlo."):
        for type_ in _float_types([op] if op.name != "stablehlo.constant" else region.ops):
            yield _function(named, type_)


_NAMED = frozenset(["bessel_i0e", "erfc", "nextafter", "polygamma", "zeta", *POLYNOMIALS])
"""Functions whose name is in the location of their expansion."""


def _function(name: str, type_: TensorType) -> Idiom:
    return Idiom(name, (type_,) * ARITY.get(name, 1))


def _tensors(types: Sequence[Any]) -> bool:
    return all(isinstance(t, TensorType) and t.is_static for t in types)


# ---- special functions ----


@_starts_at("func.call")
def _implementation(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find calls of ``lgamma_impl`` and similar, JAX's lowering since 0.12."""
    function, found, _ = str(op.attrs["callee"]).partition("_impl")
    if found and function in _NAMED and _is_float(op.types[0]):
        yield _function(function, op.types[0])


def _float_types(ops: Sequence[Op]) -> list[TensorType]:
    """Return the floating types of the ops' results, at most four."""
    found = {t: None for op in ops for t in op.types if _is_float(t)}
    return list(found)[:4]


def _is_float(type_: Any) -> bool:
    return isinstance(type_, TensorType) and type_.is_static and jnp.issubdtype(type_.dtype, jnp.floating)


# ---- windows ----


@_starts_at("stablehlo.reduce_window")
def _find_window_tangent(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find a max pooling's tangent on GPU and TPU: pairs packed in wide words."""
    if len(op.types) != 1 or not _tensors(op.operand_types) or op.types[0].dtype not in (np.uint32, np.uint64):
        return
    shape = op.operand_types[0].shape
    rank = len(shape)
    ones = (1,) * rank
    padding = np.asarray(op.attrs.get("padding", np.zeros((rank, 2), int))).reshape(-1, 2)
    window = [op.attrs.get(name) or ones for name in ("window_dimensions", "window_strides")]
    window += [padding, *(op.attrs.get(name) or ones for name in ("base_dilations", "window_dilations"))]
    packed = {o.operand_types[0] for o in region.ops if o.name == "stablehlo.bitcast_convert"}
    for type_ in packed:
        if _is_float(type_) and type_.shape == shape:
            for kind in ("max", "min"):
                options = (("kind", kind), ("window", frozen(window)))
                for platform in ("cuda", "tpu"):
                    yield Idiom("window_tangent", (type_, type_), options, platform)


# ---- random numbers ----


@_starts_at("func.call")
def _find_gamma(op: Op, region: Region, makers: Makers) -> Iterator[Idiom]:
    """Find gamma variates, whose derivative is not that of their rejection sampling."""
    callee, types = str(op.attrs.get("callee", "")), op.operand_types
    if not callee.startswith("_gamma") or len(types) != 2 or len(op.types) != 1 or not _tensors((*types, *op.types)):
        return
    batch = len(types[0].shape) - 1
    shape = op.types[0].shape[batch:]
    for mapped in (False, True)[: 1 + bool(batch and types[1].shape)]:
        for log_space in (False, True):
            options = {"shape": shape, "log_space": log_space, "mapped": mapped}
            yield Idiom("gamma", types, tuple(options.items()))
