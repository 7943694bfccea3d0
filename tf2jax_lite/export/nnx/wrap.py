"""Makes a `flax.nnx` module of a converted function and its params."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import flatten_params, nest_params, param_path, split_params
from tf2jax_lite.export import codegen
from tf2jax_lite.export.loaded_function import LoadedFunction
from tf2jax_lite.export.symbolic_dims import stage_symbolic
from tf2jax_lite.pipeline.converted_function import AnnotatedFunction, ConvertedFunction
from tf2jax_lite.support.errors import InputError, MissingLibraryError, MissingParamError, Tf2JaxError


def import_nnx() -> Any:
    """Return the module `flax.nnx`."""
    try:
        return importlib.import_module("flax.nnx")
    except ImportError as error:
        raise MissingLibraryError(f"flax.nnx modules need Flax: pip install 'tf2jax-lite[nnx]' ({error})") from error


def to_nnx(jax_fn: Callable[..., Any], params: Mapping[str, Any], *, rngs: Any = None) -> Any:
    """Wrap a converted function as a `flax.nnx.Module`.

    The module's attributes are the params' scopes: ``encoder/query/kernel`` is ``module.encoder.query.kernel``. A name
    that `flax.nnx.Module` uses itself gets an underscore (``train_``). Trainable floating params are `nnx.Param`,
    statistics of batches `nnx.BatchStat`, and all others `NonTrainable`. A call takes the function's arguments,
    returns its results, and writes updated variables back to the module.

    Args:
      jax_fn: a function as `convert` and its kin or `load` return it.
      params: its params, flat or nested (`nest_params`). Arrays, or `jax.ShapeDtypeStruct` for an abstract module.
      rngs: `nnx.Rngs`, or a stream of it, for functions that draw random numbers; the stream is ``dropout``, or else
        the default one. A call's keyword ``rngs`` replaces it: `nnx.Rngs`, a stream, or a key.

    Returns:
      The module. It holds the params' values; later changes of ``params`` do not matter.

    Raises:
      InputError: ``jax_fn`` is no converted function, ``rngs`` are none, or it is not known which params train.
      MissingLibraryError: flax is not installed.
      MissingParamError: a variable of the function is not in ``params``.

    Example:
      >>> module = tf2jax.to_nnx(*tf2jax.convert(model, tf.TensorSpec([None, 3])))
      >>> results = module(x)
    """
    import_nnx()
    from . import modules

    converted = jax_fn.converted if isinstance(jax_fn, AnnotatedFunction) else None
    if converted is not None:
        name, needs_key = converted.interface.name, bool(converted.program.random_nodes)
    elif isinstance(jax_fn, LoadedFunction):
        name, needs_key = jax_fn.interface.name, jax_fn.needs_key
    else:
        raise InputError(
            f"to_nnx takes a function as tf2jax_lite.convert or tf2jax_lite.load returns it, got "
            f"{type(jax_fn).__name__}."
        )
    params = flatten_params(params)
    trainable, others = split_params(params)
    if converted is not None:
        missing = [variable for variable in converted.variables if variable not in params]
        if missing:
            raise MissingParamError(f"{name}: params lack {len(missing)} variable(s): {', '.join(missing[:10])}")
    statistics = _statistics(jax_fn, converted, params, others)
    names = list(params)
    variables = {
        variable: (_kind(modules, variable, value, trainable, statistics), param_path(variable, names), _array(value))
        for variable, value in params.items()
    }
    return modules.ConvertedModule(jax_fn, name, variables, needs_key=needs_key, rngs=rngs)


def _kind(modules: Any, name: str, value: Any, trainable: Mapping[str, Any], statistics: frozenset[str]) -> Any:
    # TensorFlow's variables train unless told otherwise, counters, too; those have no gradients.
    if name in trainable and jnp.issubdtype(value.dtype, jnp.inexact):
        return modules.nnx.Param
    return modules.nnx.BatchStat if name in statistics else modules.NonTrainable


def _array(value: Any) -> Any:
    return value if isinstance(value, jax.ShapeDtypeStruct) else jnp.asarray(value)


def _statistics(
    jax_fn: Any, converted: ConvertedFunction | None, params: Mapping[str, Any], others: Mapping[str, Any]
) -> frozenset[str]:
    """Return the non-trainable variables that hold statistics of batches."""
    if converted is None:
        return jax_fn.moving_statistics & others.keys()
    if not any(jnp.issubdtype(value.dtype, jnp.floating) for value in others.values()):
        return frozenset()
    try:
        staged = stage_symbolic(converted, None, params)
        found = codegen.moving_statistics(
            codegen.from_jaxpr(staged.jaxpr),
            [str(variable) for variable in staged.variables],
            {str(variable): len(staged.results) + i for i, variable in enumerate(staged.updates)},
        )
    except Tf2JaxError:  # it cannot be traced without arguments: of unknown rank, for example
        return frozenset()
    return frozenset(np.intersect1d(list(found), list(map(str, others))).tolist())


def as_function(
    module: type, to_variables: Callable[[Any], Any], updates: Collection[str], *, training: bool
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a class of exported source as a function.

    Args:
      to_variables: the source's function that makes `nnx.Variable` of arrays.
      training: whether the function is the class's in training mode.

    Returns:
      ``function(params, *arguments, rng=key)``, which returns the results and the updated nested params.
    """
    nnx = import_nnx()

    def function(params: Mapping[str, Any], *arguments: Any, **key: Any) -> tuple[Any, dict[str, Any]]:
        variables = to_variables(params)
        model = module.from_params(variables)  # type: ignore[attr-defined]
        (model.train if training else model.eval)()
        streams = [node for _, node in nnx.iter_graph(model) if isinstance(node, nnx.RngStream)] if key else []
        for number, stream in enumerate(streams):
            stream.key[...], stream.count[...] = jax.random.fold_in(key["rng"], number), 0
        draws = "rngs" in inspect.signature(model.__call__).parameters
        results = model(*arguments, **({"rngs": key["rng"]} if draws else {}))
        held = flatten_params(variables)
        after = {name: held[name][...] if name in updates else value for name, value in flatten_params(params).items()}
        return results, nest_params(after)

    return function
