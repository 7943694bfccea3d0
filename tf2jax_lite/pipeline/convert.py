"""The converter's front door: TensorFlow functions, models and files in, pure JAX functions out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from tf2jax_lite import ir
from tf2jax_lite.frontend.concrete import concrete_function as concrete_loading
from tf2jax_lite.frontend.concrete import trace
from tf2jax_lite.frontend.runtime import host_function, string_evaluator, xla_compiler
from tf2jax_lite.frontend.runtime.host_function import HostFunction
from tf2jax_lite.frontend.saved import graph_def_file, saved_model
from tf2jax_lite.frontend.saved import meta_graph as tf1
from tf2jax_lite.ir.verify import check_calls
from tf2jax_lite.lowering import Program
from tf2jax_lite.lowering.interpreter.int64_narrowing import warn_of_narrowing
from tf2jax_lite.passes.canonicalize import (
    calls_and_for,
    effectful_conditions,
    select_implementation,
    stacks_to_lists,
    tensor_array_stack,
)
from tf2jax_lite.passes.control_flow_v1 import functionalize
from tf2jax_lite.passes.optimize import (
    cse,
    dead_values,
    fold_clamps,
    gather_idiom,
    list_element_grads,
    narrow_constants,
    relu_idiom,
    repeat_idiom,
    split_loop_bounds,
)
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InputError, UnsupportedError
from tf2jax_lite.support.limits import reading

from .converted_function import AnnotatedFunction, ConvertedFunction

__all__ = [
    "convert",
    "convert_from_restored",
    "convert_functional",
    "convert_functional_from_restored",
    "convert_graph_def",
    "convert_saved_model",
]

_log = logging.getLogger("tf2jax_lite")


@trace.not_rewritten
def convert(tf_func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Converts a TensorFlow function to a pure JAX function and its params.

    Args:
      tf_func: a ``tf.function``, a ``ConcreteFunction``, a Keras model or layer, a ``tf.Module`` with ``__call__``, or
        a plain callable.
      *args: positional arguments to trace it with: ``tf.TensorSpec``s, arrays or tensors (only their shape and dtype
        count), Python values (baked in as literals), or nested structures of these. A ConcreteFunction needs none.
      **kwargs: keyword arguments to trace it with.

    Returns:
      ``(jax_fn, params)``. ``jax_fn(params, *args, rng=None, **kwargs)`` returns ``(results, updated params)``; it is
      pure, and works under ``jax.jit``, ``grad``, ``vmap`` and ``jax.export``. ``params`` is a flat dict from variable
      name to array.

    Raises:
      UnsupportedOpsError: the graph has ops without an implementation; all are listed.
      UnsupportedError: something else in it has no counterpart in JAX.
      InputError: TensorFlow cannot trace it with these arguments.
    """
    loaded = trace.trace(tf_func, args, kwargs)
    converted = _converted(loaded)
    return _with_params(converted, loaded), converted.params()


@trace.not_rewritten
def convert_functional(tf_func: Callable[..., Any], *args: Any, **kwargs: Any) -> AnnotatedFunction:
    """Converts a TensorFlow function without variables: ``jax_fn(*args, rng=None, **kwargs)`` returns its results.

    Args:
      tf_func: as for `convert`.
      *args: as for `convert`.
      **kwargs: as for `convert`.

    Raises:
      UnsupportedError: as for `convert`, or the function reads variables.
    """
    loaded = trace.trace(tf_func, args, kwargs)
    return _without_params(_converted(loaded), loaded)


@trace.not_rewritten
def convert_from_restored(tf_func: Any) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Converts a function of a restored SavedModel (``tf.saved_model.load(path).f``); see `convert`.

    Raises:
      InputError: it was saved with several signatures, so that one has to be chosen.
    """
    loaded = trace.trace_restored(tf_func)
    converted = _converted(loaded)
    return _with_params(converted, loaded), converted.params()


@trace.not_rewritten
def convert_functional_from_restored(tf_func: Any) -> AnnotatedFunction:
    """Converts a function without variables of a restored SavedModel; see `convert_functional`."""
    loaded = trace.trace_restored(tf_func)
    return _without_params(_converted(loaded), loaded)


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
    """Converts one signature of a SavedModel directory; see `convert`.

    Args:
      path: the directory that holds ``saved_model.pb``.
      signature: the signature's name.
      tags: which of the MetaGraphs to load; needed only if there are several.
      split_host: leave strings, decoders and tables in front of the model in TensorFlow, and convert the core.

    Returns:
      ``(jax_fn, params)`` as `convert` does; with ``split_host`` ``(host_fn, jax_fn, params)``, so that
      ``jax_fn(params, **host_fn(*args))`` gives what the signature gives.

    Raises:
      InputError: ``path`` is no path.
      InvalidModelError: the directory holds no readable SavedModel, or not that signature or those tags.
      LimitError: it is larger than the options allow.
      UntrustedError: TensorFlow would have to run code or touch files that ``config.trusted`` does not name.
      UnsupportedError: as for `convert`; or the model cannot be split, since trained variables stand before strings.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path is the directory of a SavedModel, got {type(path).__name__}.")
    with reading(os.fspath(path)):
        meta_graph = saved_model.meta_graph(path, tags)
        if split_host:
            return split_concrete(saved_model.signature(saved_model.load(path, tags), signature, path), signature)
        if tf1.is_tf1(meta_graph):
            loaded = tf1.load_signature(path, meta_graph, signature)
        else:
            function = saved_model.signature(saved_model.load(path, tags), signature, path)
            loaded = concrete_loading.load_concrete(function, name=signature)
        converted = _converted(loaded)
    return _with_params(converted, loaded), converted.params()


def split_concrete(function: Any, name: str) -> tuple[HostFunction, AnnotatedFunction, dict[str, Any]]:
    """Converts a ConcreteFunction in two parts; see `convert_saved_model` with ``split_host=True``."""
    host_fn, core = host_function.load_split(function, name=name)
    converted = _converted(core)
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
    """Converts a GraphDef: a frozen one, or one whose variables are in a checkpoint.

    Args:
      graph_def: a GraphDef proto, its serialized bytes, or a path to a ``.pb`` or ``.meta`` file.
      inputs: tensor names (``"x:0"`` or ``"x"``) that become arguments, in order; they need not be placeholders.
      outputs: tensor names that are returned, in order; one name alone (not in a list) gives one bare result. A node
        without results (a training step), or any as ``"^name"``, runs for what it does: variables that it sets are in
        the new params, and its result is None.
      constants_as_params: make floating constants with more than one element params, named after their nodes.
      checkpoint: prefix of the checkpoint that holds the graph's variables; the one beside a ``.meta`` file by default.
        Without one, variables are params without values.

    Raises:
      InvalidModelError: the proto is damaged, or names a node that is not there.
      InputError: ``inputs`` or ``outputs`` are no names.
    """
    where = os.fspath(graph_def) if isinstance(graph_def, (str, os.PathLike)) else "GraphDef"
    with reading(where):
        loaded = graph_def_file.load_frozen(
            graph_def, inputs, outputs, constants_as_params=constants_as_params, checkpoint=checkpoint
        )
        converted = _converted(loaded)
    return _with_params(converted, loaded), converted.params()


def _converted(loaded: concrete_loading.Loaded) -> ConvertedFunction:
    config = current_config()
    check_calls(loaded.graph)
    graph = select_implementation.prefer_cpu(calls_and_for.as_plain_callers(loaded.graph))
    graph = effectful_conditions.test_in_bodies(functionalize.functionalize(graph))
    graph = tensor_array_stack.stack_arrays(stacks_to_lists.stacks_as_lists(graph))
    graph = list_element_grads.add_to_elements(graph)
    graph = repeat_idiom.join_repeats(fold_clamps.settle_clamps(split_loop_bounds.split_limits(graph)))
    graph = gather_idiom.gather_pieces(graph)
    graph, changed = narrow_constants.narrow_constants(relu_idiom.infer_relu(graph, config), config)
    graph = dead_values.drop_unread(cse.join_twins(graph))
    compiler = xla_compiler.BridgeCompiler() if config.xla_fallback else None
    program = Program(graph, config, compiler, string_evaluator.StringEvaluator(config.max_constant_bytes))
    if program.fallback_nodes:
        _log.warning(
            "%s: TensorFlow's XLA bridge compiles %d node(s) without an implementation: %s",
            loaded.interface.name,
            len(program.fallback_nodes),
            ", ".join(program.fallback_nodes),
        )
    converted = ConvertedFunction(program, loaded.interface, config, loose=changed)
    warn_of_narrowing(program, loaded.interface.name)
    return converted


def _with_params(converted: ConvertedFunction, loaded: concrete_loading.Loaded) -> AnnotatedFunction:
    interface = converted.interface

    def jax_func(*args: Any, **kwargs: Any) -> Any:
        params, args = interface.take_params(args, kwargs)
        return converted.call(params, args, kwargs, interface.take_key(args, kwargs))

    return _annotated(jax_func, converted, loaded, params=True)


def _without_params(converted: ConvertedFunction, loaded: concrete_loading.Loaded) -> AnnotatedFunction:
    if converted.variables:
        names = sorted(converted.variables)
        raise UnsupportedError(
            f"{converted.interface.name} uses {len(names)} variable(s) ({', '.join(names[:5])}"
            f"{', ...' if len(names) > 5 else ''}); convert it with convert(), which returns them as params."
        )

    def jax_func(*args: Any, **kwargs: Any) -> Any:
        return converted.call({}, args, kwargs, converted.interface.take_key(args, kwargs))[0]

    return _annotated(jax_func, converted, loaded, params=False)


def _annotated(
    fn: Any, converted: ConvertedFunction, loaded: concrete_loading.Loaded, *, params: bool
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
    fn.converted = converted
    return AnnotatedFunction(
        fn,
        loaded.structured_inputs,
        loaded.structured_outputs,
        interface.signature,
        xla_fallback_nodes=converted.program.fallback_nodes,
    )


def graph_of(fn: AnnotatedFunction) -> ir.Graph:
    """Returns the ir graph behind a converted function."""
    converted: ConvertedFunction = fn.fn.converted  # type: ignore[attr-defined]
    return converted.program.graph
