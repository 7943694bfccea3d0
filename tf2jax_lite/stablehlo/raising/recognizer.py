"""What JAX's lowering writes out as many ops is one call again: special functions, random bits, factorizations.

No list of what those ops look like is kept. Where a module may hold, say, ``igamma``, the installed JAX lowers that
very call for the types at hand, and the result is compared with the module, op by op (`matching`). So a match is
proof, whoever wrote the module; what another release of JAX wrote differently stays as it is, and still computes.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.export

from tf2jax_lite.stablehlo.parsing.mlir_reader import read
from tf2jax_lite.stablehlo.parsing.module import Function, Module, Op, Region, TensorType, effects_of, finish, numbers

from .candidates import candidates
from .compound_ops import compact
from .known_calls import ELEMENTWISE, POLYNOMIALS, Idiom
from .subgraph_match import Makers, Matcher, renamed_uses

__all__ = ["parse"]


@functools.lru_cache(maxsize=16)
def parse(payload: bytes | str, *, own: bool = False) -> Module:
    """Reads a module (see `mlir.read`), idioms put together again."""
    module = read(payload, own=own)
    effectful = effects_of(module.functions)
    found = {}
    for name, function in module.functions.items():
        # Powers and choices come last: which ops they take in depends on what is around an idiom.
        body = compact(_Search(function, module, effectful).region(function.body), {}, effectful)
        found[name] = function if body is function.body else dataclasses.replace(function, body=body)
    return dataclasses.replace(module, functions=found)


# ---- putting them together ----


@functools.lru_cache(maxsize=256)
def _patterns(idiom: Idiom, settings: Any) -> tuple[Module, ...]:
    """Returns an idiom as JAX lowers it with the settings in use; none if it does not.

    A call that JAX puts in a function of its own is looked for as a call of such a function and as what is inside.
    """
    del settings
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in idiom.types]
    try:
        exported = jax.export.export(jax.jit(idiom.call, keep_unused=True), platforms=[idiom.platform])(*specs)
        pattern = read(exported.mlir_module_serialized, own=True, names=idiom.name not in POLYNOMIALS)
    except Exception:  # another release's limits, or a platform whose plugin is not here
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
    """Returns how many ops of which names an elementwise idiom needs: found once for all shapes, so cheap to ask."""
    if idiom.options or len(set(idiom.types)) != 1 or idiom.name not in ELEMENTWISE:
        return collections.Counter()
    scalar = dataclasses.replace(idiom, types=tuple(TensorType(t.dtype, ()) for t in idiom.types))
    patterns = _patterns(scalar, settings)
    if not patterns:
        return collections.Counter()
    ops = patterns[0].functions["main"].body.ops
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
        for idiom in candidates(region, self.makers):
            if not _outline(idiom, _settings()) <= names:
                continue
            for pattern in _patterns(idiom, _settings()):
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
