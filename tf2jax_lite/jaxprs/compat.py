"""JAX APIs without stability promise, under one name for releases 0.9 to 0.12.

The only importer of ``jax.extend``, ``jax.interpreters``, ``jax.core`` and ``jaxlib``: adapt this module when a release
of JAX moves or changes one of them. tests/jaxprs/test_compat.py has a test per entry.

Re-exported unchanged: the parts of a jaxpr (`Jaxpr`, `ClosedJaxpr`, `Var`, `Literal`, `Primitive`, `jaxpr_as_fun`),
abstract values (`AbstractValue`, `ShapedArray`), arithmetic on symbolic dimensions (`max_dim`, `min_dim`), the values
that rules of a primitive meet (`Zero`, `instantiate_zeros`, `is_undefined_primal`), kinds of random keys
(`define_prng_impl`) and lowering (`lower_fun`, `core_call_lowering`, `ir`). `register` sets the rules of a primitive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.export
import numpy as np
from jax.core import AbstractValue, ShapedArray, Tracer, max_dim, min_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var, jaxpr_as_fun, primitives
from jax.extend.mlir import ir
from jax.extend.random import define_prng_impl, threefry2x32_p
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal
from jax.interpreters.mlir import core_call_lowering, lower_fun

__all__ = [
    "COMPOSITE",
    "INLINE_WHEN_TRACED",
    "AbstractValue",
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Var",
    "Zero",
    "bind",
    "composite_jaxpr",
    "constant_of",
    "core_call_lowering",
    "define_prng_impl",
    "dim_terms",
    "equation_of",
    "evaluate_compiled",
    "identity_of",
    "inconclusive_comparison",
    "instantiate_zeros",
    "ir",
    "is_traced",
    "is_undefined_primal",
    "jaxpr_as_fun",
    "lower_fun",
    "max_dim",
    "min_dim",
    "mlir_dialect",
    "named_primitive",
    "register",
    "scan_counts",
    "serialize_portable_artifact",
    "serialized_levels",
    "threefry2x32_p",
    "used_inputs",
    "varying_axes",
    "whole_tracebacks",
    "with_vjp",
    "without_source_paths",
]

# ---- values and types ----

# In jax.errors since JAX 0.10, in jax.core before.
_errors: Any = jax.errors
if not hasattr(_errors, "InconclusiveDimensionOperation"):
    _errors = importlib.import_module("jax.core")
InconclusiveDimensionOperation: type[Exception] = _errors.InconclusiveDimensionOperation
"""The error of a comparison that depends on the value of a symbolic dimension."""

INLINE_WHEN_TRACED: Any = jax.Inline.JAX_EARLY if hasattr(jax, "Inline") else True  # pyright: ignore
"""The argument ``inline`` of ``jax.jit`` that puts the equations into the caller's jaxpr while it is traced.

``True`` does so up to JAX 0.11; since 0.12 it leaves one equation until lowering.
"""


def is_traced(value: Any) -> bool:
    """Return whether a value is a tracer, with elements not known while tracing."""
    return isinstance(value, Tracer)


def varying_axes(aval: AbstractValue) -> frozenset[str]:
    """Return mesh axes an abstract value varies along, in ``shard_map``, or none."""
    found = getattr(aval, "manual_axis_type", None) or getattr(aval, "vma", None)  # the second before JAX 0.10
    return frozenset(getattr(found, "varying", found) or ())


# ---- tracers ----

_MAX_TRACES = 32


def _outermost(tracer: Any) -> Any:
    """Return the enclosing trace's tracer of which an inner one is a constant."""
    # Otherwise return the tracer itself.
    for _ in range(_MAX_TRACES):
        frame, variable = getattr(getattr(tracer, "_trace", None), "frame", None), getattr(tracer, "val", None)
        outer = getattr(frame, "constvar_to_val", {}).get(variable) if isinstance(variable, Var) else None
        if not is_traced(outer):
            break
        tracer = outer
    return tracer


def identity_of(tracer: Any) -> int:
    """Return a number that differs for different values of a trace, while they live."""
    tracer = _outermost(tracer)
    variable = getattr(tracer, "val", None)
    return id(tracer if variable is None else variable)


def constant_of(tracer: Any) -> Any:
    """Return the value of a constant tracer as a NumPy array, else None."""
    if not is_traced(tracer):
        return np.asarray(tracer)
    tracer = _outermost(tracer)
    lower = getattr(tracer, "full_lower", None)
    value = lower() if lower is not None else tracer
    return None if is_traced(value) else np.asarray(value)


def equation_of(tracer: Any) -> tuple[str, list[Any], Any]:
    """Return name, operands and parameters of the equation that computes a tracer.

    The name is "" for arguments, results of several, and traces that do not keep equations.
    """
    equation = getattr(_outermost(tracer), "parent", None)
    primitive = getattr(equation, "primitive", None)
    operands = getattr(equation, "in_tracers", None)
    if primitive is None or operands is None or len(getattr(equation, "outvars", ())) != 1:
        return "", [], {}
    return primitive.name, list(operands), getattr(equation, "params", {})


# ---- symbolic dimensions ----

DimTerms = tuple[tuple[int, tuple[tuple[Any, int], ...]], ...]


@functools.lru_cache(maxsize=4096)
def dim_terms(dim: Any) -> DimTerms:
    """Return the terms of a symbolic dimension, a sum of products, the constant last.

    Returns:
      For each term its coefficient, and its factors with their exponents. A factor is a variable's name, or a tuple of
      an operation (``floordiv``, ``mod``, ``max``, ``min``) and its operands, which are ints or symbolic dimensions.
    """
    return tuple(
        (int(times), tuple((_factor(factor), int(power)) for factor, power in sorted(term._factors)))
        for term, times in dim._sorted_terms
    )


def _factor(factor: Any) -> Any:
    if factor.var is not None:
        return factor.var
    return (factor.operation, *map(_operand, factor.operands))


def _operand(dim: Any) -> Any:
    """Return an operand, as an int where JAX holds one as a sum of a single number."""
    if isinstance(dim, int):
        return dim
    terms = dim_terms(dim)
    return terms[0][0] if len(terms) == 1 and not terms[0][1] else dim


_COMPARISONS: Mapping[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    **dict.fromkeys(("__ge__", "__lt__"), lambda a, b: (a, b)),
    **dict.fromkeys(("__le__", "__gt__"), lambda a, b: (b, a)),
}


def inconclusive_comparison(error: BaseException) -> tuple[Any, Any] | None:
    """Return a and b where JAX does not know if dimension a is at least b.

    The frame of the comparison has them. JAX removes its frames where an exception leaves its outermost function, so
    this is for errors that are caught while tracing, or under `whole_tracebacks`.

    Args:
      error: an error. None is returned for all but `InconclusiveDimensionOperation`.
    """
    trace = error.__traceback__ if isinstance(error, InconclusiveDimensionOperation) else None
    found = None
    while trace is not None:
        code, names = trace.tb_frame.f_code, trace.tb_frame.f_locals
        if code.co_name in _COMPARISONS and jax.export.is_symbolic_dim(names.get("self", 0)):
            found = _COMPARISONS[code.co_name](names["self"], names["other"])
        trace = trace.tb_next
    return found


@contextlib.contextmanager
def whole_tracebacks() -> Iterator[None]:
    """Keep JAX's frames in the tracebacks of errors.

    The option is one of the process, so tracebacks in other threads meanwhile have them, too.
    """
    mode = jax.config.jax_traceback_filtering  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_traceback_filtering", "off")
    try:
        yield
    finally:
        jax.config.update("jax_traceback_filtering", mode)


# ---- equations ----

COMPOSITE = "call_hi_primitive"
"""The primitive of functions such as `jnp.searchsorted`, which JAX since 0.12 keeps as one equation until lowering."""


def composite_jaxpr(eqn: Any) -> ClosedJaxpr:
    """Return the closed jaxpr of a `COMPOSITE` equation's operands."""
    composite = eqn.params["_prim"]

    def run(*args: Any) -> Any:
        return composite.expand(*composite.in_tree.unflatten(args))

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))


def bind(eqn: Any, *args: Any, primitive: Primitive | None = None) -> list[Any]:
    """Evaluate an equation, or under a trace emit it.

    Args:
      primitive: the primitive to bind with the equation's parameters; the equation's own by default.
    """
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # JAX before 0.10: a pair
    results = (primitive or eqn.primitive).bind(*functions, *args, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return a scan's numbers of constants and carried operands; others are sliced."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].unpack()  # JAX since 0.11: a tree for each of the three
    return len(constants), len(carry)


def used_inputs(closed: ClosedJaxpr) -> list[bool]:
    """Return for each input if a result depends on it, in nested jaxprs, too."""
    return list(pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals))[1])


# ---- primitives ----


def named_primitive(name: str) -> Primitive | None:
    """Return JAX's primitive of a name such as ``"lt_to_p"``; None if absent."""
    return getattr(primitives, name, None)


@functools.lru_cache(maxsize=4096)
def _compiled(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def evaluate_compiled(primitive: Primitive, /, *args: Any, **params: Any) -> Any:
    """Evaluate a primitive by its lowering, as JAX does, also in `jax.disable_jit`."""
    with jax.disable_jit(False):
        return _compiled(primitive, tuple(sorted(params.items())))(*args)


def register(
    primitive: Primitive,
    *,
    multiple_results: bool | None = None,
    impl: Callable[..., Any] | str | None = None,
    abstract: Callable[..., Any] | Primitive | None = None,
    jvp: Callable[..., Any] | None = None,
    transpose: Callable[..., Any] | None = None,
    linear: Callable[..., Any] | None = None,
    bilinear: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    batch: Callable[..., Any] | str | None = None,
    lowering: Callable[..., Any] | None = None,
    cpu_lowering: Callable[..., Any] | None = None,
) -> None:
    """Set rules of a primitive. Rules that are not given stay as they are.

    Args:
      impl: evaluates it on arrays; or ``"compiled"``, see `evaluate_compiled`.
      abstract: returns the abstract value (or the list of them) of the result from those of the operands; or another
        primitive with the same abstract evaluation.
      jvp: ``(primals, tangents, **params) -> (results, tangents)``; tangents may be `Zero`.
      transpose: ``(cotangents, *operands, **params) -> cotangents of operands``; linear operands are undefined primals.
      linear: the transpose rule of a primitive that is linear in all operands together. Its JVP is the primitive.
      bilinear: the transpose rules of a primitive that is linear in each of its two operands: with respect to the
        first, ``(cotangent, x, y)``, and to the second.
      batch: ``(operands, axes, **params) -> (results, axes)``; or ``"elementwise"``.
      lowering: ``(ctx, *operands, **params) -> MLIR values``, for all platforms without a rule; see `lower_fun`.
    """
    if multiple_results is not None:
        primitive.multiple_results = multiple_results
    if impl is not None:
        primitive.def_impl(functools.partial(evaluate_compiled, primitive) if isinstance(impl, str) else impl)
    if isinstance(abstract, Primitive):
        primitive.def_effectful_abstract_eval(abstract.abstract_eval)
    elif abstract is not None:
        primitive.def_abstract_eval(abstract)
    if linear is not None:
        ad.deflinear2(primitive, linear)
    if bilinear is not None:
        ad.defbilinear(primitive, *bilinear)
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose
    if batch == "elementwise":
        batching.defvectorized(primitive)
    elif batch is not None:
        batching.primitive_batchers[primitive] = batch
    if lowering is not None:
        mlir.register_lowering(primitive, lowering)
    if cpu_lowering is not None:
        mlir.register_lowering(primitive, cpu_lowering, platform="cpu")


# ---- MLIR ----


def serialized_levels(content: bytes, most: int) -> Iterator[tuple[list[str], bool]]:
    """Look into a serialized ``jax.export.Exported``, which JAX then reads.

    Args:
      most: maximum number of sizes, and of nodes of the structures, of one level.

    Yields:
      For the function and each derivative the sizes of its arrays, as text, and whether any array has a sharding.
    """
    table = importlib.import_module("jax._src.export.serialization_generated").Exported.GetRootAs(bytearray(content))

    def items(owner: Any, name: str) -> Iterator[Any]:
        length = getattr(owner, f"{name}Length", None)  # JAX 0.10 added some
        return (getattr(owner, name)(i) for i in range(length() if length else 0))

    def limited(found: Iterator[Any]) -> list[Any]:
        taken = list(itertools.islice(found, most + 1))
        if len(taken) > most:
            raise ValueError(f"more than {most} sizes or nodes")
        return taken

    def nodes(*roots: Any) -> Iterator[Any]:
        stack = list(roots)
        while stack:
            yield stack[-1]
            stack.extend(limited(items(stack.pop(), "Children")))

    while table is not None:
        limited(nodes(table.InTree(), table.OutTree()))
        avals = (aval for name in ("InAvals", "OutAvals", "UniqueAvals") for aval in items(table, name))
        sizes = limited(size.decode() for aval in avals for size in items(aval, "Shape"))
        shardings = limited(s for name in ("InShardings", "OutShardings") for s in items(table, name))
        sharded = any(s.HloShardingProtoLength() or getattr(s, "NamedSharding", bool)() for s in shardings)
        more = (item for name in ("UniqueNamedShardings", "UniqueAbstractMeshes") for item in items(table, name))
        yield sizes, sharded or next(more, None) is not None
        table = table.Vjp()


def with_vjp(exported: Any, vjp: Any) -> Any:
    """Return a ``jax.export.Exported`` whose derivative is another one, already read."""
    return dataclasses.replace(exported, _get_vjp=lambda _: vjp)


def mlir_dialect(name: str) -> Any:
    """Return an MLIR dialect, "stablehlo", "chlo" or "sdy", imported on first use."""
    return importlib.import_module(f"jax.extend.mlir.dialects.{name}")


@contextlib.contextmanager
def without_source_paths() -> Iterator[None]:
    """Lower without the paths of Python files in the locations of operations.

    Scopes stay. The option is one of the process, so code that other threads lower meanwhile has no paths, either.
    """
    limit = jax.config.jax_traceback_in_locations_limit
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", limit)


def serialize_portable_artifact(module: str, version: str) -> bytes:
    """Serialize StableHLO text as a portable artifact of a StableHLO version."""
    return importlib.import_module("jax.extend.mlir").serialize_portable_artifact(module, version)
