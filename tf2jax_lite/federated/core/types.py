"""Types and values of the federated language, as JAX values.

A tensor is an array; a structure is a tuple (names are in its type); a sequence is a list; a function takes one
argument; a value at the clients is a list with one member for each, or `AllEqual`; a value at the server is its member.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


@dataclasses.dataclass(frozen=True)
class AllEqual:
    """A value that every client has.

    Attributes:
      member: the value.
    """

    member: Any


class Ingest:
    """Checks arguments against their types, and counts the clients that they are for.

    Args:
      function: makes a function of the interpreter from a computation that is an argument.

    Attributes:
      num_clients: how many clients' values were seen; None if there were none yet.
    """

    def __init__(self, function: Callable[[Any], Any]):
        self._function = function
        self.num_clients: int | None = None

    def __call__(self, value: Any, type_spec: fl.Type, path: str = "argument") -> Any:
        """Return ``value`` in the interpreter's form.

        Raises:
          FederatedTypeError: it does not have the type, or two arguments are for different numbers of clients.
        """
        if isinstance(type_spec, fl.FederatedType):
            return self._federated(value, type_spec, path)
        if isinstance(type_spec, fl.StructType):
            return self._struct(value, type_spec, path)
        if isinstance(type_spec, fl.SequenceType):
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                raise FederatedTypeError(f"{path}: a sequence {type_spec} is an iterable, not {_describe(value)}")
            return [self(element, type_spec.element, f"{path}[{index}]") for index, element in enumerate(value)]
        if isinstance(type_spec, fl.FunctionType):
            if not isinstance(value, fl.framework.ConcreteComputation):
                raise FederatedTypeError(f"{path}: a function {type_spec} is a computation, not {_describe(value)}")
            if not type_spec.is_assignable_from(value.type_signature):
                raise FederatedTypeError(f"{path}: {value.type_signature} is given where {type_spec} is needed")
            return self._function(value)
        if isinstance(type_spec, fl.TensorType):
            return _tensor(value, type_spec, path)
        raise FederatedTypeError(f"{path}: a value of type {type_spec} cannot be an argument")

    def _federated(self, value: Any, type_spec: fl.FederatedType, path: str) -> Any:
        if type_spec.all_equal:
            member = self(value, type_spec.member, path)
            return member if type_spec.placement is fl.SERVER else AllEqual(member)
        if type_spec.placement is not fl.CLIENTS or isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise FederatedTypeError(
                f"{path}: a value {type_spec} is a list with one value for each client, not {_describe(value)}"
            )
        if self.num_clients not in (None, len(value)):
            raise FederatedTypeError(f"{path}: values for {len(value)} clients, others are for {self.num_clients}")
        self.num_clients = len(value)
        return [self(member, type_spec.member, f"{path}, client {index}") for index, member in enumerate(value)]

    def _struct(self, value: Any, type_spec: fl.StructType, path: str) -> Any:
        if isinstance(value, structure.Struct):
            items = list(structure.iter_elements(value))
        elif is_named_tuple(value):
            items = list(value._asdict().items())
        elif isinstance(value, Mapping):
            items = list(value.items())
        elif isinstance(value, list | tuple):
            items = [(None, element) for element in value]
        else:
            raise FederatedTypeError(f"{path}: a structure {type_spec} is needed, not {_describe(value)}")
        names = [name for name, _ in type_spec.items()]
        given = [name for name, _ in items]
        if isinstance(value, Mapping) and set(given) == set(names):  # a dict's order is not part of its value
            items = [(name, value[name]) for name in names]
        elif len(given) != len(names) or any(a is not None and a != b for a, b in zip(given, names, strict=True)):
            raise FederatedTypeError(f"{path}: the structure {type_spec} has elements {names}, not {given}")
        return tuple(
            self(element, element_type, f"{path}.{name}" if name else f"{path}[{index}]")
            for index, ((_, element), (name, element_type)) in enumerate(zip(items, type_spec.items(), strict=True))
        )


def _tensor(value: Any, type_spec: fl.TensorType, path: str) -> Any:
    wanted = type_spec.dtype
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = value
        if array.dtype != wanted:
            if not np.can_cast(array.dtype, wanted, "safe"):
                raise FederatedTypeError(f"{path}: {type_spec} is needed, not {array.dtype}{list(array.shape)}")
            array = np.asarray(array).astype(wanted)
    else:
        array = _from_python(value, wanted, f"{path}: {type_spec} is needed, not {_describe(value)}")
    shape = type_spec.shape
    if shape is not None and (
        len(shape) != array.ndim or any(a is not None and a != b for a, b in zip(shape, array.shape, strict=True))
    ):
        raise FederatedTypeError(f"{path}: {type_spec} is needed, not {array.dtype}{list(array.shape)}")
    return array


def _from_python(value: Any, wanted: np.dtype, message: str) -> np.ndarray:
    """Convert Python numbers, which have no dtype, to the wanted one if exact."""
    try:
        array = np.asarray(value)
        order = "biufc"
        if wanted.kind in "SUO":
            fits = array.dtype.kind in "SUO"
        elif array.dtype.kind in "iu" and wanted.kind in "iu":
            limits = np.iinfo(wanted)
            fits = not array.size or (array.min() >= limits.min and array.max() <= limits.max)
        elif wanted.kind == "b" or array.dtype.kind == "b":
            fits = array.dtype.kind == wanted.kind
        else:
            kind = wanted.kind if wanted.kind in order else "f"  # bfloat16 and its like
            fits = array.size == 0 or (array.dtype.kind in order and order.index(array.dtype.kind) <= order.index(kind))
        if fits:
            return array.astype(wanted)
    except (ValueError, TypeError, OverflowError):
        pass
    raise FederatedTypeError(message)


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def to_struct(value: Any, type_spec: fl.Type) -> Any:
    """Return nested tuples as the library's structures, with the names of the type."""
    if isinstance(type_spec, fl.StructType):
        return structure.Struct(
            (name, to_struct(element, element_type))
            for element, (name, element_type) in zip(value, type_spec.items(), strict=True)
        )
    return value


def from_value(value: Any, type_spec: fl.Type, num_clients: int) -> Any:
    """Return a value of the interpreter as numpy arrays in Python containers.

    Raises:
      FederatedTypeError: it is a function.
    """
    if isinstance(type_spec, fl.FederatedType):
        if type_spec.placement is fl.SERVER:
            return from_value(value, type_spec.member, num_clients)
        if type_spec.all_equal:
            return from_value(value.member, type_spec.member, num_clients)
        members = [value.member] * num_clients if isinstance(value, AllEqual) else value
        return [from_value(member, type_spec.member, num_clients) for member in members]
    if isinstance(type_spec, fl.SequenceType):
        return [from_value(element, type_spec.element, num_clients) for element in value]
    if isinstance(type_spec, fl.StructType):
        struct = structure.Struct(
            (name, from_value(element, element_type, num_clients))
            for element, (name, element_type) in zip(value, type_spec.items(), strict=True)
        )
        return fl.framework.type_to_py_container(struct, type_spec)
    if isinstance(type_spec, fl.TensorType):
        return np.asarray(value)[()]
    raise FederatedTypeError(f"a computation called from Python cannot return {type_spec}")
