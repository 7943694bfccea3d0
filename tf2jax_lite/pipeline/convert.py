"""The driver: TensorFlow functions, models and files to pure JAX functions.

A conversion has four steps, in this order:

1. Import: the frontend reads a function into a graph and an interface. `convert`, `convert_saved_model` and their
   siblings differ in this step only.
2. Verify: `check_calls` raises on calls that cannot be traced.
3. Passes: `run_passes` rewrites the graph (see `tf2jax_lite.passes.manager`).
4. Plan: `Program` checks that every op has an implementation, and plans each function.

`steps` has the last three, which the inspector, host splitting and initializers of variables run as well.
`convert_imported` makes the function that users call.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import ImportedFunction
from tf2jax_lite.frontend.concrete import concrete_function, trace
from tf2jax_lite.frontend.concrete.saved_signatures import signature_loader
from tf2jax_lite.frontend.runtime.host_function import HostFunction
from tf2jax_lite.frontend.runtime.xla_compiler import BridgeCompiler
from tf2jax_lite.frontend.saved import graph_def_file, saved_model
from tf2jax_lite.lowering.interpreter.int64_narrowing import warn_of_narrowing
from tf2jax_lite.passes.optimize.narrow_constants import narrowed_dtypes
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InputError, UnsupportedError
from tf2jax_lite.support.limits import reading

from . import initial_values, split_host
from .converted_function import AnnotatedFunction, ConvertedFunction
from .steps import plan_graph, verified_graph

_log = logging.getLogger("tf2jax_lite")


@trace.not_rewritten
def convert(tf_func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Convert a TensorFlow function to a pure JAX function and its params.

    Args:
      tf_func: a ``tf.function``, a ``ConcreteFunction``, a Keras model or layer, a ``tf.Module`` with ``__call__``, or
        a plain callable.
      *args: positional arguments to trace it with: ``tf.TensorSpec``s, arrays or tensors (for their shape and dtype),
        Python values (baked in as literals), or nested structures of these. A ConcreteFunction needs none.
      **kwargs: keyword arguments to trace it with.

    Returns:
      ``(jax_fn, params)``. ``jax_fn(params, *args, rng=None, **kwargs)`` returns ``(results, updated params)``; it is
      pure, and works under ``jax.jit``, ``grad``, ``vmap`` and ``jax.export``. ``params`` is a flat dict from variable
      name to array.

    Raises:
      UnsupportedOpsError: the graph has ops without an implementation; all are listed.
      UnsupportedError: another construct has no counterpart in JAX.
      InputError: TensorFlow cannot trace it with these arguments.

    Example:
      >>> jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
      >>> results, params = jax.jit(jax_fn)(params, x)
    """
    imported = trace.trace(tf_func, args, kwargs)
    converted = convert_imported(imported)
    return _with_params(converted, imported), converted.params()


@trace.not_rewritten
def convert_functional(tf_func: Callable[..., Any], *args: Any, **kwargs: Any) -> AnnotatedFunction:
    """Convert a function without variables to ``jax_fn(*args, rng=None, **kwargs)``.

    Args:
      tf_func: as for `convert`.
      *args: as for `convert`.
      **kwargs: as for `convert`.

    Returns:
      The function. It returns the results alone, in the structure of ``tf_func``.

    Raises:
      UnsupportedError: as for `convert`, or the function reads variables.

    Example:
      >>> jax_fn = tf2jax.convert_functional(tf.function(tf.nn.relu), tf.TensorSpec([None]))
      >>> jax_fn(np.float32([-1, 2]))
      Array([0., 2.], dtype=float32)
    """
    imported = trace.trace(tf_func, args, kwargs)
    return _without_params(convert_imported(imported), imported)


@trace.not_rewritten
def convert_from_restored(tf_func: Any) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Convert a function of ``tf.saved_model.load(path)``; see `convert`.

    Args:
      tf_func: a restored function or signature, with one signature.

    Returns:
      ``(jax_fn, params)``, as `convert` does.

    Raises:
      InputError: the function was saved with several signatures: choose one.

    Example:
      >>> restored = tf.saved_model.load("MODEL")
      >>> jax_fn, params = tf2jax.convert_from_restored(restored.signatures["serving_default"])
    """
    imported = trace.trace_restored(tf_func)
    converted = convert_imported(imported)
    return _with_params(converted, imported), converted.params()


@trace.not_rewritten
def convert_functional_from_restored(tf_func: Any) -> AnnotatedFunction:
    """Convert a restored function without variables; see `convert_functional`.

    Args:
      tf_func: as for `convert_from_restored`.

    Returns:
      The function, as `convert_functional` does.

    Raises:
      InputError: as for `convert_from_restored`.
      UnsupportedError: as for `convert_functional`.

    Example:
      >>> restored = tf.saved_model.load("RELU")  # without variables
      >>> jax_fn = tf2jax.convert_functional_from_restored(restored.signatures["serving_default"])
      >>> results = jax_fn(x=np.float32([-1, 2]))
    """
    imported = trace.trace_restored(tf_func)
    return _without_params(convert_imported(imported), imported)


@overload
def convert_saved_model(
    path: str | os.PathLike[str],
    signature: str = "serving_default",
    tags: Sequence[str] | str | None = None,
    *,
    split_host: Literal[False] = False,
) -> tuple[AnnotatedFunction, dict[str, Any]]: ...


@overload
def convert_saved_model(
    path: str | os.PathLike[str],
    signature: str = "serving_default",
    tags: Sequence[str] | str | None = None,
    *,
    split_host: Literal[True],
) -> tuple[HostFunction, AnnotatedFunction, dict[str, Any]]: ...


@trace.not_rewritten
def convert_saved_model(
    path: str | os.PathLike[str],
    signature: str = "serving_default",
    tags: Sequence[str] | str | None = None,
    *,
    split_host: bool = False,
) -> Any:
    """Convert one signature of a SavedModel directory; see `convert`.

    Args:
      path: the directory that holds ``saved_model.pb``.
      signature: the signature's name.
      tags: tags of the MetaGraph to load; needed only if there are several.
      split_host: leave strings, decoders and tables before the model in TensorFlow, and convert the core.

    Returns:
      ``(jax_fn, params)`` as `convert` does; with ``split_host`` ``(host_fn, jax_fn, params)``, so that
      ``jax_fn(params, **host_fn(*args))`` returns the results of the signature.

    Raises:
      InputError: ``path`` is not a path.
      InvalidModelError: the directory has no readable SavedModel, or no such signature or tags.
      LimitError: the model is larger than the options allow.
      UntrustedError: loading would run code or touch files that ``config.trusted`` does not name.
      UnsupportedError: as for `convert`; or the model cannot be split, as a string op depends on trained variables.

    Example:
      >>> jax_fn, params = tf2jax.convert_saved_model("MODEL", "serving_default")
      >>> results, params = jax_fn(params, x=x)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path is the directory of a SavedModel, got {type(path).__name__}.")
    if not split_host:
        return signature_converter(path, tags)(signature)
    with reading(os.fspath(path)):
        return split_concrete(saved_model.signature(saved_model.load(path, tags), signature, path), signature)


def signature_converter(
    path: str | os.PathLike[str], tags: Sequence[str] | str | None = None, *, stored: bool = False
) -> Callable[[str], tuple[AnnotatedFunction, dict[str, Any]]]:
    """Return a function that converts signatures of a model, which is loaded once.

    Args:
      stored: params of real numbers are `StoredArray`s, which stay in the checkpoint; only `export` takes them.
    """
    with reading(os.fspath(path)):
        load = signature_loader(path, tags, initial_value, stored=stored)

    def convert_signature(name: str) -> tuple[AnnotatedFunction, dict[str, Any]]:
        with reading(os.fspath(path)):
            imported = load(name)
            converted = convert_imported(imported)
        return _with_params(converted, imported), converted.params()

    return convert_signature


def split_concrete(function: Any, name: str) -> tuple[HostFunction, AnnotatedFunction, dict[str, Any]]:
    """Convert in two parts; see `convert_saved_model` with ``split_host=True``.

    Returns:
      ``(host_fn, jax_fn, params)``.
    """
    imported = concrete_function.load_concrete(function, name=name, opaque=True)
    # The prefix runs in TensorFlow and keeps its ops; the partition only needs a graph without control flow v1.
    graph = verified_graph(imported.graph, current_config(), only=("legacy_tensor_arrays", "functionalize"))
    host_fn, core = split_host.split_imported(function, dataclasses.replace(imported, graph=graph))
    converted = convert_imported(core)
    annotated = _with_params(converted, core)
    annotated.host = host_fn
    return host_fn, annotated, converted.params()


@trace.not_rewritten
def convert_graph_def(
    graph_def: Any,
    inputs: Sequence[str] | str,
    outputs: Sequence[str] | str,
    *,
    constants_as_params: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Convert a GraphDef: a frozen one, or one whose variables are in a checkpoint.

    Args:
      graph_def: a GraphDef proto, its serialized bytes, or a path to a ``.pb`` or ``.meta`` file.
      inputs: tensor names (``"x:0"`` or ``"x"``) that become arguments, in order; they need not be placeholders.
      outputs: tensor names that are returned, in order; a single name (not in a list) returns a bare result. A node
        without results (a training step), or any node as ``"^name"``, runs for its side effects: variables that it
        assigns are in the updated params, and its result is None.
      constants_as_params: make float constants with more than one element params, named after their nodes.
      checkpoint: prefix of the checkpoint that holds the graph's variables; the one beside a ``.meta`` file by default.
        Without one, variables are params without values.

    Returns:
      ``(jax_fn, params)``, as `convert` does; the arguments are in the order of ``inputs``.

    Raises:
      InvalidModelError: the proto is damaged, or a named node does not exist.
      InputError: ``inputs`` or ``outputs`` are not names.

    Example:
      >>> jax_fn, params = tf2jax.convert_graph_def("frozen.pb", inputs=["x"], outputs="probs")
      >>> probs, params = jax_fn(params, x)
    """
    where = os.fspath(graph_def) if isinstance(graph_def, (str, os.PathLike)) else "GraphDef"
    with reading(where):
        imported = graph_def_file.load_frozen(
            graph_def, inputs, outputs, constants_as_params=constants_as_params, checkpoint=checkpoint
        )
        converted = convert_imported(imported)
    return _with_params(converted, imported), converted.params()


def convert_imported(imported: ImportedFunction) -> ConvertedFunction:
    """Return an imported function as a function of params and arguments."""
    config = current_config()
    program = plan_graph(imported.graph, config, BridgeCompiler() if config.xla_fallback else None)
    if program.fallback_nodes:
        _log.warning(
            "%s: TensorFlow's XLA bridge compiles %d node(s) without an implementation: %s",
            imported.interface.name,
            len(program.fallback_nodes),
            ", ".join(program.fallback_nodes),
        )
    converted = ConvertedFunction(program, imported.interface, config, promote_dtypes=bool(narrowed_dtypes(config)))
    warn_of_narrowing(program, imported.interface.name)
    return converted


def initial_value(graph_def: Any, variable: str) -> Any:
    """Return the value that an initializer gives a variable; see `initial_values`."""
    config = current_config()
    return initial_values.initial_value(graph_def, variable, lambda graph: plan_graph(graph, config))


def _with_params(converted: ConvertedFunction, imported: ImportedFunction) -> AnnotatedFunction:
    interface = converted.interface

    def taken(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        params, args = interface.take_params(args, kwargs)
        return params, args, kwargs, interface.take_key(args, kwargs)

    def jax_func(*args: Any, **kwargs: Any) -> Any:
        return converted.call(*taken(args, kwargs))

    def sizes(*args: Any, **kwargs: Any) -> Any:
        return converted.sizes(*taken(args, kwargs))

    return _annotated(jax_func, sizes, converted, imported, params=True)


def _without_params(converted: ConvertedFunction, imported: ImportedFunction) -> AnnotatedFunction:
    if converted.variables:
        names = sorted(converted.variables)
        raise UnsupportedError(
            f"{converted.interface.name} uses {len(names)} variable(s) ({', '.join(names[:5])}"
            f"{', ...' if len(names) > 5 else ''}); convert it with convert(), which returns them as params."
        )

    def jax_func(*args: Any, **kwargs: Any) -> Any:
        return converted.call({}, args, kwargs, converted.interface.take_key(args, kwargs))[0]

    def sizes(*args: Any, **kwargs: Any) -> Any:
        return converted.sizes({}, args, kwargs, converted.interface.take_key(args, kwargs))

    return _annotated(jax_func, sizes, converted, imported, params=False)


def _annotated(
    fn: Any, sizes: Callable[..., Any], converted: ConvertedFunction, imported: ImportedFunction, *, params: bool
) -> AnnotatedFunction:
    interface = converted.interface
    fn.__name__ = fn.__qualname__ = interface.name
    random = converted.program.random_nodes
    fn.__signature__ = interface.call_signature(params=params, rng=bool(random))
    lines = [f"{interface.name}, converted from TensorFlow. {interface.expected()}"]
    if random:
        lines.append(f"Draws random numbers in {len(random)} node(s): call with rng=jax.random.key(seed).")
    if params:
        lines.append("Returns (results, updated params).")
    fn.__doc__ = "\n\n".join(lines)
    return AnnotatedFunction(
        fn,
        converted,
        imported.structured_inputs,
        imported.structured_outputs,
        interface.signature,
        sizes=sizes,
        xla_fallback_nodes=converted.program.fallback_nodes,
        layer_stacks=converted.stacks,
    )


def graph_of(fn: AnnotatedFunction) -> ir.Graph:
    """Return the IR graph of a converted function, after all passes."""
    return fn.converted.program.graph
