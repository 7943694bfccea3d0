"""What JAX's lowering writes out as many ops is one call again: special functions, random bits, factorizations.

No list of what those ops look like is kept. Where a module may hold, say, ``igamma``, the installed JAX lowers that
very call for the types at hand, and the result is compared with the module, op by op (`matching`). So a match is
proof, whoever wrote the module; what another release of JAX wrote differently stays as it is, and still computes.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax

from .interpreter import Site, rule
from .matching import Makers, Matcher, renamed_uses
from .mlir import read
from .module import Function, Module, Op, Region, TensorType, effects_of, finish, numbers

__all__ = ["parse"]


@dataclasses.dataclass(frozen=True)
class Idiom:
    """A call that may be in a module.

    Attributes:
      name: of the function, from `_CALLS`.
      types: of its arguments.
      options: keywords, as pairs.
      platform: whose lowering is looked for.
    """

    name: str
    types: tuple[TensorType, ...]
    options: tuple[tuple[str, Any], ...] = ()
    platform: str = "cpu"

    def call(self, *args: Any) -> list[Any]:
        """Calls it."""
        return jax.tree.leaves(_CALLS[self.name](*args, **dict(self.options)))


@functools.lru_cache(maxsize=16)
def parse(payload: bytes | str, *, own: bool = False) -> Module:
    """Reads a module (see `mlir.read`), idioms put together again."""
    module = read(payload, own=own)
    effectful = effects_of(module.functions)
    found = {}
    for name, function in module.functions.items():
        body = _Search(function, module, effectful).region(function.body)
        found[name] = function if body is function.body else dataclasses.replace(function, body=body)
    return dataclasses.replace(module, functions=found)


# ---- the calls ----


def _bits(key: Any, *, shape: tuple[int, ...], dtype: str) -> Any:
    return jax.random.bits(_key(key), shape, dtype)


def _split(key: Any, *, shape: tuple[int, ...]) -> Any:
    return jax.random.key_data(jax.random.split(_key(key), shape))


def _fold_in(key: Any, data: Any) -> Any:
    return jax.random.key_data(jax.random.fold_in(_key(key), data))


def _gamma(key: Any, a: Any, *, log_space: bool) -> Any:
    return (jax.random.loggamma if log_space else jax.random.gamma)(_key(key), a, dtype=a.dtype)


def _key(data: Any) -> Any:
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def _generated(state: Any, *, shape: tuple[int, ...], dtype: Any, algorithm: str) -> Any:
    return lax.rng_bit_generator(state, shape, dtype, lax.RandomAlgorithm[f"RNG_{algorithm}"])


_COMPLEX = ("exp", "expm1", "log", "log1p", "logistic", "sin", "cos", "sqrt", "square", "conj", "pow", "div")
_COMPLEX += ("asin", "acos", "atan", "asinh", "acosh", "atanh")
_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "betainc")},
    **{name: getattr(lax, name) for name in ("bessel_i0e", "erfc", "nextafter", "zeta", "polygamma")},
    **{
        name: getattr(lax.linalg, name)
        for name in ("cholesky", "eig", "eigh", "hessenberg", "lu", "qr", "schur", "svd")
    },
    **{name: getattr(lax, name) for name in _COMPLEX},
    "bits": _bits,
    "rng_bit_generator": _generated,
    "split": _split,
    "fold_in": _fold_in,
    "gamma": _gamma,
}
_ARITY = {"betainc": 3, "igamma": 2, "igammac": 2, "igamma_grad_a": 2, "random_gamma_grad": 2}
_ARITY |= {"nextafter": 2, "zeta": 2, "polygamma": 2, "pow": 2, "div": 2}


@rule(*(f"jax.{name}" for name in _CALLS))
def _idiom(site: Site, *args: Any) -> Any:
    return site.attr("idiom").call(*args)


_ELEMENTWISE = {*_ARITY, *_COMPLEX, "bessel_i0e", "erfc"}

# ---- where they may be ----


def _candidates(region: Region) -> Iterator[Idiom]:
    """Yields the idioms that a region's own ops hint at, each once."""
    seen: dict[Idiom, None] = {}
    for op in region.ops:
        for found in _hints(op, region):
            seen[found] = None
    yield from seen


def _hints(op: Op, region: Region) -> Iterator[Idiom]:
    if op.name == "stablehlo.while":
        yield from _series(op, region)
    elif op.name == "stablehlo.custom_call":
        yield from _kernels(op)
    elif op.name == "func.call":
        yield from _randomness(op, region)
    elif op.name == "stablehlo.complex" and isinstance(op.types[0], TensorType) and op.types[0].is_static:
        for name in _COMPLEX:
            yield _function(name, op.types[0])
    elif op.name == "stablehlo.rng_bit_generator" and op.types[1].is_static:
        algorithm = str(op.attrs.get("rng_algorithm", "DEFAULT"))
        options = {"shape": op.types[1].shape, "dtype": op.types[1].dtype, "algorithm": algorithm}
        yield Idiom("rng_bit_generator", (TensorType(np.dtype(np.uint32), (4,)),), tuple(options.items()))
    name = _HINTS.get(op.where.rpartition("/")[2])
    if name is not None:
        for dtype_and_shape in _float_types([op] if op.name != "stablehlo.constant" else region.ops):
            yield _function(name, dtype_and_shape)


_HINTS = {name: name for name in ("bessel_i0e", "erfc", "nextafter", "polygamma", "zeta")}


def _function(name: str, type_: TensorType) -> Idiom:
    return Idiom(name, (type_,) * _ARITY.get(name, 1))


def _float_types(ops: Sequence[Op]) -> list[TensorType]:
    """Returns the types of floats that ops make, a few at most."""
    found = {t: None for op in ops for t in op.types if _is_float(t)}
    return list(found)[:4]


def _is_float(type_: Any) -> bool:
    return isinstance(type_, TensorType) and type_.is_static and jnp.issubdtype(type_.dtype, jnp.floating)


_FEWEST = 4  # floats that such a loop carries


def _series(op: Op, region: Region) -> Iterator[Idiom]:
    """A loop over many floats of one shape that a truth value ends: a series or a continued fraction."""
    floats = [t for t in op.types if _is_float(t)]
    masks = [t for t in op.types if isinstance(t, TensorType) and t.dtype == np.bool_]
    shapes = {t.shape for t in op.types if isinstance(t, TensorType)} - {()}
    if len(floats) < _FEWEST or len(masks) != 1 or len(shapes) > 1:
        return
    shape = max(shapes, default=())
    for dtype in sorted({t.dtype for t in _float_types(region.ops) if t.shape == shape}, key=str):
        for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "betainc"):
            yield _function(name, TensorType(dtype, shape))


_KERNEL = re.compile(r"(lapack|cusolver|hipsolver)_[sdcz]?(\w+?)_ffi")
_PLATFORM = {"lapack": "cpu", "cusolver": "cuda", "hipsolver": "rocm"}
_FACTORIZATIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "potrf": (("cholesky", {"symmetrize_input": False}),),
    "getrf": (("lu", {}),),
    "geqrf": (("qr", {"full_matrices": False}), ("qr", {"full_matrices": True})),
    "syevd": tuple(("eigh", {"symmetrize_input": False, "lower": lower}) for lower in (True, False)),
    "heevd": tuple(("eigh", {"symmetrize_input": False, "lower": lower}) for lower in (True, False)),
    "gesdd": (
        ("svd", {"full_matrices": False}),
        ("svd", {"full_matrices": True}),
        ("svd", {"compute_uv": False}),
    ),
    "geev": tuple(
        ("eig", {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right})
        for left, right in ((False, False), (False, True), (True, False), (True, True))
    ),
    "gehrd": (("hessenberg", {}),),
    "gees": (("schur", {}), ("schur", {"compute_schur_vectors": False})),
}


def _kernels(op: Op) -> Iterator[Idiom]:
    match = _KERNEL.fullmatch(str(op.attrs.get("call_target_name", "")))
    if match is None or not op.operand_types or not isinstance(op.operand_types[0], TensorType):
        return
    type_ = op.operand_types[0]
    if type_.is_static:
        for name, options in _FACTORIZATIONS.get(match[2], ()):
            yield Idiom(name, (type_,), tuple(options.items()), _PLATFORM[match[1]])


_KEY = TensorType(np.dtype(np.uint32), (2,))


def _randomness(op: Op, region: Region) -> Iterator[Idiom]:
    """A call of threefry, or of what jax.random makes of it: random bits, new keys, gamma variates."""
    callee, types = str(op.attrs.get("callee", "")), op.operand_types
    if not all(isinstance(t, TensorType) and t.is_static for t in (*types, *op.types)):
        return
    if callee.startswith("_threefry_split") and types == (_KEY,):
        yield Idiom("split", types, (("shape", op.types[0].shape[:-1]),))
    elif callee.startswith("_threefry_fold_in") and len(types) == 2 and types[1].shape == ():
        yield Idiom("fold_in", types)
    elif callee.startswith("_gamma") and len(types) == 2 and types[0] == _KEY:
        for log_space in (False, True):
            yield Idiom("gamma", types, (("log_space", log_space),))
    elif callee.startswith("threefry2x32") and len(types) == 4 and types[0].shape == ():
        shape = types[2].shape
        made = {t for inner in region.ops for t in inner.types}
        for width in (32, 8, 16, *((64,) if jax.config.read("jax_enable_x64") else ())):
            dtype = np.dtype(f"uint{width}")
            if TensorType(dtype, shape) in made:
                yield Idiom("bits", (_KEY,), (("shape", shape), ("dtype", dtype.name)))


# ---- putting them together ----


@functools.lru_cache(maxsize=256)
def _pattern(idiom: Idiom, settings: Any) -> Module | None:
    """Returns an idiom as JAX lowers it with the settings in use, or None if it does not."""
    del settings
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in idiom.types]
    try:
        exported = jax.export.export(jax.jit(idiom.call, keep_unused=True), platforms=[idiom.platform])(*specs)
        pattern = read(exported.mlir_module_serialized, own=True)
    except Exception:  # another release's limits, or a platform whose plugin is not here
        return None
    body = pattern.functions["main"].body
    return pattern if len(body.args) == len(idiom.types) and body.ops else None


_SHAPELESS = {"stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.reshape"}


def _outline(idiom: Idiom, settings: Any) -> collections.Counter[str]:
    """Returns how many ops of which names an elementwise idiom needs: found once for all shapes, so cheap to ask."""
    if idiom.options or len(set(idiom.types)) != 1 or idiom.name not in _ELEMENTWISE:
        return collections.Counter()
    scalar = dataclasses.replace(idiom, types=tuple(TensorType(t.dtype, ()) for t in idiom.types))
    pattern = _pattern(scalar, settings)
    if pattern is None:
        return collections.Counter()
    ops = pattern.functions["main"].body.ops
    return collections.Counter(op.name for op in ops if op.name not in _SHAPELESS)


def _settings() -> tuple[Any, ...]:
    return tuple(getattr(jax.config, name, None) for name in ("jax_enable_x64", "jax_threefry_partitionable"))


class _Search:
    """The search through one function. Values keep their numbers, so the ops are compared as they were read."""

    def __init__(self, function: Function, module: Module, effectful: Callable[[str], bool]):
        self.module, self.effectful = module, effectful
        self.makers = Makers(function)
        self.renamed: dict[int, int] = {}

    def region(self, region: Region) -> Region:
        """Returns a region with its idioms in place, those of regions within included."""
        names = collections.Counter(op.name for op in region.ops)
        for idiom in _candidates(region):
            if not _outline(idiom, _settings()) <= names:
                continue
            pattern = _pattern(idiom, _settings())
            if pattern is not None:
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
        places = {v: i for i, op in enumerate(region.ops) for v in op.results}
        types = pattern.functions["main"].result_types
        inserted: dict[int, list[Op]] = {}
        names: dict[int, int] = {}
        for args, values in self._found(pattern, places).items():
            first = min(places[v] for v in values.values())
            args = tuple(self._current(v) for v in args)
            if any(places.get(v, -1) >= first for v in args):
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

    def _found(self, pattern: Module, places: Mapping[int, int]) -> dict[tuple[int, ...], dict[int, int]]:
        """Returns, for each tuple of arguments, which results of the pattern are which values."""
        matcher = Matcher(pattern, self.module, self.makers)
        groups: dict[tuple[int, ...], dict[int, int]] = {}
        for output, type_ in enumerate(pattern.functions["main"].result_types):
            for value in places:
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
