"""Evaluate a module's functions; other modules register the rules of ops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.parsing.module import Function, Module, Op, Region, TensorType
from tf2jax_lite.support.errors import OpError, Tf2JaxError, UnsupportedError
from tf2jax_lite.values import static as values

# Deeper calls are treated as recursion.
_MAX_CALLS = 200
# Static values are folded in numpy up to this many elements, so that no large constant enters a jaxpr.
_MAX_FOLDED = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class LazyBroadcast:
    """A deferred broadcast: elementwise ops broadcast their operands themselves.

    The value is a scalar, or has the shape's rank with size 1 on broadcast axes.
    """

    value: Any
    shape: tuple[Any, ...]

    @property
    def dtype(self) -> np.dtype:
        """The value's dtype."""
        return self.value.dtype


@dataclasses.dataclass(frozen=True, eq=False)
class Iota:
    """A deferred iota along one axis."""

    dtype: np.dtype
    shape: tuple[Any, ...]
    axis: int


@dataclasses.dataclass(frozen=True, eq=False)
class Vector:
    """A short vector of integers, some static and some traced."""

    items: tuple[Any, ...]
    dtype: np.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape."""
        return (len(self.items),)


def is_static(value: Any) -> bool:
    """Return whether a value is static."""
    return isinstance(value, (np.ndarray, np.generic))


def is_splat(value: Any) -> bool:
    """Return whether a static value repeats one element."""
    if not is_static(value) or value.dtype == object:
        return False
    return value.ndim == 0 or (value.size > 0 and all(s == 0 or d == 1 for s, d in _strides(value)))


def _strides(value: np.ndarray) -> Any:
    return zip(value.strides, value.shape, strict=True)


def scalar_of(value: Any) -> Any:
    """Return the element that a splat repeats."""
    return np.asarray(value)[(0,) * np.ndim(value)]


def shape_of(value: Any) -> tuple[Any, ...]:
    """Return a value's shape."""
    return tuple(value.shape)


def full(value: Any, shape: Sequence[Any]) -> Any:
    """Return a scalar broadcast to a shape, as an array."""
    if not len(shape):
        return value
    if is_static(value):
        return lax.full(tuple(shape), value, value.dtype)
    return lax.broadcast(value, tuple(shape))


def materialize(value: Any, dtype: Any = None) -> Any:
    """Return a value as an operand of ``jax.lax``: nothing symbolic or deferred."""
    if isinstance(value, LazyBroadcast):
        if np.ndim(value.value) == 0:
            return full(value.value, value.shape)
        return lax.broadcast_in_dim(value.value, value.shape, tuple(range(len(value.shape))))
    if isinstance(value, Vector):
        parts = [lax.reshape(materialize(v, value.dtype), (1,)) for v in value.items]
        return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)
    if isinstance(value, Iota):
        return lax.broadcasted_iota(value.dtype, value.shape, value.axis)
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype == object:
            found = values.as_array(np.asarray(value))
            return found if dtype is None else lax.convert_element_type(found, dtype)
        if np.ndim(value) and value.size > 1 and is_splat(value):
            return full(scalar_of(value), value.shape)
        return values.as_array(value)
    return value


Rule = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class _Entry:
    fn: Rule
    fold: Rule | None
    exact: bool
    lazy: bool


RULES: dict[str, _Entry] = {}
NAMED: dict[str, tuple[Callable[..., Any], frozenset[str]]] = {}
"""Functions of JAX that stay calls, since their ops lose a derivative or a name: replacement, and expected ops."""


def rule(*names: str, fold: Rule | None = None, exact: bool = False, lazy: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated ``fn(ctx, *operands)`` as the rule of ops.

    Args:
      fold: ``fold(ctx, *operands)``, constant folding in numpy for static integers, bools and dimensions.
      exact: whether ``fold`` is exact for floating operands, too, as data movement is.
      lazy: whether the function accepts `LazyBroadcast` values and splats.
    """

    def register(fn: Rule) -> Rule:
        for name in names:
            RULES[name] = _Entry(fn, fold, exact, lazy)
        return fn

    return register


@dataclasses.dataclass(frozen=True)
class OpContext:
    """An op with the environment of its evaluation; ``ops`` are those of its region."""

    run: Run
    op: Op
    env: dict[int, Any]
    ops: Sequence[Op] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default if the op does not have it."""
        return self.op.attrs.get(name, default)

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.op.types[0]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the first result, canonicalized."""
        return values.canonical(self.op.types[0].dtype)

    def region(self, index: int) -> Callable[..., list[Any]]:
        """Return one of the op's computations as a function of its arguments."""
        region = self.op.regions[index]
        return lambda *args: [materialize(v) for v in self.run.region(region, args, self.env)]

    def static(self, value: Any, name: str) -> np.ndarray:
        """Return a value that has to be static."""
        found = (
            value
            if is_static(value)
            else values.static_value(value)
            if not isinstance(value, (LazyBroadcast, Iota, Vector))
            else None
        )
        if found is None:
            raise OpError(f"{name} must be known while tracing, and depends on data")
        return np.asarray(found)


class Run:
    """One evaluation of a module.

    ``shifts`` is set within functions that are invariant to a subtracted maximum.

    Args:
      functions: callables that custom calls may refer to by number.
      infer_relu: call jax.nn.relu in place of a function of that name, and do not differentiate the maximum that
        jax.nn.softmax and similar functions subtract.
    """

    def __init__(self, module: Module, functions: Sequence[Callable[..., Any]] = (), *, infer_relu: bool = True):
        self.module = module
        self.functions = functions
        self.infer_relu = infer_relu
        self.shifts = False
        self._depth = 0

    def function(self, name: str) -> Function:
        """Return a function of the module."""
        try:
            return self.module.functions[name]
        except KeyError:
            raise OpError(f"the module calls function {name!r}, which it does not hold") from None

    def call(self, function: Function, args: Sequence[Any]) -> list[Any]:
        """Evaluate a function."""
        special = self._special(function)
        if special is not None:
            made = special(*(materialize(v) for v in args))
            return list(made) if isinstance(made, (list, tuple)) else [made]
        divided = _divided(function, args)
        if divided is not None:
            return [divided]
        if self._depth >= _MAX_CALLS:
            raise OpError(f"function {function.name!r} calls itself")
        outer = self.shifts
        self.shifts = self.infer_relu and _is_shift_invariant(function)
        self._depth += 1
        try:
            return self.region(function.body, args, {})
        finally:
            self._depth -= 1
            self.shifts = outer

    def _special(self, function: Function) -> Callable[..., Any] | None:
        name = _base_name(function)
        if name not in NAMED or (name == "relu" and not self.infer_relu):
            return None
        fn, expected = NAMED[name]
        found = {op.name.removeprefix("stablehlo.") for op in function.body.ops}
        return fn if found == expected or found == expected - {"broadcast_in_dim"} else None

    def region(self, region: Region, args: Sequence[Any], env: dict[int, Any]) -> list[Any]:
        """Evaluate a region; ``env`` has the enclosing values, and gets the region's."""
        env.update(zip(region.args, args, strict=True))
        for op in region.ops:
            results = self._apply(op, env, region.ops)
            env.update(zip(op.results, results, strict=True))
            for value in op.release:
                env.pop(value, None)
        return [env[v] for v in region.returns]

    def _apply(self, op: Op, env: dict[int, Any], ops: Sequence[Op]) -> Sequence[Any]:
        entry = RULES.get(op.name)
        try:
            if entry is None:
                raise UnsupportedError("the importer has no rule for this op")
            args = [env[v] for v in op.operands]
            ctx = OpContext(self, op, env, ops)
            results = self._folded(entry, ctx, args)
            if results is None:
                if not entry.lazy:
                    args = [
                        materialize(v, t.dtype if isinstance(t, TensorType) else None)
                        for v, t in zip(args, op.operand_types, strict=True)
                    ]
                results = entry.fn(ctx, *args)
            if not isinstance(results, (list, tuple)):
                results = (results,)
            if len(results) != len(op.results):
                raise OpError(f"{len(results)} results where the module has {len(op.results)}")
            return results
        except Exception as error:
            if getattr(error, "_tf2jax_lite_control", False) or getattr(error, "_located", False):
                raise
            raise _located(error, op) from error

    def _folded(self, entry: _Entry, ctx: OpContext, args: list[Any]) -> Any:
        if entry.fold is None or not all(map(is_static, args)):
            return None
        if not entry.exact and any(v.dtype.kind not in "biuO" for v in args):
            return None
        splats = all(map(is_splat, args))
        if not splats and any(v.size > _MAX_FOLDED and not is_splat(v) for v in args):
            return None
        type_ = ctx.op.types[0]
        if isinstance(type_, TensorType) and not splats and math.prod(d or 1 for d in type_.shape) > _MAX_FOLDED:
            return None
        try:
            with np.errstate(all="ignore"):
                return entry.fold(ctx, *args)
        except Tf2JaxError:
            raise
        except Exception:  # inconclusive symbolic dimensions: trace instead
            return None


# Functions of jax.nn that subtract a maximum, which cancels out and is not differentiated; and their ops.
_SHIFTED = {"softmax", "log_softmax", "logsumexp", "_softmax"}
_SHIFTED_OPS = frozenset(
    [
        "constant",
        "reduce",
        "broadcast_in_dim",
        "subtract",
        "exponential",
        "divide",
        "log",
        "maximum",
        "is_finite",
        "select",
        "compare",
        "add",
        "reshape",
        "abs",
        "sign",
        "convert",
    ]
)


def _is_shift_invariant(function: Function) -> bool:
    return _base_name(function) in _SHIFTED and all(
        op.name.removeprefix("stablehlo.") in _SHIFTED_OPS for op in function.body.ops
    )


def _base_name(function: Function) -> str:
    base, _, suffix = function.name.rpartition("_")
    return base if suffix.isdigit() else function.name


def _divided(function: Function, args: Sequence[Any]) -> Any:
    """Divide symbolic dimensions, whose signs are not always known."""
    # The division of jax.numpy needs the signs.
    if len(args) < 2 or len(function.result_types) != 1 or not all(map(is_static, args[-2:])):
        return None
    a, b = args[-2:]
    if object not in (a.dtype, b.dtype) or a.ndim or b.ndim:
        return None
    name = _base_name(function)
    if name not in ("floor_divide", "remainder"):
        return None
    found = a.item() // b.item() if name == "floor_divide" else a.item() % b.item()
    return values.dims_array((found,), function.result_types[0].dtype).reshape(())


def _located(error: Exception, op: Op) -> Exception:
    where = f"{op.name}" + (f" at {op.where!r}" if op.where else "")
    text = str(error) if isinstance(error, Tf2JaxError) else f"{type(error).__name__}: {error}"
    made = (UnsupportedError if isinstance(error, UnsupportedError) else OpError)(f"{where}: {text}")
    made._located = True  # type: ignore[attr-defined]
    return made
