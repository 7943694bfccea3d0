"""StableHLO modules as JAX functions: each op becomes a call of ``jax.lax``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.stablehlo.interpreter.core import Run, is_static, materialize
from tf2jax_lite.stablehlo.parsing.exported import checked_call, read_exported
from tf2jax_lite.stablehlo.parsing.isolation import check_payload
from tf2jax_lite.stablehlo.parsing.module import TOKEN, Function, Module, TensorType, TokenType
from tf2jax_lite.stablehlo.raising.recognizer import parse
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import DtypeMismatchError, InputError, InvalidModelError, ShapeMismatchError
from tf2jax_lite.values.static import canonical

from .interpreter import (  # noqa: F401
    control_flow,
    custom_calls,
    dot_conv_fft,
    elementwise,
    indexing,
    prng,
    reductions,
    shapes,
    sort,
)

__all__ = ["check_payload", "checked_call", "evaluate", "from_stablehlo", "main_function", "parse", "read_exported"]


def main_function(module: Module) -> Function:
    """Return the function that a module is called by."""
    if "main" not in module.functions:
        raise InvalidModelError(f"the StableHLO module has no function 'main', only {sorted(module.functions)}.")
    return module.functions["main"]


def evaluate(
    module: Module,
    args: Sequence[Any],
    *,
    platforms: Sequence[str] = (),
    platform: str | None = None,
    functions: Sequence[Callable[..., Any]] = (),
    infer_relu: bool = True,
    cast: bool = False,
) -> list[Any]:
    """Call a module's main function.

    Args:
      args: flat arguments; numpy arrays are static.
      platform: the one in use; by default JAX's default backend.
      infer_relu: replace functions that came from jax.nn.relu by it, so that the gradient at 0 is 0.
      cast: cast arguments to the module's dtypes instead of raising an error.

    Returns:
      The results, flat, tokens left out.
    """
    main = main_function(module)
    given = list(args)
    if main.arg_attrs and main.arg_attrs[0].get("jax.global_constant") == "_platform_index":
        given.insert(0, np.int32(_platform_index(platforms, platform)))
    types = main.body.types
    for i, type_ in enumerate(types):
        if isinstance(type_, TokenType) and len(given) < len(types):
            given.insert(i, TOKEN)
    if len(platforms) > 1 and len(given) == len(types) - 1 and not types[0].shape:
        given.insert(0, np.int32(_platform_index(platforms, platform)))  # modules that do not name their arguments
    if len(given) != len(types):
        raise InputError(f"the module takes {len(types)} arguments, got {len(given)}.")
    for i, (value, type_) in enumerate(zip(given, types, strict=True)):
        if isinstance(type_, TensorType):
            if is_static(value) and value.ndim == 0 and value.dtype.kind in "iu" and type_.dtype.kind in "iu":
                given[i] = value = value.astype(canonical(type_.dtype))
            if cast and value.dtype not in (object, canonical(type_.dtype)):
                given[i] = value = value.astype(canonical(type_.dtype))
            _check(i, value, type_)
    results = Run(module, functions, infer_relu=infer_relu).call(main, given)
    return [
        materialize(value, canonical(type_.dtype))
        for value, type_ in zip(results, main.result_types, strict=True)
        if isinstance(type_, TensorType)
    ]


def _check(i: int, value: Any, type_: TensorType) -> None:
    shape = tuple(np.shape(value))
    fits = len(shape) == len(type_.shape) and all(e is None or d == e for d, e in zip(shape, type_.shape, strict=True))
    if not fits:
        raise ShapeMismatchError(f"argument {i} of the module is {type_}, got shape {shape}.")
    if value.dtype != canonical(type_.dtype) and value.dtype != object:
        raise DtypeMismatchError(f"argument {i} of the module is {type_}, got {value.dtype}.")


_ALIASES = {"gpu": ("cuda", "rocm", "gpu")}


def _platform_index(platforms: Sequence[str], platform: str | None) -> int:
    names = [name.lower() for name in platforms]
    here = (platform or jax.default_backend()).lower()
    for name in _ALIASES.get(here, (here,)):
        if name in names:
            return names.index(name)
    if not names:
        raise InputError("the module chooses between platforms; say which they are with platforms=[...], in its order.")
    return 0


class StableHLOFunction:
    """A StableHLO module as a JAX function of flat arrays; see `from_stablehlo`.

    Attributes:
      types: of the arguments.
    """

    def __init__(self, module: Module, platforms: Sequence[str], *, infer_relu: bool):
        main = main_function(module)
        self.types = [
            t
            for t, attrs in zip(main.body.types, main.arg_attrs, strict=True)
            if isinstance(t, TensorType) and attrs.get("jax.global_constant") != "_platform_index"
        ]
        self._module, self._platforms, self._infer_relu = module, platforms, infer_relu
        self.__name__ = self.__qualname__ = "stablehlo_module"
        self.__doc__ = f"A StableHLO module of {', '.join(map(str, self.types)) or 'no arguments'}."

    def __call__(self, *args: Any) -> Any:
        """Return the module's result, or a tuple of several."""
        if len(args) != len(self.types):
            raise InputError(f"the module takes {len(self.types)} arguments, got {len(args)}.")
        arrays = [_as_argument(v, t) for v, t in zip(args, self.types, strict=True)]
        results = evaluate(self._module, arrays, platforms=self._platforms, infer_relu=self._infer_relu)
        results = [jnp.asarray(v) for v in results]
        return results[0] if len(results) == 1 else tuple(results)

    def with_params(self, params: Any, *args: Any) -> Any:
        """Return the module's results, as a function that takes params, too."""
        return self(*args)


def from_stablehlo(
    payload: bytes | str, *, platforms: Sequence[str] = (), infer_relu: bool = True
) -> StableHLOFunction:
    """Convert a StableHLO module to a JAX function.

    Args:
      payload: a portable artifact (``jax.export``'s ``mlir_module_serialized``, or that of an ``XlaCallModule`` node),
        MLIR bytecode, or the module's text.
      platforms: of a module for several platforms, in order (``jax.export``'s ``platforms``).
      infer_relu: replace functions that came from ``jax.nn.relu`` by it, so that the gradient at 0 is 0.

    Returns:
      A function of the module's arguments, flat arrays; it returns one array, or a tuple of several.
      ``export_functions({"name": (function, {})}, path)`` writes it as an artifact, with its source.

    Raises:
      InvalidModelError: the payload is damaged, or not StableHLO.
      UnsupportedError: an op has no counterpart in JAX.

    Example:
      >>> exported = jax.export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((2,), jnp.float32))
      >>> fn = tf2jax.from_stablehlo(exported.mlir_module_serialized)
      >>> grads = jax.grad(lambda x: fn(x).sum())(np.zeros(2, np.float32))
    """
    return StableHLOFunction(parse(payload), platforms, infer_relu=infer_relu)


@functools.singledispatch
def _as_argument(value: Any, type_: TensorType) -> Any:
    return jnp.asarray(native(value))


@_as_argument.register(bool)
@_as_argument.register(int)
@_as_argument.register(float)
@_as_argument.register(complex)
def _scalar_argument(value: Any, type_: TensorType) -> Any:
    return jnp.asarray(value, canonical(type_.dtype))
