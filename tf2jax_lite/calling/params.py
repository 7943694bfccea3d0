"""Params: a dict from variable name to array, with a flag for trainable ones.

Functions that scan over layers take the params of equal layers stacked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import InputError, MissingParamError


class Variable(np.ndarray):
    """A variable's value at conversion: an array with its name and trainable flag.

    Attributes:
      trainable: whether TensorFlow trains the variable.
      name: the variable's name.

    Example:
      >>> weights = tf2jax.Variable(np.zeros(2), trainable=True, name="weights")
      >>> weights.assign(np.ones(2)).trainable
      True
    """

    trainable: bool = False
    name: str = ""

    def __new__(cls, value: Any, trainable: bool = False, name: str = "") -> Variable:
        """Return ``value``, anything ``np.asarray`` takes, uncopied as a variable."""
        array = np.asarray(value).view(cls)
        array.trainable = trainable
        array.name = name
        return array

    def assign(self, value: Any) -> Variable:
        """Return ``value`` as a variable with this one's name and ``trainable``."""
        return Variable(value, self.trainable, self.name)

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, Variable):
            self.trainable = obj.trainable
            self.name = obj.name

    def __reduce__(self) -> Any:
        # NumPy's own pickling drops attributes.
        return Variable, (np.asarray(self), self.trainable, self.name)

    def __repr__(self) -> str:
        return f"Variable(name={self.name!r}, trainable={self.trainable}, numpy={np.asarray(self)!r})"


class VariableName(str):
    """A key of ``params``: a name with a flag that survives ``jit`` and ``grad``.

    Attributes:
      trainable: whether TensorFlow trains the variable.

    Example:
      >>> name = tf2jax.VariableName("weights", trainable=True)
      >>> tf2jax.split_params({name: np.zeros(2)})
      ({'weights': array([0., 0.])}, {})
    """

    trainable: bool

    def __new__(cls, name: str, trainable: bool = False) -> VariableName:
        """Return the name as a key."""
        key = super().__new__(cls, name)
        key.trainable = trainable
        return key

    def __reduce__(self) -> Any:
        return VariableName, (str(self), self.trainable)


def is_trainable(name: str, value: Any) -> bool | None:
    """Return whether a variable trains; None if no flag is set on key or value."""
    found = getattr(name, "trainable", None)
    return getattr(value, "trainable", None) if found is None else found


def split_params(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split params into those that train and the others.

    Args:
      params: params as returned by `convert` or by a converted function.

    Returns:
      ``(trainable, other)``, two dicts of the same kind.

    Raises:
      InputError: neither the key nor the value of a param has the flag.

    Example:
      >>> trainable, other = tf2jax.split_params(params)
      >>> optimizer_state = optax.adam(1e-3).init(trainable)
    """
    unknown = [str(name) for name, value in params.items() if is_trainable(name, value) is None]
    if unknown:
        listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise InputError(
            f"whether these params train is not known: {listed}. Pass params as convert() returned them, or as a "
            "converted function returned them: their keys are tf2jax_lite.VariableName and carry it."
        )
    trainable = {name: value for name, value in params.items() if is_trainable(name, value)}
    return trainable, {name: value for name, value in params.items() if name not in trainable}


def merge_params(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the parts of `split_params`.

    Raises:
      InputError: a variable is in more than one part.

    Example:
      >>> trainable, other = tf2jax.split_params(params)
      >>> loss = lambda trainable: jax_fn(tf2jax.merge_params(trainable, other), x)[0].sum()
      >>> grads = jax.grad(loss)(trainable)
    """
    merged: dict[str, Any] = {}
    for part in parts:
        twice = merged.keys() & part.keys()
        if twice:
            raise InputError(f"variable(s) {sorted(twice)} are in more than one part.")
        merged.update(part)
    return merged


def nest_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Nest params by scope.

    ``{"encoder/query/kernel": x}`` becomes ``{"encoder": {"query": {"kernel": x}}}``. This is the form that
    exported source takes. A param whose name is also a scope stays an array, and stands beside the params of that
    scope: ``{"w": x, "w/m": y}`` is not changed. The keys of arrays keep the flag of `VariableName`.

    Args:
      params: flat, as `convert`, `load` or a converted function returns them.

    Returns:
      Nested dicts; `flatten_params` is the inverse.

    Example:
      >>> tf2jax.nest_params({"encoder/kernel": 1, "encoder/bias": 2})
      {'encoder': {'kernel': 1, 'bias': 2}}
    """
    return nest_parts(params)[0]


def nest_parts(*parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nest the parts of params as `nest_params` nests all of them."""
    names = {name for part in parts for name in part}
    found: list[dict[str, Any]] = []
    for part in parts:
        found.append({})
        for name, value in part.items():
            *scopes, leaf = param_path(name, names)
            inner = found[-1]
            for scope in scopes:
                inner = inner.setdefault(scope, {})
            inner[VariableName(leaf, name.trainable) if isinstance(name, VariableName) else leaf] = value
    return found


def flatten_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested params: the inverse of `nest_params`.

    Args:
      params: nested dicts, such as a function of exported source takes and returns.

    Returns:
      A dict from name to array, whose keys are `VariableName` where those of the arrays were.

    Raises:
      InputError: two arrays have the same name.

    Example:
      >>> tf2jax.flatten_params({"encoder": {"kernel": 1, "bias": 2}})
      {'encoder/kernel': 1, 'encoder/bias': 2}
    """
    flat: dict[str, Any] = {}

    def visit(prefix: str, inner: Mapping[str, Any]) -> None:
        for key, value in inner.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                visit(f"{name}/", value)
            elif name in flat:
                raise InputError(f"two arrays of the params have the name {name[:100]!r}.")
            else:
                flat[VariableName(name, key.trainable) if isinstance(key, VariableName) else name] = value

    visit("", params)
    return flat


def param_path(name: str, names: Collection[str]) -> tuple[str, ...]:
    """Return a param's path in nested params, given the names of all params."""
    *scopes, leaf = str(name).split("/")
    path: list[str] = []
    key = ""
    for count, scope in enumerate(scopes, 1):
        if "/".join(scopes[:count]) in names:  # a param, which holds no others
            key += f"{scope}/"
        else:
            path.append(key + scope)
            key = ""
    return (*path, key + leaf)


def is_seed_state(name: str) -> bool:
    """Whether a variable of this name is a Keras 3 SeedGenerator's state."""
    return name.rsplit("/", 1)[-1].startswith("seed_generator_state")


Stacks = Mapping[str, Any]
"""Name of a stacked param, which is the first layer's, to the list of the layers' params; of lists for nested loops."""


def names_of(layers: Any) -> list[str]:
    """Return the names in a list of names or of such lists."""
    return [name for inner in layers for name in names_of(inner)] if isinstance(layers, list) else [layers]


def stacked(params: Mapping[str, Any], stacks: Stacks) -> dict[str, Any]:
    """Return params with those of equal layers stacked.

    A stack has the key of its first layer's param.

    Stacks that are stacked already, or missing, stay.
    """
    found = dict(params)
    for key, layers in stacks.items():
        names = names_of(layers)
        missing = [name for name in names if name not in found]
        if missing == names[1:] or len(missing) == len(names):
            continue
        if missing:
            raise MissingParamError(f"params lack {len(missing)} variable(s): {', '.join(missing[:10])}")
        arrays = [found[name] for name in names]
        for name in names[1:]:
            del found[name]
        module = np if all(isinstance(array, np.ndarray) for array in arrays) else jnp
        found[key] = module.stack(arrays).reshape(*np.shape(layers), *arrays[0].shape)
    return found


def unstacked(params: Mapping[str, Any], stacks: Stacks, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return params with those of each layer by themselves: the inverse of `stacked`.

    Args:
      params: name to array; some may be left out.
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        layers = stacks.get(str(name))
        if layers is not None and np.shape(value) == (*np.shape(layers), *shapes[str(name)]):
            found.update(zip(names_of(layers), np.reshape(value, (-1, *shapes[str(name)])), strict=True))
        else:
            found[name] = value
    return found
