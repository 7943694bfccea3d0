"""Binding of argument values to an interface's tensors, with optional checks."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import DtypeMismatchError, InputError, MissingInputError, ShapeMismatchError
from tf2jax_lite.values import static
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import exceeds_32_bits

from .coercion import SCALARS, as_strings, has_jax_dtype, in_kind, scalar_array, sequence_array
from .structures import TensorArgument, describe, iter_arguments, same_literal, walk

if TYPE_CHECKING:
    from .interface import Interface


_MAX_STATIC_SIZE = 64


@dataclasses.dataclass(frozen=True)
class Bound:
    """Bound arguments: a value per tensor, and whether ops must promote dtypes."""

    flat: list[Any]
    promote_dtypes: bool


class Binder:
    """Binder of values to an interface's tensors; `finish` returns them flat."""

    def __init__(self, interface: Interface, config: Config):
        self._interface = interface
        self._config = config
        self._flat: list[Any] = [None] * interface.count
        self._missing: list[str] = []
        self._promote_dtypes = False
        parameters = interface.signature.parameters.values()
        self._defaults = {id(p.default) for p in parameters if isinstance(p.default, (np.ndarray, np.generic))}

    def finish(self) -> Bound:
        """Return the bound arguments."""
        if self._missing:
            raise MissingInputError(
                f"{self._interface.name}: missing input(s) {', '.join(self._missing)}. {self._interface.expected()}"
            )
        return Bound(self._flat, self._promote_dtypes)

    def missing_spec(self, path: str, spec: Any) -> None:
        """Record tensors below ``spec`` as missing; literals may be left out."""
        for keys, leaf in walk(spec):
            if isinstance(leaf, TensorArgument):
                self._missing.append(f"{path}{''.join(f'[{key!r}]' for key in keys)}: {leaf}")

    def visit(self, path: str, spec: Any, value: Any) -> None:
        """Bind a value to an argument."""
        if isinstance(spec, TensorArgument):
            self._tensor(path, spec, value)
        elif isinstance(spec, Mapping):
            self._mapping(path, spec, value)
        elif isinstance(spec, (list, tuple)):
            self._sequence(path, spec, value)
        elif not same_literal(spec, value):
            traced = is_traced(value)
            found = "tracer" if traced else f"literal value, {_brief(value)}"
            static = " Under jax.jit, mark it with static_argnums or static_argnames." if traced else ""
            raise InputError(
                f"{self._interface.name}: Found unexpected {found}, for argument {path}, which was converted with the "
                f"literal {spec!r}. Convert again with that value, or with a tf.TensorSpec to pass it at run time."
                f"{static}"
            )

    def _mapping(self, path: str, spec: Mapping[Any, Any], value: Any) -> None:
        if value is None and _has_tensor(spec):
            self.missing_spec(path, spec)
            return
        if not isinstance(value, Mapping):
            raise InputError(
                f"{self._interface.name}: argument {path} is a dict {describe(spec)}, got {_brief(value)}."
            )
        extra = [key for key in value if key not in spec]
        if extra:
            raise InputError(
                f"{self._interface.name}: argument {path} has unexpected key(s) {extra}; expected {describe(spec)}."
            )
        for key, item in spec.items():
            if key in value:
                self.visit(f"{path}[{key!r}]", item, value[key])
            else:
                self.missing_spec(f"{path}[{key!r}]", item)

    def _sequence(self, path: str, spec: Sequence[Any], value: Any) -> None:
        if value is None and _has_tensor(spec):
            self.missing_spec(path, spec)
            return
        given = value
        if not isinstance(value, (list, tuple)):
            value = components(value)
        if value is None:
            raise InputError(
                f"{self._interface.name}: argument {path} is a {type(spec).__name__} {describe(spec)}, "
                f"got {_brief(given)}."
            )
        if len(value) > len(spec):
            raise InputError(
                f"{self._interface.name}: argument {path} has {len(value)} items; expected {describe(spec)}."
            )
        described = next((item.composite for item in spec[:1] if isinstance(item, TensorArgument)), None)
        if value is not given and described is not None and not fits(given, described):
            raise InputError(
                f"{self._interface.name}: argument {path} was converted for {described}, whose non-tensor fields "
                f"are baked into the function. Got {_brief(given)}. Convert again with that value."
            )
        names = getattr(type(spec), "_fields", None)
        for index, item in enumerate(spec):
            where = f"{path}.{names[index]}" if names else f"{path}[{index}]"
            if index < len(value):
                self.visit(where, item, value[index])
            else:
                self.missing_spec(where, item)

    def _tensor(self, path: str, spec: TensorArgument, value: Any) -> None:
        if value is None:
            self._missing.append(f"{path}: {spec}")
            return
        if id(value) in self._defaults and value.dtype.kind in "biufc":
            value = value.tolist()  # TensorFlow casts an argument's default to the dtype of its spec
        array = self._as_array(path, spec, value)
        array = self._with_dtype(path, spec, array)
        self._check_shape(path, spec, array)
        self._check_value(path, spec, array)
        self._flat[spec.index] = array

    def _as_array(self, path: str, spec: TensorArgument, value: Any) -> Any:
        if isinstance(value, jax.Array):
            return value
        if isinstance(value, Mapping):
            raise InputError(f"{self._interface.name}: argument {path} is one tensor {spec}, got {_brief(value)}.")
        try:
            if hasattr(value, "__jax_array__"):
                return value.__jax_array__()
            if isinstance(value, (list, tuple)):  # TensorFlow converts them to tensors, too
                array = sequence_array(value, spec.dtype)
                if isinstance(array, jax.Array):
                    return array
            else:
                array = scalar_array(value, spec.dtype) if isinstance(value, SCALARS) else np.asarray(value)
            if array.dtype.kind in "SUO" or array.dtype == jax.dtypes.float0:
                return as_strings(array)
            array = self._native(path, spec, array)
            if array.dtype.kind in "iub" and array.size <= _MAX_STATIC_SIZE:
                return array  # small integers may be shapes, axes or counts: they stay static while tracing
            if exceeds_32_bits(array) and not jax.config.jax_enable_x64:
                return array  # NumPy computes with all 64 bits outside jit
            if isinstance(value, np.ma.MaskedArray):
                array = value  # JAX raises an error that explains masks
            return jax.device_put(array)  # jnp.asarray would compile a program for every shape
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"{self._interface.name}: argument {path} is a tensor {spec}, got {_brief(value)} ({error})."
            ) from None

    def _native(self, path: str, spec: TensorArgument, value: Any) -> Any:
        """Return numbers in native byte order; raise for dtypes JAX lacks, like dates."""
        value = native(value)
        if not has_jax_dtype(value.dtype):
            raise DtypeMismatchError(
                f"{self._interface.name}: argument {path} is a tensor {spec}, got {value.dtype}, which JAX does not "
                "support."
            )
        return value

    def _check_shape(self, path: str, spec: TensorArgument, array: Any) -> None:
        if not self._config.strict_shape_check or spec.shape is None:
            return
        if len(array.shape) == len(spec.shape):
            # Only integer sizes can mismatch; symbolic dimensions are checked by the ops that use them.
            pairs = zip(array.shape, spec.shape, strict=True)
            if all(e is None or not isinstance(a, (int, np.integer)) or a == e for a, e in pairs):
                return
        raise ShapeMismatchError(
            f"{self._interface.name}: incompatible input shape {tuple(array.shape)} of argument {path}; the function "
            f"was converted for {spec.shape}. Convert with None for dimensions that vary, or switch the check off with "
            "override_config('strict_shape_check', False) around conversion or call."
        )

    def _with_dtype(self, path: str, spec: TensorArgument, array: Any) -> Any:
        if spec.dtype is None or array.dtype == object:
            if spec.dtype is not None or array.dtype != object:
                raise DtypeMismatchError(
                    f"{self._interface.name}: argument {path} has dtype {array.dtype}, but is a tensor {spec}."
                )
            return array
        if jnp.issubdtype(array.dtype, jax.dtypes.extended) or array.dtype == jax.dtypes.float0:
            raise DtypeMismatchError(
                f"{self._interface.name}: argument {path} has dtype {array.dtype}, not {spec.dtype}."
            )
        if values.canonical(array.dtype) == values.canonical(spec.dtype):
            return array
        if self._config.strict_dtype_check:
            raise DtypeMismatchError(
                f"{self._interface.name}: incompatible input dtype {array.dtype} of argument {path}; the function was "
                f"converted for {spec.dtype}. Cast it, or switch the check off with "
                "override_config('strict_dtype_check', False)."
            )
        coerced = in_kind(array, spec.dtype)
        self._promote_dtypes = self._promote_dtypes or coerced is None
        return array if coerced is None else coerced

    def _check_value(self, path: str, spec: TensorArgument, array: Any) -> None:
        # The value determined the graph, so an override around the call does not disable the check.
        if spec.value is None or is_traced(array):
            return
        found = tuple(np.asarray(array).tolist())
        wanted = tuple(None if size == -1 else size for size in spec.value)
        fits = len(found) == len(wanted) and all(w in (None, f) for w, f in zip(wanted, found, strict=True))
        if not fits:
            raise ShapeMismatchError(
                f"{self._interface.name}: argument {path} is {found}, but the function was converted for {wanted}. "
                "Convert with None for dimensions that vary, or switch the check off with "
                "override_config('strict_shape_check', False) at conversion."
            )


def _has_tensor(spec: Any) -> bool:
    return next(iter_arguments(spec), None) is not None


def _brief(value: Any) -> str:
    if isinstance(value, (np.ndarray, jax.Array)):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"


def components(value: Any) -> Sequence[Any] | None:
    """Return a composite tensor's components in TensorFlow's order, else None.

    Args:
      value: an object of a class that ``tf.nest`` flattens (its fields), a ``tf.RaggedTensor`` (flat values, row
        splits), ``tf.SparseTensor`` (indices, values, dense shape), ``tf.IndexedSlices``,
        ``tf.experimental.ExtensionType``, or a ``jax.experimental.sparse.BCOO`` without batch and dense dimensions,
        which counts as a sparse tensor.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is not None and isinstance(value, sparse.BCOO):
        if value.n_batch or value.n_dense:
            return None
        return value.indices.astype(static.canonical(np.int64)), value.data, np.asarray(value.shape, np.int64)
    if isinstance(value, Mapping):
        return None  # a dict has no order of components
    if hasattr(value, "__attrs_attrs__"):
        return [getattr(value, attribute.name) for attribute in value.__attrs_attrs__]
    if dataclasses.is_dataclass(value) and hasattr(value, "__tf_flatten__"):
        return list(value.__tf_flatten__()[1])  # pyright: ignore[reportAttributeAccessIssue]
    tf = sys.modules.get("tensorflow")
    nest = getattr(tf, "nest", None)
    if nest is None or value is None:
        return None
    parts = nest.flatten(value, expand_composites=True)
    return None if len(parts) == 1 and parts[0] is value else parts


def fits(value: Any, spec: Any) -> bool:
    """Whether a composite tensor matches a spec in type and non-tensor fields.

    Args:
      value: a value for which `components` is not None.
      spec: the ``tf.TypeSpec`` that a function was converted for.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is not None and isinstance(value, sparse.BCOO):
        return spec.value_type.__name__ == "SparseTensor"
    fields = {name: field for name, field in vars(spec).items() if not name.startswith("_")}
    if not fields:
        return isinstance(value, spec.value_type)
    # An extension type. A restored one has a class of its own, so that only fields count.
    return all(hasattr(value, name) and _same(getattr(value, name), field) for name, field in fields.items())


def _same(value: Any, field: Any) -> bool:
    if isinstance(field, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == field.keys()
            and all(_same(value[k], field[k]) for k in field)
        )
    if isinstance(field, tuple):
        return isinstance(value, tuple) and len(value) == len(field) and all(map(_same, value, field))
    if hasattr(field, "value_type"):
        return components(value) is None or fits(value, field)
    return type(value) is type(field) and bool(value == field)
