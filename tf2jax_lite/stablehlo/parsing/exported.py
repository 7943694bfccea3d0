"""Read serialized containers of ``jax.export`` from untrusted sources."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import serialized_levels, with_vjp
from tf2jax_lite.support.errors import InputError, InvalidModelError, Tf2JaxError, UnsupportedError
from tf2jax_lite.support.limits import is_trusted

from .isolation import DTYPES, Payload, check_payload

_MAX_ORDERS = 8  # of derivatives; artifacts have one
_MAX_PARTS = 1 << 18
_MAX_SIZE = 1000  # characters
# A power above 99, or parentheses that are not those of a function: JAX writes products as sums.
_HARD = re.compile(r"\^\s*\d{3}|(?<![a-z])\s*\(")


def read_exported(content: bytes) -> jax.export.Exported:
    """Return an exported function whose StableHLO is safe to read.

    So is that of its derivatives. Call it by `checked_call`. See `check_payload`.

    Raises:
      UnsupportedError, LimitError: see `check_payload`.
    """
    try:
        levels = list(_levels(content, is_trusted("StableHLO")))
        for level in levels:
            payload = level.mlir_module_serialized
            if not payload.startswith(b"ML\xefR"):  # text, which is looked at when it is read, and JAX writes none
                raise InvalidModelError("its StableHLO is no MLIR bytecode")
            found = check_payload(payload)
            if found is not None:
                _check_types(level, found)
        exported = levels.pop()
        while levels:  # reading a derivative takes as long as reading the function
            exported = with_vjp(levels.pop(), exported)
    except Tf2JaxError:
        raise
    except Exception as error:  # flatbuffers and MLIR fail in many ways
        raise InvalidModelError(f"it cannot be read: {type(error).__name__}: {error}") from error
    return exported


@functools.lru_cache(maxsize=8)
def _levels(content: bytes, trusts: bool) -> tuple[jax.export.Exported, ...]:
    """Return a function and its derivatives; modules are bytes yet."""
    if not trusts:
        _check_container(content)
    return tuple(_orders(jax.export.deserialize(bytearray(content))))


def _check_container(content: bytes) -> None:
    """Raise an error for what JAX itself cannot read safely."""
    # Its parser multiplies sizes out (``b^99999999``), and reading a damaged sharding ends the process.
    for order, (sizes, is_sharded) in enumerate(serialized_levels(content, _MAX_PARTS)):
        if order > _MAX_ORDERS:
            raise InvalidModelError(f"it has derivatives of more than {_MAX_ORDERS} orders")
        if is_sharded:
            raise UnsupportedError(
                "it has shardings; artifacts are for one device, or are sharded when they are called"
            )
        for size in sizes:
            if len(size) > _MAX_SIZE or _HARD.search(size):
                raise InvalidModelError(f"a dimension has the size {size[:100]!r}")


def _orders(exported: jax.export.Exported) -> Iterator[jax.export.Exported]:
    """Iterate over a function and its serialized derivatives."""
    yield exported
    while exported.has_vjp():
        exported = exported.vjp()
        yield exported


def _check_types(exported: jax.export.Exported, payload: Payload) -> None:
    """Raise `InvalidModelError` if a function and its module differ in types."""
    kept = exported.module_kept_var_idx
    if list(kept) != sorted(set(kept)) or not all(0 <= i < len(exported.in_avals) for i in kept):
        raise InvalidModelError(f"its module takes the arguments {list(kept)[:20]} of {len(exported.in_avals)}")
    given = [exported.in_avals[i] for i in kept]
    for avals, types, what in ((given, payload.arguments, "takes"), (exported.out_avals, payload.results, "returns")):
        types = [found for found in types if found is not None]
        if len(avals) != len(types) or not all(map(_fits, avals, types)):
            raise InvalidModelError(
                f"it {what} {', '.join(map(str, avals))[:300]}; its module {what} "
                f"{', '.join(element + str(shape) for element, shape in types)[:300]}"
            )
    for tree, avals in ((exported.in_tree, exported.in_avals), (exported.out_tree, exported.out_avals)):
        if tree.num_leaves != len(avals):
            raise InvalidModelError(f"it has {len(avals)} arrays in a structure of {tree.num_leaves}")
    if payload.is_dynamic and not exported.uses_global_constants:
        raise InvalidModelError("its module has dynamic shapes, and it says that there are none")


def _fits(aval: Any, found: tuple[str, Sequence[int | None]]) -> bool:
    element, shape = found
    aval = _physical(aval)
    dtype = np.dtype(bool) if aval.dtype == jax.dtypes.float0 else aval.dtype  # cotangents of integers
    sizes = [size if isinstance(size, int) else None for size in aval.shape]
    return DTYPES.get(element) == dtype and sizes == list(shape)


def checked_call(exported: jax.export.Exported) -> Callable[..., Any]:
    """Return the ``call`` of a result of `read_exported`, with sizes checked.

    Where those of custom calls are dynamic, each new combination of shapes is checked before JAX compiles it, for the
    function and its derivatives.

    Raises:
      InvalidModelError, LimitError, ShapeMismatchError: from the result: see `check_payload`.
    """
    payloads = [check_payload(level.mlir_module_serialized) for level in _orders(exported)]
    if not any(found is not None and found.has_dynamic_calls for found in payloads):
        return exported.call
    checked: set[tuple[Any, ...]] = set()

    def call(*args: Any, **kwargs: Any) -> Any:
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves((args, kwargs)))
        if shapes not in checked:
            _check_sizes(exported, shapes)
            checked.add(shapes)
        return exported.call(*args, **kwargs)

    return call


def _check_sizes(exported: jax.export.Exported, shapes: Sequence[Sequence[Any]]) -> None:
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        raise InputError(
            "the StableHLO calls kernels with dynamic sizes, which are checked at each call: call it with arrays of "
            "known sizes, or load the artifact with backend='source'."
        )
    for level in _orders(exported):
        specs = [jax.ShapeDtypeStruct(shape, aval.dtype) for shape, aval in zip(shapes, level.in_avals, strict=True)]
        args, kwargs = jax.tree.unflatten(level.in_tree, specs)
        results = jax.tree.leaves(jax.eval_shape(level.call, *args, **kwargs))
        check_payload(level.mlir_module_serialized, [_physical(specs[i]).shape for i in level.module_kept_var_idx])
        shapes = [*shapes, *(result.shape for result in results)]  # those of the derivative's arguments


def _physical(aval: Any) -> Any:
    """Return an array's type in a module: keys are arrays of integers."""
    if not jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return aval
    return jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
