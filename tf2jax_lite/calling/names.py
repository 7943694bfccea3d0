"""Names of parameters for tensors, and of arrays in a file for arguments."""

from __future__ import annotations

import inspect
import keyword
import re
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
    """Return parameters for keyword arguments; ``**kwargs`` for odd names."""
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


def match_names(params: Iterable[str], variables: Iterable[str]) -> dict[str, str]:
    """Return the variables of a model by an artifact's params, matched by name.

    Keras numbers unnamed objects (a Dropout's ``seed_generator_1``) per process: names that differ only in numbers are
    matched by order.
    """
    ours, theirs = set(params), set(variables)
    names = {name: name for name in ours & theirs}
    left, free = _by_bare_name(ours - theirs), _by_bare_name(theirs - ours)
    for bare, group in left.items():
        if len(group) == len(free.get(bare, ())):
            names.update(zip(group, free[bare], strict=True))
    return names


def _by_bare_name(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names by text without number suffix, each in the numbers' order."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"_\d+(?=/|$)", "", name), []).append(name)

    def numbers(name: str) -> list[int]:
        return [int(n or 0) for n in re.findall(r"[^/]*?(?:_(\d+))?(?:/|$)", name)]

    return {bare: sorted(group, key=numbers) for bare, group in found.items()}
