"""Dicts of arrays with equal leading sizes: checks, slices, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import DataError

EXAMPLE_MASK_KEY = "__mask__"
# Where filled batches say which of their examples are of one epoch more: they train, and count nowhere.
EXAMPLE_FILL_KEY = "__fill__"


def check_examples(
    examples: Mapping[str, Any], where: str = "client data", *, read_only: bool = True
) -> dict[str, np.ndarray]:
    """Return the examples as numpy arrays.

    Args:
      examples: dict from feature to something that numpy takes for an array, all with the same leading size.
      where: the location in error messages.
      read_only: return views that cannot be written to, as several readers share stored examples.

    Raises:
      DataError: no features, a name that is not a string, a scalar, or leading sizes that differ.
    """
    if not isinstance(examples, Mapping):
        raise DataError(f"{where}: examples are a dict of arrays, not {type(examples).__name__}")
    if not examples:
        raise DataError(f"{where}: there are no features; without one the number of examples is unknown")
    arrays: dict[str, np.ndarray] = {}
    for name, value in examples.items():
        if not isinstance(name, str):
            raise DataError(f"{where}: the name of a feature is a string, not {name!r}")
        try:
            array = native(np.asarray(value))
        except (ValueError, TypeError) as error:  # rows of different lengths, JAX keys
            raise DataError(f"{where}: feature {name!r} is no array: {error}") from error
        if array.ndim == 0:
            raise DataError(f"{where}: feature {name!r} is a scalar; its first dimension must run over the examples")
        if read_only and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        arrays[name] = array
    sizes = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"{where}: the leading sizes of the features differ: {sizes}")
    return arrays


def num_examples(examples: Examples) -> int:
    """Return the leading size."""
    return next(iter(examples.values())).shape[0]


def take_examples(examples: Examples, index: Any) -> dict[str, np.ndarray]:
    """Return the examples at ``index``: a slice (views), or an int array (copies)."""
    return {name: array[index] for name, array in examples.items()}


def concat_examples(parts: Sequence[Examples], where: str = "client data") -> dict[str, np.ndarray]:
    """Join examples along their leading axis.

    Raises:
      DataError: their features differ in name, or in shape.
    """
    names = list(parts[0])
    for part in parts[1:]:
        if set(part) != set(names):
            raise DataError(f"{where}: the features differ: {sorted(names)} and {sorted(part)}")
    if len(parts) == 1:
        return dict(parts[0])
    try:
        return {name: np.concatenate([part[name] for part in parts]) for name in names}
    except ValueError as error:
        raise DataError(f"{where}: the features' shapes differ: {error}") from error


def pad_examples(examples: Examples, size: int) -> dict[str, np.ndarray]:
    """Pad with zeros (empty strings) to ``size`` examples, and add the mask.

    Args:
      examples: at most ``size`` examples.
      size: the leading size of the result.

    Returns:
      The arrays, and under ``"__mask__"`` bool (size,): True for the examples that are there.

    Raises:
      DataError: there are more examples than ``size``, or a feature has the mask's name.
    """
    arrays = check_examples(examples, "a batch after its preprocessor", read_only=False)
    present = num_examples(arrays)
    if present > size:
        raise DataError(f"a batch preprocessor made {present} examples of at most {size}; it must not add any")
    if EXAMPLE_MASK_KEY in arrays:
        raise DataError(f"a feature is named {EXAMPLE_MASK_KEY!r}, which is the mask's name; rename it")
    padded = {}
    for name, array in arrays.items():
        if present == size:
            padded[name] = array
            continue
        fill = np.zeros((size - present, *array.shape[1:]), array.dtype)
        if array.dtype == object:
            fill[...] = b"" if array.size and isinstance(array.flat[0], bytes) else ""
        padded[name] = np.concatenate([array, fill])
    padded[EXAMPLE_MASK_KEY] = np.arange(size) < present
    return padded
