"""Types of the federated language from dtypes, arrays and structures.

There are also structures as lists of leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import federated_language as fl
import jax
import jax.numpy as jnp
import numpy as np
from federated_language.common_libs import structure

from tf2jax_lite.support.errors import FederatedTypeError

Path = str


def to_type(spec: Any) -> fl.Type:
    """Return the type that ``spec`` describes.

    Args:
      spec: a type of federated_language; a dtype or scalar type of numpy or JAX; a pair (dtype, shape), with None for
        a dimension that is not known; an array, jax.ShapeDtypeStruct, or any object with ``shape`` and ``dtype``; or a
        dict, list, tuple or named tuple of these, nested at will. A list or tuple of pairs (name, type) is a structure
        with names.

    Returns:
      The type. Structures remember their Python container.

    Raises:
      FederatedTypeError: it describes none.
    """
    if isinstance(spec, fl.Type):
        return spec
    if (scalar := _scalar(spec)) is not None:
        return fl.TensorType(scalar)
    if not isinstance(spec, type) and hasattr(spec, "shape") and hasattr(spec, "dtype"):
        return _tensor_type(spec)
    if is_named_tuple(spec):
        return _structure(list(spec._asdict().items()), type(spec), to_type)
    if isinstance(spec, Mapping):
        return _structure(list(spec.items()), type(spec), to_type)
    if isinstance(spec, list | tuple) and not _is_dtype_and_shape(spec):
        if spec and all(isinstance(e, tuple) and len(e) == 2 and isinstance(e[0], str) for e in spec):
            return fl.StructType([(name, to_type(element)) for name, element in spec])
        return _structure([(None, element) for element in spec], type(spec), to_type)
    try:
        if isinstance(spec, tuple):
            return fl.TensorType(_scalar(spec[0]), spec[1])
        return fl.to_type(spec)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise FederatedTypeError(
            f"{spec!r} describes no type; use dtypes, (dtype, shape), arrays, or dicts, lists and tuples of them"
        ) from error


def infer_type(value: Any) -> fl.Type:
    """Return the type of a Python value.

    Values are arrays, numbers, and dicts, lists, tuples and named tuples of them.

    Raises:
      FederatedTypeError: it has none (None, other objects).
    """
    if isinstance(value, fl.TypedObject):
        return value.type_signature
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _tensor_type(value)
    if is_named_tuple(value):
        return _structure(list(value._asdict().items()), type(value), infer_type)
    if isinstance(value, Mapping):
        return _structure(list(value.items()), type(value), infer_type)
    if isinstance(value, structure.Struct):
        return fl.StructType([(n, infer_type(v)) if n else infer_type(v) for n, v in structure.iter_elements(value)])
    if isinstance(value, list | tuple):
        return _structure([(None, element) for element in value], type(value), infer_type)
    if isinstance(value, bool | int | float | complex | str | bytes):
        return fl.TensorType(fl.infer_dtype(value))
    raise FederatedTypeError(
        f"a {type(value).__name__} has no type in the federated language; use arrays and numbers, in dicts, lists,"
        " tuples and named tuples"
    )


def is_named_tuple(value: Any) -> bool:
    """Return whether ``value`` is an instance of a named tuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _structure(items: list[tuple[Any, Any]], container: type, convert: Callable[[Any], fl.Type]) -> fl.Type:
    if bad := [name for name, _ in items if name is not None and not isinstance(name, str)]:
        raise FederatedTypeError(f"the keys of a dict are strings in the federated language, not {bad[0]!r}")
    elements = [convert(element) if name is None else (name, convert(element)) for name, element in items]
    try:
        return fl.StructWithPythonType(elements, container)
    except ValueError as error:
        raise FederatedTypeError(f"a {container.__name__} cannot be a type: {error}") from error


def _tensor_type(array: Any) -> fl.TensorType:
    dtype = getattr(array.dtype, "as_numpy_dtype", array.dtype)  # of tf.TensorSpec
    if isinstance(array, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise FederatedTypeError("a typed JAX key has no type in the federated language; pass jax.random.key_data(key)")
    shape = [int(size) if isinstance(size, int | np.integer) else None for size in array.shape]
    return fl.TensorType(np.dtype(dtype).type, shape)


def _scalar(spec: Any) -> Any:
    """Return numpy's scalar type for a dtype or scalar type; None for others."""
    if isinstance(spec, type):
        known = issubclass(spec, np.generic | bool) or isinstance(getattr(spec, "dtype", None), np.dtype)
        return np.dtype(spec).type if known else None
    return spec.type if isinstance(spec, np.dtype) else None


def _is_dtype_and_shape(spec: Any) -> bool:
    if not isinstance(spec, tuple) or len(spec) != 2:
        return False
    dtype, shape = spec
    return (
        _scalar(dtype) is not None and isinstance(shape, list | tuple) and all(isinstance(d, int | None) for d in shape)
    )


def map_structure(fn: Callable[..., Any], type_spec: fl.Type, *values: Any) -> Any:
    """Apply ``fn(tensor_type, *leaves)`` to the leaves of structures.

    Structures are tuples here, without names.

    Args:
      fn: called for each leaf.
      type_spec: the type of all values.
      *values: nested tuples.

    Raises:
      FederatedTypeError: the type holds something else than tensors.
    """
    if isinstance(type_spec, fl.StructType):
        return tuple(
            map_structure(fn, element, *(value[index] for value in values))
            for index, (_, element) in enumerate(type_spec.items())
        )
    if not isinstance(type_spec, fl.TensorType):
        raise FederatedTypeError(f"tensors are needed, not {type_spec}")
    return fn(type_spec, *values)


def leaves(type_spec: fl.Type, value: Any) -> list[Any]:
    """Return the leaves of nested tuples, in the order of the type."""
    found: list[Any] = []
    map_structure(lambda _, leaf: found.append(leaf), type_spec, value)
    return found


def tensor_leaves(type_spec: fl.Type | None, path: Path = "") -> Iterator[tuple[Path, fl.TensorType]]:
    """Yield (path, type) of the tensors that a type is made of.

    Raises:
      FederatedTypeError: it is made of other things too (functions, sequences, placed values).
    """
    if type_spec is None:
        return
    if isinstance(type_spec, fl.StructType):
        for index, (name, element) in enumerate(type_spec.items()):
            yield from tensor_leaves(element, f"{path}.{name}" if name else f"{path}[{index}]")
    elif isinstance(type_spec, fl.TensorType):
        yield path, type_spec
    else:
        raise FederatedTypeError(
            f"a JAX computation takes and returns tensors and structures of them; {path or 'its parameter'} is"
            f" {type_spec}. Sequences and placed values belong in a federated_computation (sequence_reduce,"
            " federated_map)"
        )
