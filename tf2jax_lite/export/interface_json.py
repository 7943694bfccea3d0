"""Encode interfaces of functions as JSON, and decodes them with checks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.structures import OutputRef, TensorArgument, iter_arguments
from tf2jax_lite.support.errors import ExportError

_KINDS = {
    "positional_only": inspect.Parameter.POSITIONAL_ONLY,
    "positional": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "keyword_only": inspect.Parameter.KEYWORD_ONLY,
    "var_positional": inspect.Parameter.VAR_POSITIONAL,
    "var_keyword": inspect.Parameter.VAR_KEYWORD,
}
_MAX_RANK = 64  # NumPy's
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_interface(interface: Interface) -> dict[str, Any]:
    """Return an interface as JSON data."""
    parameters = []
    for parameter in interface.signature.parameters.values():
        entry: dict[str, Any] = {"name": parameter.name, "kind": _NAMES[parameter.kind]}
        if parameter.default is not parameter.empty and _is_plain(parameter.default):
            entry["default"] = parameter.default
        parameters.append(entry)
    return {
        "name": interface.name,
        "parameters": parameters,
        "args": [encode(a) for a in interface.args],
        "kwargs": {k: encode(v) for k, v in interface.kwargs.items()},
        "results": encode(interface.outputs),
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def encode(item: Any) -> Any:
    """Return a structure as JSON data."""
    if isinstance(item, TensorArgument):
        shape = None if item.shape is None else list(item.shape)
        dtype = None if item.dtype is None else np.dtype(item.dtype).name
        tensor = {"index": item.index, "name": item.name, "dtype": dtype, "shape": shape}
        return {"tensor": tensor if item.value is None else tensor | {"value": list(item.value)}}
    if isinstance(item, OutputRef):
        return {"result": item.index}
    if isinstance(item, Mapping):
        return {"dict": [[str(k), encode(v)] for k, v in item.items()]}
    if isinstance(item, (list, tuple)):
        return {"list" if isinstance(item, list) else "tuple": [encode(v) for v in item]}
    return {"literal": item if _is_plain(item) else repr(item)}


def decode_interface(data: Any) -> Interface:
    """Return the interface that JSON data describes."""
    try:
        parameters = [
            inspect.Parameter(_text(p["name"]), _KINDS[p["kind"]], default=p.get("default", inspect.Parameter.empty))
            for p in data["parameters"]
        ]
        args = tuple(decode(a, 0) for a in data["args"])
        kwargs = {_text(k): decode(v, 0) for k, v in data["kwargs"].items()}
        indices = sorted(argument.index for argument in iter_arguments([args, kwargs]))
        count = len(indices)
        if indices != list(range(count)):
            raise ValueError(f"its arrays have the numbers {indices[:10]}")
        signature = inspect.Signature(parameters)
        return Interface(_text(data["name"]), signature, args, kwargs, count, decode(data["results"], 0))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ExportError(f"the metadata's interface cannot be read: {type(error).__name__}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def decode(data: Any, depth: int = 0) -> Any:
    """Decode the result of `encode`; arrays are `OutputRef` leaves."""
    if depth > 64:
        raise ValueError("nested too deeply")
    ((kind, value),) = data.items()
    if kind == "tensor":
        dtype = None if value["dtype"] is None else np.dtype(_text(value["dtype"]))
        shape = None if value["shape"] is None else tuple(None if d is None else int(d) for d in value["shape"])
        if shape is not None and (len(shape) > _MAX_RANK or any(d is not None and d < 0 for d in shape)):
            raise ValueError(f"an array of the shape {value['shape'][:8]}")
        known = None if value.get("value") is None else tuple(int(v) for v in value["value"])
        return TensorArgument(int(value["index"]), _text(value["name"]), dtype, shape, known)
    if kind == "result":
        return OutputRef(int(value))
    if kind == "dict":
        return {_text(k): decode(v, depth + 1) for k, v in value}
    if kind in ("list", "tuple"):
        items = [decode(v, depth + 1) for v in value]
        return items if kind == "list" else tuple(items)
    if kind == "literal":
        return value
    raise ValueError(f"unknown kind {kind!r}")
