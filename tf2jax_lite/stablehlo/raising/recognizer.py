"""Raise ops that JAX expanded to calls, by comparison with JAX's lowering.

There are no stored patterns. Where a module may hold, say, ``zeta``, the installed JAX lowers that call for the types
at hand, and the result is compared with the module op by op (`subgraph_match`). So a match is a proof, also for
untrusted modules. Expansions of another JAX release that differ are left unchanged, and compute the same.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.export

from tf2jax_lite.jaxprs.tracing_cache import trace_settings
from tf2jax_lite.stablehlo.parsing.mlir_reader import read
from tf2jax_lite.stablehlo.parsing.module import Function, Module, Op, Region, TensorType, effects_of, finish, numbers

from .compound_ops import raise_compound_ops
from .known_calls import ELEMENTWISE, POLYNOMIALS, Idiom, candidates
from .subgraph_match import Makers, Matcher, renamed_uses


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
