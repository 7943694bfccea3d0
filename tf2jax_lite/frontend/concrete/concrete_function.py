"""ConcreteFunctions to IR graphs with captures and a calling interface."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction, Interface
from tf2jax_lite.calling.names import keyword_parameters, parameter_names
from tf2jax_lite.calling.params import Variable
from tf2jax_lite.frontend.gradients.rewrite import rewrite_custom_gradients
from tf2jax_lite.frontend.graphdef import dtypes, functions
from tf2jax_lite.support.config import get_config
from tf2jax_lite.support.errors import UnsupportedError
from tf2jax_lite.support.gc_pause import paused
from tf2jax_lite.support.stored_array import StoredArray

from .graph_state import captured_table, initialize_tables, table_dtypes, with_captured_state
from .structures import (
    ArgumentBuilder,
    flat_keywords,
    node_name,
    output_structure,
    plain_structure,
    shape_of,
    stacked,
    structured_inputs,
    structured_outputs,
    with_constants,
)
from .variable_values import Trains, is_numeric, read_value, read_values, trained_variables, variable_paths


@dataclasses.dataclass(frozen=True)
class Opaque:
    """A captured object that JAX cannot hold (table, dataset, string variable).

    ``text`` describes it.
    """

    text: str


@paused()
def load_concrete(
    concrete: Any,
    *,
    signature: inspect.Signature | None = None,
    name: str = "",
    read_values: bool = True,
    opaque: bool = False,
    model: Any = None,
    values: Mapping[int, Any] | None = None,
) -> ImportedFunction:
    """Import a ConcreteFunction.

    Args:
      signature: the signature of its arguments; by default the function's own.
      read_values: whether to read the variables' values; otherwise variables hold None.
      opaque: return captures without a counterpart in JAX as `Opaque` values instead of raising.
      model: the function, model or layer that is converted: its attributes may name the variables, and determine which
        of them train (see `trained_variables`).
      values: values of variables by the ``id`` of their handles, which TensorFlow need not have.
    """
    func_graph = concrete.graph
    name = name or getattr(concrete, "name", "") or "function"
    proto = func_graph.as_graph_def()
    inputs = list(concrete.inputs)
    captured = list(concrete.captured_inputs)
    count = len(inputs) - len(captured)
    args = [ir.Argument(node_name(t), dtypes.from_tf(t.dtype), shape_of(t.shape)) for t in inputs]
    outputs, results, arrays = output_structure(concrete)
    main = functions.load_main(
        proto,
        name,
        args,
        [t.name for t in concrete.outputs[:results]],
        [op.name for op in func_graph.control_outputs],
    )
    graph = ir.Graph(main, functions.load_library(proto.library))
    variables = list(func_graph.variables)
    if get_config("convert_custom_gradient"):
        positions = {id(t): count + i for i, t in enumerate(captured)}
        graph, more, read = rewrite_custom_gradients(graph, func_graph, positions)
        captured += more
        variables += read
    # In a split model, tables stay in TensorFlow.
    graph = graph if opaque else initialize_tables(graph, func_graph)
    pairs = [] if opaque else table_dtypes(graph.main, graph.functions)
    model = getattr(concrete, "_tf2jax_lite_model", model)
    trains = trained_variables(variables, model)
    captures = _captures(variables, captured, count, read_values, opaque, pairs, trains, model, values)
    names = [capture.value.name for capture in captures if isinstance(capture.value, ir.Variable)]
    graph, more = with_captured_state(graph, func_graph, names, read=read_values, tables=not opaque)
    captures += tuple(more)
    structured_args, structured_kwargs = structured_inputs(concrete, count)
    arguments = ArgumentBuilder(args[:count])
    interface = Interface(
        name=name,
        signature=signature if signature is not None else _own_signature(concrete, structured_args, structured_kwargs),
        args=tuple(arguments.convert(structured_args)),
        kwargs=arguments.convert(dict(structured_kwargs), flat_keywords(concrete, structured_kwargs)),
        count=count,
        outputs=outputs,
    )
    main = with_constants(graph.main, arguments.static_values) if arguments.static_values else graph.main
    main = stacked(main, arrays) if arrays else main
    if not opaque:
        _check_results(concrete.outputs[:results], arrays)
    graph = dataclasses.replace(graph, main=main, captures=captures)
    return ImportedFunction(
        graph,
        interface,
        (plain_structure(structured_args), plain_structure(structured_kwargs)),
        plain_structure(structured_outputs(concrete)),
    )


def _check_results(outputs: Sequence[Any], arrays: Mapping[int, ir.DType]) -> None:
    for position, tensor in enumerate(outputs):
        if position not in arrays and dtypes.from_tf(tensor.dtype) in (ir.RESOURCE, ir.VARIANT):
            raise UnsupportedError(
                f"result {position} of the function ({tensor!r}) is not an array but a {tensor.dtype.name} (a dataset, "
                "an optional, an iterator), which has no counterpart in JAX. Return the tensors it holds."
            )


def _own_signature(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.Signature:
    """Return the signature of a ConcreteFunction whose arguments have this structure."""
    function_type = getattr(concrete, "function_type", None)
    names = list(function_type.parameters) if function_type is not None else []
    if concrete.structured_input_signature is None:
        names = [spec.name for spec in args]
    positional = [n for n in names if n not in kwargs][: len(args)]
    positional += [f"arg{i}" for i in range(len(positional), len(args))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in parameter_names(positional, kwargs)]
    # A SavedModel signature takes keywords only; passing them by position is unambiguous, and supported as well.
    keyword_kind = kind if not args else inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([*parameters, *keyword_parameters(kwargs, keyword_kind)])


def _paths(model: Any, variables: Mapping[int, Any]) -> dict[int, str]:
    """Return attribute paths of variables whose names repeat, by the handles' ids."""
    # There are none if the option ``param_names`` asks for names of variables.
    if model is None or get_config("param_names") == "variable":
        return {}
    names = collections.Counter(variable.name for variable in variables.values())
    repeated = {handle for handle, variable in variables.items() if names[variable.name] > 1}
    return {handle: path for handle, path in variable_paths(model).items() if handle in repeated} if repeated else {}


def _captures(
    variables: Sequence[Any],
    captured: Sequence[Any],
    count: int,
    read: bool,
    opaque: bool = False,
    tables: list[tuple[Any, Any]] | None = None,
    trains: Trains = lambda variable: False,
    model: Any = None,
    given: Mapping[int, Any] | None = None,
) -> tuple[ir.Capture, ...]:
    by_handle = {}
    for variable in variables:
        handle = getattr(variable, "handle", None)
        if handle is not None:
            by_handle[id(handle)] = variable
    taken: dict[str, int] = {}
    converted: dict[int, Any] = {}
    captures = []
    paths = _paths(model, {id(tensor): by_handle[id(tensor)] for tensor in captured if id(tensor) in by_handle})
    with tf.init_scope():  # variables are read here, and conversion may run while a function is being traced
        values = _values(captured, by_handle, given or {}) if read else {}
        for offset, tensor in enumerate(captured):
            try:
                value: Any = _capture(
                    tensor, by_handle, converted, taken, values if read else None, tables or [], trains, paths
                )
            except UnsupportedError as error:
                if not opaque:
                    raise
                value = Opaque(str(error))
            captures.append(ir.Capture(count + offset, value))
    return tuple(captures)


def _values(captured: Sequence[Any], by_handle: Mapping[int, Any], given: Mapping[int, Any]) -> dict[int, Any]:
    """Return the values of captured numeric variables, by the ``id`` of their handles."""
    # One op reads all that are not given.
    known = {id(tensor): given[id(tensor)] for tensor in captured if id(tensor) in given}
    handles: dict[int, Any] = {}
    types: list[Any] = []
    for tensor in captured:
        variable = by_handle.get(id(tensor))
        if (
            variable is not None
            and id(tensor) not in handles
            and id(tensor) not in known
            and isinstance(tensor, tf.__internal__.EagerTensor)
        ):
            dtype = variable.dtype
            if is_numeric(dtype):
                handles[id(tensor)] = tensor
                types.append(dtype)
    found = read_values(list(handles.values()), types)
    return known if found is None else known | dict(zip(handles, found, strict=True))


def _capture(
    tensor: Any,
    by_handle: Mapping[int, Any],
    converted: dict[int, Any],
    taken: dict[str, int],
    values: Mapping[int, Any] | None,
    tables: list[tuple[Any, Any]],
    trains: Trains,
    paths: Mapping[int, str],
) -> Any:
    if id(tensor) in converted:
        return converted[id(tensor)]
    variable = by_handle.get(id(tensor))
    kind = ir.RESOURCE if variable is not None else dtypes.from_tf(tensor.dtype)
    if kind is ir.RESOURCE:
        if variable is None and _is_lock(tensor):
            return np.zeros((), np.bool_)  # ops that lock and unlock it are removed: a pure function needs no lock
        table = captured_table(tensor, tables) if variable is None and hasattr(tensor, "numpy") else None
        found = converted[id(tensor)] = (
            _variable(variable, tensor, taken, values, trains, paths) if table is None else table
        )
        return found
    if kind is ir.VARIANT:
        raise UnsupportedError(
            f"the function captures {tensor!r}, a variant (dataset or optional), which has no counterpart in JAX. "
            "Pass its contents as an argument, or leave the ops that use it in TensorFlow with split_host=True."
        )
    return _constant(tensor)


def _is_lock(handle: Any) -> bool:
    """Return whether a resource is the mutex of a ``tf.CriticalSection``."""
    # Only the text of a handle contains its type.
    return '::Mutex"' in repr(handle)


def variables_by_name(concrete: Any) -> dict[str, Any]:
    """Return a function's captured ``tf.Variable`` objects by name.

    The names are those that `load_concrete` gives them.
    """
    inputs = list(concrete.inputs)
    captured = list(concrete.captured_inputs)
    by_handle = {id(v.handle): v for v in concrete.graph.variables if getattr(v, "handle", None) is not None}
    count = len(inputs) - len(captured)
    model = getattr(concrete, "_tf2jax_lite_model", None)
    return {
        capture.value.name: by_handle[id(tensor)]
        for capture, tensor in zip(
            _captures(concrete.graph.variables, captured, count, False, True, model=model), captured, strict=True
        )
        if isinstance(capture.value, ir.Variable) and id(tensor) in by_handle
    }


def _constant(tensor: Any) -> np.ndarray:
    if not hasattr(tensor, "numpy"):
        raise UnsupportedError(
            f"the function captures {tensor!r} from the graph of another function that is being traced; its value is "
            "not known. Pass it as an argument."
        )
    return np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None)


_NO_VARIABLE = (
    "the function captures the resource {!r}, which is not a variable (a table or an iterator?). Look values up "
    "outside the function and pass what it needs as an argument, or leave the look-up in TensorFlow with "
    "split_host=True."
)


def _variable(
    variable: Any,
    handle: Any,
    taken: dict[str, int],
    values: Mapping[int, Any] | None,
    trains: Trains,
    paths: Mapping[int, str],
) -> ir.Variable:
    """Return a variable with its value: from ``values``, or read now."""
    # ``values`` has the ``id`` of handles as keys. The value is None if ``values`` is None.
    if variable is None:
        data = getattr(handle, "_handle_data", None)
        pairs = list(data.shape_and_type) if data is not None else []
        if len(pairs) != 1:  # tables may have two, for keys and values
            raise UnsupportedError(_NO_VARIABLE.format(handle))
        tf_dtype = tf.dtypes.as_dtype(pairs[0].dtype)
        dtype: Any = dtypes.from_tf(tf_dtype)
        try:
            value = read_value(handle, tf_dtype) if values is not None else None
        except tf.errors.FailedPreconditionError as error:  # the handle is of a resource of another type
            raise UnsupportedError(_NO_VARIABLE.format(handle)) from error
        shape = None if value is None else value.shape
        return ir.Variable(_unique(_name_of(handle), taken), dtype, shape, False, value)
    dtype = dtypes.from_tf(variable.dtype)
    if not isinstance(dtype, np.dtype):
        raise UnsupportedError(f"variable {variable.name!r} holds {dtype}s, which JAX cannot hold.")
    name = _unique(paths.get(id(handle)) or variable.name.split(":")[0], taken)
    trainable = trains(variable)
    value, shape = None, shape_of(variable.shape)
    if values is not None:
        found = values.get(id(handle))
        found = read_value(handle, variable.dtype) if found is None else found
        # TensorFlow reads an uninitialized variable as an empty vector.
        if shape is None or found.shape == shape or variable.shape.is_compatible_with(found.shape):
            value = found if isinstance(found, StoredArray) else Variable(found, trainable, name)
    return ir.Variable(name, dtype, shape, trainable, value)


def _name_of(handle: Any) -> str:
    """Return the name of a variable that has only a handle."""
    # Only the text of an eager handle contains it.
    found = re.search(r'ResourceHandle\(name="([^"]+)/\d+", .*container="Anonymous"', str(handle))
    return "variable" if found is None else found[1]


def _unique(name: str, taken: dict[str, int]) -> str:
    """Return ``name``, or ``name_1`` and so on if earlier variables have that name."""
    unique = name
    while unique in taken:
        unique = f"{name}_{taken[name]}"
        taken[name] += 1
    taken[unique] = 1
    return unique
