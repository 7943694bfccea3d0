"""Raise ops that JAX expanded to calls, by comparison with JAX's lowering.

There are no stored patterns. Where a module may hold, say, ``zeta``, the installed JAX lowers that call for the types
at hand, and the result is compared with the module op by op. So a match is a proof, also for
untrusted modules. Expansions of another JAX release that differ are left unchanged, and compute the same.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import trace_settings
from tf2jax_lite.stablehlo.interpreter.core import OpContext, rule
from tf2jax_lite.stablehlo.parsing.mlir_reader import read
from tf2jax_lite.stablehlo.parsing.module import Function, Module, Op, Region, TensorType, effects_of, finish, numbers

from .compound_ops import raise_compound_ops


@functools.lru_cache(maxsize=16)
def parse(payload: bytes | str, *, own: bool = False) -> Module:
    """Read a module (see `mlir_reader.read`) and raise its idioms."""
    module = read(payload, own=own)
    effectful = effects_of(module.functions)
    found = {}
    for name, function in module.functions.items():
        # Powers and selects come last: the ops that they absorb depend on the raised idioms.
        body = raise_compound_ops(_Search(function, module, effectful).region(function.body), {}, effectful)
        found[name] = function if body is function.body else dataclasses.replace(function, body=body)
    return dataclasses.replace(module, functions=found)


# ---- replacement ----


@functools.lru_cache(maxsize=256)
def _patterns(idiom: Idiom, settings: Any) -> tuple[Module, ...]:
    """Return the modules to which JAX lowers an idiom now; none if it fails."""
    # If the lowering is a call of one function, the function's body is a second pattern.
    del settings
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in idiom.types]
    try:
        exported = jax.export.export(jax.jit(idiom.call, keep_unused=True), platforms=[idiom.platform])(*specs)
        pattern = read(exported.mlir_module_serialized, own=True, names=idiom.name not in POLYNOMIALS)
    except Exception:  # limits of other releases, or a platform without a plugin
        return ()
    main = pattern.functions["main"]
    body = main.body
    if len(body.args) != len(idiom.types) or not body.ops:
        return ()
    (call,) = body.ops if len(body.ops) == 1 else (None,)
    if call is None or call.name != "func.call" or call.operands != body.args or call.results != body.returns:
        return (pattern,)
    inner = dataclasses.replace(main, body=pattern.functions[call.attrs["callee"]].body)
    return pattern, dataclasses.replace(pattern, functions={**pattern.functions, "main": inner})


_SHAPELESS = {"stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.reshape"}


def _outline(idiom: Idiom, settings: Any) -> collections.Counter[str]:
    """Return an idiom's op histogram for all shapes, as a cheap filter."""
    if idiom.options or len(set(idiom.types)) != 1 or idiom.name not in ELEMENTWISE:
        return collections.Counter()
    scalar = dataclasses.replace(idiom, types=tuple(TensorType(t.dtype, ()) for t in idiom.types))
    patterns = _patterns(scalar, settings)
    if not patterns:
        return collections.Counter()
    ops = patterns[0].functions["main"].body.ops
    return collections.Counter(op.name for op in ops if op.name not in _SHAPELESS)


class _Search:
    """The search through one function; values keep their numbers to compare."""

    def __init__(self, function: Function, module: Module, effectful: Callable[[str], bool]):
        self.module, self.effectful = module, effectful
        self.makers = Makers(function)
        self.renamed: dict[int, int] = {}

    def region(self, region: Region) -> Region:
        """Return a region with its idioms raised, including those of inner regions."""
        names = collections.Counter(op.name for op in region.ops)
        for idiom in candidates(region, self.makers):
            if not _outline(idiom, trace_settings()) <= names:
                continue
            for pattern in _patterns(idiom, trace_settings()):
                region = self._replaced(region, idiom, pattern)
        ops = []
        for op in region.ops:
            inner = tuple(self.region(r) for r in op.regions)
            same = all(a is b for a, b in zip(inner, op.regions, strict=True))
            ops.append(op if same else dataclasses.replace(op, regions=inner))
        if all(a is b for a, b in zip(ops, region.ops, strict=True)):
            return region
        return dataclasses.replace(region, ops=finish(region.args, ops, region.returns, self.effectful))

    def _replaced(self, region: Region, idiom: Idiom, pattern: Module) -> Region:
        positions = {v: i for i, op in enumerate(region.ops) for v in op.results}
        types = pattern.functions["main"].result_types
        inserted: dict[int, list[Op]] = {}
        names: dict[int, int] = {}
        for args, values in self._found(pattern, positions).items():
            first = min(positions[v] for v in values.values())
            args = tuple(self._current(v) for v in args)
            if any(positions.get(v, -1) >= first for v in args):
                continue
            results = tuple(next(numbers) for _ in types)
            where = region.ops[first].where
            made = Op(f"jax.{idiom.name}", args, results, types, idiom.types, {"idiom": idiom}, where=where)
            inserted.setdefault(first, []).append(made)
            names.update({value: results[i] for i, value in values.items()})
        if not names:
            return region
        self.renamed.update(names)
        ops: list[Op] = []
        for i, op in enumerate(renamed_uses(region.ops, names)):
            ops.extend(renamed_uses(inserted.get(i, ()), names))  # one idiom may read another's results
            ops.append(op)
        returns = tuple(names.get(v, v) for v in region.returns)
        return dataclasses.replace(region, ops=finish(region.args, ops, returns, self.effectful), returns=returns)

    def _found(self, pattern: Module, positions: Mapping[int, int]) -> dict[tuple[int, ...], dict[int, int]]:
        """Return, for each tuple of arguments, the value of each result of the pattern."""
        matcher = Matcher(pattern, self.module, self.makers)
        groups: dict[tuple[int, ...], dict[int, int]] = {}
        for output, type_ in enumerate(pattern.functions["main"].result_types):
            for value in positions:
                if self.makers.types.get(value) != type_:
                    continue
                found = matcher.match(output, value)
                if found is not None and all(v in found for v in matcher.body.args):
                    groups.setdefault(tuple(found[v] for v in matcher.body.args), {}).setdefault(output, value)
        return groups

    def _current(self, value: int) -> int:
        while value in self.renamed:
            value = self.renamed[value]
        return value


class Makers:
    """The defining op of each value of a function, including values of nested regions."""

    def __init__(self, function: Function):
        self.ops: dict[int, tuple[Op, int]] = {}
        self.types: dict[int, Any] = {}
        self._add(function.body)

    def _add(self, region: Region) -> None:
        self.types.update(zip(region.args, region.types, strict=True))
        for op in region.ops:
            for i, (value, type_) in enumerate(zip(op.results, op.types, strict=True)):
                self.ops[value] = (op, i)
                self.types[value] = type_
            for inner in op.regions:
                self._add(inner)

    def source(self, value: int) -> int:
        """Return the source of a value, through conversions to its own type."""
        while value in self.ops:
            op, _ = self.ops[value]
            if op.name != "stablehlo.convert" or op.types != op.operand_types:
                break
            value = op.operands[0]
        return value


class Matcher:
    """Compares values of a pattern's main function with values of a module's function."""

    def __init__(self, pattern: Module, module: Module, makers: Makers):
        self.pattern, self.module = pattern, module
        main = pattern.functions["main"]
        self.body = main.body
        self._ours = Makers(main)
        self._theirs = makers
        self._functions: dict[tuple[str, str], bool] = {}

    def match(self, output: int, value: int) -> dict[int, int] | None:
        """Compare one result of the pattern with a value.

        Returns:
          The pattern's values with the matching values of the searched function, or None if they differ.
        """
        found: dict[int, int] = {}
        return found if self._value(self.body.returns[output], value, found) else None

    def _value(self, ours: int, theirs: int, found: dict[int, int]) -> bool:
        stack = [(ours, theirs)]  # chains of thousands of ops are common: no recursion along operands
        while stack:
            ours, theirs = stack.pop()
            ours, theirs = self._ours.source(ours), self._theirs.source(theirs)
            if ours in found:
                if found[ours] != theirs:
                    return False
                continue
            if self._ours.types[ours] != self._theirs.types.get(theirs):
                return False
            if ours not in self._ours.ops:  # an argument
                if ours not in self.body.args:
                    return False
                found[ours] = theirs
                continue
            if theirs not in self._theirs.ops:
                return False
            (op, i), (other, j) = self._ours.ops[ours], self._theirs.ops[theirs]
            if i != j or not self._same_op(op, other):
                return False
            for region, inner in zip(op.regions, other.regions, strict=True):
                if not self._region(region, inner, found):
                    return False
            found.update(zip(op.results, other.results, strict=True))
            stack.extend(zip(op.operands, other.operands, strict=True))
        return True

    def _region(self, ours: Region, theirs: Region, found: dict[int, int]) -> bool:
        if ours.types != theirs.types or len(ours.returns) != len(theirs.returns):
            return False
        found.update(zip(ours.args, theirs.args, strict=True))
        return all(self._value(a, b, found) for a, b in zip(ours.returns, theirs.returns, strict=True))

    def _same_op(self, op: Op, other: Op) -> bool:
        if op.name != other.name or op.types != other.types or op.operand_types != other.operand_types:
            return False
        if len(op.regions) != len(other.regions):
            return False
        if op.name == "func.call":
            return self._same_function(op.attrs["callee"], other.attrs["callee"])
        if op.name == "stablehlo.composite":
            bodies = [{**o.attrs, "decomposition": None} for o in (op, other)]
            return same_attributes(*bodies) and self._same_function(
                op.attrs["decomposition"], other.attrs["decomposition"]
            )
        return same_attributes(op.attrs, other.attrs)

    def _same_function(self, ours: str, theirs: str) -> bool:
        """Return whether two functions, of their arguments alone, are equal."""
        key = ours, theirs
        if key not in self._functions:
            self._functions[key] = False  # during the comparison: recursive functions do not match
            first, second = self.pattern.functions.get(ours), self.module.functions.get(theirs)
            if first is not None and second is not None:
                inner = Matcher(self.pattern, self.module, Makers(second))
                inner._functions = self._functions
                inner._ours = Makers(first)
                self._functions[key] = inner._region(first.body, second.body, {})
        return self._functions[key]


def same_attributes(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether two ops have the same attributes."""
    return ours.keys() == theirs.keys() and all(_same(ours[name], theirs[name]) for name in ours)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()  # NaN equals itself, 0 not -0
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return same_attributes(a, b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and a == b


def renamed_uses(ops: Sequence[Op], names: Mapping[int, int]) -> list[Op]:
    """Return ops with uses of some values renamed."""

    def region(r: Region) -> Region:
        return dataclasses.replace(
            r, ops=tuple(renamed_uses(r.ops, names)), returns=tuple(names.get(v, v) for v in r.returns)
        )

    return [
        dataclasses.replace(
            op, operands=tuple(names.get(v, v) for v in op.operands), regions=tuple(region(r) for r in op.regions)
        )
        for op in ops
    ]


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
