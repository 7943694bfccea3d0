"""Names of parameters for tensors, and of arrays in a file for arguments."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Mapping
from typing import Any

from .structures import TensorArgument


def parameter_name(text: str) -> str:
    """Return ``text`` as a valid name of a Python parameter."""
    name = text if text.isidentifier() else "".join(c if c.isalnum() else "_" for c in text)
    if not name.isidentifier():
        name = f"input_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def parameter_names(texts: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a unique parameter name for each text, none of them in ``taken``."""
    names: list[str] = []
    others = set(taken)
    for text in texts:
        name = parameter_name(text)
        while name in others:
            name += "_"
        others.add(name)
        names.append(name)
    return names


def keyword_parameters(names: Iterable[str], kind: Any) -> list[inspect.Parameter]:
    """Return parameters for keyword arguments; ``**kwargs`` for odd names.

    Args:
      names: unique texts.
      kind: the kind of the other parameters, such as ``inspect.Parameter.KEYWORD_ONLY``.
    """
    names = list(names)
    parameters = [inspect.Parameter(name, kind) for name in names if parameter_name(name) == name]
    if len(parameters) < len(names):
        rest = "kwargs"
        while rest in names:
            rest += "_"
        parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    return parameters


def accepted_names(path: str, spec: TensorArgument) -> list[str]:
    """Return an argument's array names: its path, tensor name, last part of path."""
    return list(dict.fromkeys(filter(None, (path, spec.name, path.rsplit("/", 1)[-1]))))


def match_arrays(
    arguments: Mapping[str, TensorArgument], arrays: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Match arrays to arguments by `accepted_names`; any name matches a single one.

    Args:
      arguments: by path, see `Interface.tensors`.
      arrays: by name.

    Returns:
      Names of arrays by path of the argument, and the names of arrays without an argument.
    """
    if len(arguments) == len(arrays) == 1:
        return dict(zip(arguments, arrays, strict=True)), []
    left, chosen = dict.fromkeys(arrays), {}
    for path, spec in arguments.items():
        for name in accepted_names(path, spec):
            if name in left:
                chosen[path] = name
                del left[name]
                break
    return chosen, list(left)
