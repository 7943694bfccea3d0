"""JAX functions as computations of the federated language.

Source: tff.jax_computation.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import federated_language as fl
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from federated_language.common_libs import structure
from federated_language.proto import computation_pb2

from tf2jax_lite.federated.core.types import Ingest, infer_type, is_named_tuple, tensor_leaves, to_struct, to_type
from tf2jax_lite.stablehlo.api import checked_call, read_exported
from tf2jax_lite.support.errors import FederatedTypeError, Tf2JaxError

_TYPE_URL = "type.googleapis.com/tf2jax_lite.federated.JaxExported"


class JaxComputation(fl.framework.ConcreteComputation):
    """The result of `jax_computation`.

    A computation whose proto holds an exported JAX function.

    Attributes:
      function: the Python function, taking its parameter as the library packs it. For calls within other JAX functions.
    """

    def __init__(self, function: Callable[..., Any], proto: Any, type_signature: fl.FunctionType):
        super().__init__(
            computation_proto=proto,
            context_stack=fl.framework.get_context_stack(),
            annotated_type=type_signature,
        )
        self.function = function


class _TracingContext(fl.framework.SyncContext):
    """In force while a JAX function is traced; called computations join it."""

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Call a JAX computation with tracers."""
        parameter = comp.type_signature.parameter
        value = None if parameter is None else Ingest(_no_functions)(arg, parameter, "argument")
        if isinstance(comp, JaxComputation):
            # The function itself rather than its export, so that JAX can differentiate it.
            return comp.function() if parameter is None else comp.function(to_struct(value, parameter))
        block = comp.to_building_block()
        if not isinstance(block, fl.framework.CompiledComputation):
            raise FederatedTypeError(
                "a JAX function cannot call a federated_computation; call JAX computations only, and combine them with"
                " others in a federated_computation"
            )
        inputs = [] if parameter is None else _flatten(value, parameter)
        _, call = _read(block.to_proto(), block.type_signature)
        outputs = iter(call(*inputs))
        return _python(comp.type_signature.result, lambda _: next(outputs))


def _no_functions(_: Any) -> Any:
    raise FederatedTypeError("a JAX computation takes no functions")


def _flatten(value: Any, type_spec: fl.Type) -> list[Any]:
    if isinstance(type_spec, fl.StructType):
        pairs = zip(value, type_spec.items(), strict=True)
        return [leaf for element, (_, kind) in pairs for leaf in _flatten(element, kind)]
    return [value]


def _python(type_spec: fl.Type, leaf: Callable[[fl.Type], Any]) -> Any:
    """Return a type's Python containers, with ``leaf(tensor_type)`` as tensors."""
    if isinstance(type_spec, fl.StructType):
        elements = structure.Struct((name, _python(element, leaf)) for name, element in type_spec.items())
        return fl.framework.type_to_py_container(elements, type_spec)
    return leaf(type_spec)


def _wrap(function: Any, parameter_type: Any, unpack: bool | None, name: str | None = None, **_: Any) -> JaxComputation:
    """Trace and export a function for one parameter type."""
    name = name or "jax_function"
    callable_ = fl.framework.wrap_as_zero_or_one_arg_callable(function, parameter_type, unpack)
    inputs = list(tensor_leaves(parameter_type))
    wide = any(leaf.dtype.itemsize // (2 if leaf.dtype.kind == "c" else 1) == 8 for _, leaf in inputs)
    # Types of 64 bits keep their width, independent of jax_enable_x64.
    with jax.enable_x64(wide or jax.config.jax_enable_x64):
        exported, result_type = _export(name, callable_, parameter_type, [leaf for _, leaf in inputs])
    type_signature = fl.FunctionType(parameter_type, result_type)
    proto = computation_pb2.Computation(type=type_signature.to_proto())
    proto.xla.hlo_module.type_url = _TYPE_URL
    content = bytes(exported.serialize())
    _own.add(hashlib.sha256(content).digest())
    proto.xla.hlo_module.value = content
    if parameter_type is not None:
        proto.xla.parameter.CopyFrom(_binding(parameter_type, iter(range(len(inputs)))))
    proto.xla.result.CopyFrom(_binding(result_type, iter(range(len(exported.out_avals)))))
    return JaxComputation(callable_, proto, type_signature)


def _binding(type_spec: fl.Type, numbers: Any) -> Any:
    binding = computation_pb2.Xla.Binding()
    if isinstance(type_spec, fl.StructType):
        binding.struct.SetInParent()
        for _, element in type_spec.items():
            binding.struct.element.add().CopyFrom(_binding(element, numbers))
    else:
        binding.tensor.index = next(numbers)
    return binding


def _export(name: str, function: Any, parameter_type: Any, inputs: Sequence[fl.TensorType]) -> tuple[Any, fl.Type]:
    results: list[fl.Type] = []
    orders = _dict_orders(parameter_type)

    def flat(*arrays: Any) -> list[Any]:
        with fl.framework.get_context_stack().install(_TracingContext()):
            if parameter_type is None:
                result = function()
            else:
                given = iter(arrays)
                result = function(_struct(parameter_type, given))
        result_type, outputs = _result(result, orders, name)
        results.append(result_type)
        return outputs

    flat.__name__ = name
    tried = None
    for shared in (False, True):
        try:
            exported = jax.export.export(jax.jit(flat))(*_specs(inputs, shared, name))
            return exported, results[-1]
        except jax.errors.JAXTypeError:
            raise
        except (TypeError, ValueError) as error:
            # Dimensions that are not known may have to be equal for the function to make sense (x and y of a batch).
            # Of the language's types, only the leading ones are ever meant so.
            if shared or isinstance(error, FederatedTypeError) or sum(_unknown(leaf) for leaf in inputs) < 2:
                raise tried or error from None
            tried = error
    raise AssertionError("unreachable")


def _unknown(leaf: fl.TensorType) -> int:
    return sum(size is None for size in leaf.shape or ())


def _struct(type_spec: fl.Type, arrays: Any) -> Any:
    if isinstance(type_spec, fl.StructType):
        return structure.Struct((name, _struct(element, arrays)) for name, element in type_spec.items())
    return next(arrays)


def _specs(inputs: Sequence[fl.TensorType], shared: bool, name: str) -> list[jax.ShapeDtypeStruct]:
    scope = jax.export.SymbolicScope()
    specs = []
    for number, leaf in enumerate(inputs):
        if leaf.shape is None:
            raise FederatedTypeError(f"{name}: {leaf} has no known rank; give its shape, with None for open dimensions")
        if leaf.dtype.kind in "SUO":
            raise FederatedTypeError(f"{name}: JAX has no strings, and the parameter has {leaf}")
        sizes = []
        for axis, size in enumerate(leaf.shape):
            symbol = "n" if shared and axis == 0 else f"d{number}_{axis}"
            sizes.append(jax.export.symbolic_shape(symbol, scope=scope)[0] if size is None else size)
        specs.append(jax.ShapeDtypeStruct(tuple(sizes), leaf.dtype))
    return specs


_Orders = dict[frozenset[Any], list[str]]


def _dict_orders(type_spec: Any) -> _Orders:
    """Return the orders of the names in a parameter's structures."""
    orders: _Orders = {}
    if isinstance(type_spec, fl.StructType):
        names = [name for name, _ in type_spec.items()]
        if names and None not in names:
            orders[frozenset(names)] = names  # pyright: ignore[reportArgumentType]
        for _, element in type_spec.items():
            orders = {**_dict_orders(element), **orders}
    return orders


def _arrays(result: Any, orders: _Orders) -> Any:
    """Return a result with arrays for numbers, and its dicts in order.

    JAX sorts the keys of a dict whenever it maps over one, but names in a type have an order that matters: a dict takes
    that of a parameter with the same keys, so that an update of a model returns the model's type.
    """
    if is_named_tuple(result):
        return type(result)(*(_arrays(element, orders) for element in result))
    if isinstance(result, Mapping):
        names = orders.get(frozenset(result), result) if type(result) is dict else result
        items = [(name, _arrays(result[name], orders)) for name in names]
        return type(result)(items)  # pyright: ignore[reportCallIssue]
    if isinstance(result, structure.Struct):  # a parameter of several types, as a whole
        return structure.Struct((name, _arrays(element, orders)) for name, element in structure.iter_elements(result))
    if isinstance(result, list | tuple):
        return type(result)(_arrays(element, orders) for element in result)
    return jnp.asarray(result)


def _result(result: Any, orders: _Orders, name: str) -> tuple[fl.Type, list[Any]]:
    """Return a result as its type and its arrays, in the order of the type."""
    if result is None:
        raise FederatedTypeError(f"{name} returned None; a computation returns a value")
    try:
        arrays = _arrays(result, orders)
        result_type = infer_type(arrays)
    except (TypeError, ValueError) as error:
        raise FederatedTypeError(f"{name} returned a value that JAX computations cannot return: {error}") from error
    return result_type, _flatten(Ingest(_no_functions)(arrays, result_type, "result"), result_type)


def jax_computation(*args: Any) -> Any:
    """Make a computation of the federated language from a JAX function.

    Source: tff.jax_computation. The function is traced once for its types and exported: the computation holds it as
    StableHLO (see `stablehlo`) and can be serialized, sent and run elsewhere. It may call other JAX computations and
    differentiate them.

    Args:
      *args: the parameters' types, as `to_type` takes them; or the function, followed by its types. Without types, the
        computation is polymorphic: it is traced for the types of each call's arguments. A parameter of 64 bits turns
        64-bit arithmetic on in this function, independent of ``jax_enable_x64``. Dimensions may be None: leading ones
        are assumed equal if the function needs that (``x`` and ``y`` of one batch), and must be >= 1 at a call.

    Returns:
      A decorator, or with a function as first argument the computation: its ``type_signature`` prints as
      ``(<x=int32,y=int32> -> int32)``. Called in Python, it runs in the current context (see `ExecutionContext`);
      in a ``federated_computation`` it becomes part of that.

    Raises:
      FederatedTypeError: the types do not fit the function, or hold other things than tensors; the function returns
        something else than arrays and numbers in dicts, lists, tuples and named tuples.
    """
    wrapper = fl.framework.ComputationWrapper(_wrap, to_type, infer_type)  # pyright: ignore[reportArgumentType]
    try:
        made = wrapper(*args)
    except TypeError as error:
        raise _as_ours(error) from error
    if isinstance(made, fl.framework.ConcreteComputation | fl.framework.PolymorphicComputation):
        return made

    @functools.wraps(made)
    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return made(function)
        except TypeError as error:
            raise _as_ours(error) from error

    return decorate


def _as_ours(error: TypeError) -> TypeError:
    if isinstance(error, FederatedTypeError | jax.errors.JAXTypeError):
        return error
    return FederatedTypeError(str(error))


_own: set[bytes] = set()  # hashes of modules exported by this process, which are trusted


@functools.lru_cache(maxsize=1024)
def _deserialize(content: bytes) -> tuple[jax.export.Exported, Callable[..., Any]]:
    if hashlib.sha256(content).digest() in _own:
        exported = jax.export.deserialize(bytearray(content))
        call = exported.call
    else:
        try:
            exported = read_exported(content)
            call = checked_call(exported)
        except Tf2JaxError as error:
            raise FederatedTypeError(f"the computation's proto cannot be read: {error}") from error
    return exported, jax.jit(call)


def _content(proto: Any) -> bytes:
    if proto.WhichOneof("computation") != "xla" or proto.xla.hlo_module.type_url != _TYPE_URL:
        raise FederatedTypeError(
            "this computation was not made by jax_computation; other backends' computations cannot run here"
        )
    return proto.xla.hlo_module.value


def _read(proto: Any, kind: Any) -> tuple[jax.export.Exported, Callable[..., Any]]:
    """Return the content of a computation's proto, after a check of its type."""
    exported, call = _deserialize(_content(proto))
    for avals, type_spec, what in (
        (exported.in_avals, kind.parameter, "parameter"),
        (exported.out_avals, kind.result, "result"),
    ):
        found = [str(aval.dtype) for aval in avals]
        wanted = [str(leaf.dtype) for _, leaf in tensor_leaves(type_spec)]
        if found != wanted:
            raise FederatedTypeError(
                f"the computation's proto contradicts itself: its type says that the {what} is of {wanted}, its "
                f"StableHLO that it is of {found}"
            )
    return exported, call


def run_exported(proto: Any, kind: fl.FunctionType, inputs: Sequence[Any]) -> list[Any]:
    """Run the JAX function in a computation's proto.

    Args:
      proto: of a computation that `jax_computation` made.
      kind: the computation's type.
      inputs: arrays of exactly its parameter's dtypes, in the order of the type.

    Returns:
      Arrays, in the order of the result type.

    Raises:
      FederatedTypeError: the proto is another backend's or damaged, or sizes do not fit together.
    """
    exported, call = _read(proto, kind)
    for array, aval in zip(inputs, exported.in_avals, strict=True):
        if np.shape(array) and 0 in np.shape(array) and not all(isinstance(size, int) for size in aval.shape):
            raise FederatedTypeError(
                f"{exported.fun_name}: a dimension that is open in the type must be >= 1 at a call"
            )
    with jax.enable_x64(True):  # inputs have their dtypes; without it JAX would narrow those of 64 bits
        try:
            return list(call(*inputs))
        except ValueError as error:
            if isinstance(error, jax.errors.JaxRuntimeError):
                raise
            raise FederatedTypeError(f"{exported.fun_name}: {error}") from error


def stablehlo(computation: Any) -> str:
    """Return the StableHLO text of a JAX computation.

    Args:
      computation: the result of `jax_computation` with types, also if read back from its proto.

    Raises:
      FederatedTypeError: it is something else, or polymorphic, or its proto is damaged.
    """
    if not isinstance(computation, fl.framework.ConcreteComputation):
        raise FederatedTypeError(f"{computation!r} has no StableHLO: give jax_computation the parameters' types")
    return _read(computation.to_proto(), computation.type_signature)[0].mlir_module()
