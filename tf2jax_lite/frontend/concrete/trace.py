"""Tracing: TensorFlow callables to ConcreteFunctions with the user's signature."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from tf2jax_lite.calling.interface import ImportedFunction
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.config import get_config
from tf2jax_lite.support.errors import InputError, Tf2JaxError

from .concrete_function import load_concrete

_F = TypeVar("_F", bound=Callable[..., Any])


def not_rewritten(fn: _F) -> _F:
    """Keep AutoGraph from rewriting a function and its callees in a ``tf.function``.

    Rewriting the converter takes seconds. Unlike ``tf.autograph.experimental.do_not_convert``, this leaves AutoGraph
    enabled for functions that are traced inside.
    """
    fn.autograph_info__ = {}  # type: ignore[attr-defined]  # what AutoGraph marks its own results with
    return fn


def trace(tf_func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ImportedFunction:
    """Trace a function with arguments and import the result."""
    name = function_name(tf_func)
    if isinstance(tf_func, tf.types.experimental.ConcreteFunction):
        return load_concrete(tf_func, name=name, read_values=_read_values())
    if not callable(tf_func):
        raise InputError(
            f"expected a tf.function, ConcreteFunction, Keras model or layer, tf.Module with __call__, or a callable; "
            f"got {type(tf_func).__name__}."
        )
    function = tf_func if hasattr(tf_func, "get_concrete_function") else _wrap(tf_func, name)
    signature = _signature(function, tf_func)
    try:
        specs = tf.nest.map_structure(_spec, (tuple(args), dict(kwargs)))
        if any(isinstance(leaf, tf.Variable) for leaf in tf.nest.flatten(specs)):
            function, specs = _closed_over_variables(function, specs, name)
        concrete = function.get_concrete_function(*specs[0], **specs[1])
    except Tf2JaxError:
        raise
    except Exception as error:
        raise InputError(f"TensorFlow could not trace {name!r} with these arguments: {error}") from error
    model = getattr(tf_func, "_tf2jax_lite_model", getattr(tf_func, "__self__", tf_func))
    return load_concrete(concrete, signature=signature, name=name, read_values=_read_values(), model=model)


def trace_restored(tf_func: Any) -> ImportedFunction:
    """Import the only signature of a function that was restored from a SavedModel."""
    name, model = function_name(tf_func), tf_func
    if isinstance(tf_func, tf.types.experimental.ConcreteFunction):
        return load_concrete(tf_func, name=name, read_values=_read_values())
    if not hasattr(tf_func, "concrete_functions"):  # an object that was saved with a __call__
        tf_func = getattr(tf_func, "__call__", tf_func)  # noqa: B004
    known = getattr(tf_func, "concrete_functions", None)
    if getattr(tf_func, "input_signature", None) is not None:
        concrete = tf_func.get_concrete_function()
    elif known is not None and len(known) == 1:
        concrete = known[0]
    elif known:
        listed = "\n".join(f"  {c.structured_input_signature}" for c in known)
        raise InputError(
            f"Found {len(known)} concrete functions in {name!r}, one for each signature it was saved with; choose with "
            f"convert({name}, *args) or convert_from_restored(f.get_concrete_function(*args)):\n{listed}"
        )
    elif known is not None:
        raise InputError(
            f"{name!r} was saved without a trace: TensorFlow saves only traces whose arguments it can store. Call "
            "it, or give it an input_signature, before tf.saved_model.save."
        )
    elif isinstance(getattr(tf_func, "signatures", None), Mapping):
        raise InputError(
            f"the restored model has no __call__. Convert one of its functions (convert_from_restored(model.f)), or a "
            f"signature, model.signatures[...]: {', '.join(tf_func.signatures) or 'there are none'}."
        )
    else:
        raise InputError(f"{name!r} did not come out of a SavedModel; use convert() with example arguments.")
    signature = _signature(tf_func, tf_func)
    return load_concrete(concrete, signature=signature, name=name, read_values=_read_values(), model=model)


def function_name(tf_func: Any) -> str:
    """Return a readable name for a callable."""
    for attribute in ("__name__", "name"):
        name = getattr(tf_func, attribute, None)
        if isinstance(name, str) and name:
            return name.removeprefix("__inference_").removeprefix("signature_wrapper_")
    return type(tf_func).__name__


def _read_values() -> bool:
    return not (tf.inside_function() and get_config("skip_variables_evaluation_inside_tf_tracing"))


def _wrap(tf_func: Callable[..., Any], name: str) -> Any:
    if inspect.isfunction(tf_func) or inspect.ismethod(tf_func):
        return tf.function(tf_func)

    # An object with __call__: a wrapper keeps tf.function from inspecting it (Keras layers run autograph themselves).
    def call(*args: Any, **kwargs: Any) -> Any:
        return tf_func(*args, **kwargs)

    call.__name__ = "".join(c if c.isalnum() else "_" for c in name) or "call"
    return tf.function(call, autograph=not _is_keras(tf_func))


@dataclasses.dataclass(frozen=True, eq=False)
class _Held:
    """A placeholder for a variable among a function's arguments."""

    variable: Any


def _closed_over_variables(function: Any, specs: Any, name: str) -> tuple[Any, Any]:
    """Capture the variables among a function's arguments, so that they become params."""
    # Return the function, and its arguments with placeholders for the variables.

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tf.nest.map_structure(lambda x: x.variable if isinstance(x, _Held) else x, (args, kwargs))
        return function(*args, **kwargs)

    call.__name__ = "".join(c if c.isalnum() else "_" for c in name) or "call"
    held = tf.nest.map_structure(lambda x: _Held(x) if isinstance(x, tf.Variable) else x, specs)
    return tf.function(call, autograph=False), held


def _is_keras(value: Any) -> bool:
    return any(c.__module__.split(".")[0] in ("keras", "tf_keras") for c in type(value).__mro__)


def _spec(value: Any) -> Any:
    if not isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
        return value
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise InputError(
            f"TensorFlow has no dtype {value.dtype}: its functions take no typed keys. Pass a key's data, "
            "jax.random.key_data(key); the key that random ops draw from is rng= at the call."
        )
    if isinstance(value, jax.ShapeDtypeStruct) or is_traced(value):
        shape = [d if isinstance(d, int) else None for d in value.shape]  # others are symbolic dimensions of jax.export
        return tf.TensorSpec(shape, tf.dtypes.as_dtype(np.dtype(value.dtype)))
    return np.asarray(value)


def _signature(function: Any, original: Any) -> inspect.Signature | None:
    """Return the Python signature of the original function, without ``self``."""
    if function is not original:
        try:
            found = inspect.signature(original)
        except (TypeError, ValueError):
            return None
        return found if _is_plain(original) else inspect.Signature(_variadic())
    spec = getattr(function, "function_spec", None) or getattr(function, "_function_spec", None)
    full = getattr(spec, "fullargspec", None)
    if full is None:
        return None
    return _from_fullargspec(full)


def _is_plain(original: Any) -> bool:
    return inspect.isfunction(original) or inspect.ismethod(original)


def _variadic() -> list[inspect.Parameter]:
    return [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]


def _from_fullargspec(full: inspect.FullArgSpec) -> inspect.Signature:
    kinds = inspect.Parameter
    defaults = list(full.defaults or ())
    first_default = len(full.args) - len(defaults)
    parameters = [
        kinds(
            name,
            kinds.POSITIONAL_OR_KEYWORD,
            default=defaults[i - first_default] if i >= first_default else kinds.empty,
        )
        for i, name in enumerate(full.args)
    ]
    if full.varargs:
        parameters.append(kinds(full.varargs, kinds.VAR_POSITIONAL))
    own = full.kwonlydefaults or {}
    parameters += [kinds(n, kinds.KEYWORD_ONLY, default=own.get(n, kinds.empty)) for n in full.kwonlyargs]
    if full.varkw:
        parameters.append(kinds(full.varkw, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
