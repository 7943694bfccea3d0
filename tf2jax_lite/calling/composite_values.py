"""Components of composite tensors among the arguments of a call.

The libraries of such values are looked up in ``sys.modules``, not imported: a value exists only after the import.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.values import static


def components(value: Any) -> Sequence[Any] | None:
    """Return a composite tensor's components in TensorFlow's order, else None.

    Args:
      value: an object of a class that ``tf.nest`` flattens (its fields), a ``tf.RaggedTensor`` (flat values, row
        splits), ``tf.SparseTensor`` (indices, values, dense shape), ``tf.IndexedSlices``,
        ``tf.experimental.ExtensionType``, or a ``jax.experimental.sparse.BCOO`` without batch and dense dimensions,
        which counts as a sparse tensor.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is not None and isinstance(value, sparse.BCOO):
        if value.n_batch or value.n_dense:
            return None
        return value.indices.astype(static.canonical(np.int64)), value.data, np.asarray(value.shape, np.int64)
    if isinstance(value, Mapping):
        return None  # a dict has no order of components
    if hasattr(value, "__attrs_attrs__"):
        return [getattr(value, attribute.name) for attribute in value.__attrs_attrs__]
    if dataclasses.is_dataclass(value) and hasattr(value, "__tf_flatten__"):
        return list(value.__tf_flatten__()[1])  # pyright: ignore[reportAttributeAccessIssue]
    tf = sys.modules.get("tensorflow")
    nest = getattr(tf, "nest", None)
    if nest is None or value is None:
        return None
    parts = nest.flatten(value, expand_composites=True)
    return None if len(parts) == 1 and parts[0] is value else parts


def fits(value: Any, spec: Any) -> bool:
    """Whether a composite tensor matches a spec in type and non-tensor fields.

    Args:
      value: a value for which `components` is not None.
      spec: the ``tf.TypeSpec`` that a function was converted for.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is not None and isinstance(value, sparse.BCOO):
        return spec.value_type.__name__ == "SparseTensor"
    fields = {name: field for name, field in vars(spec).items() if not name.startswith("_")}
    if not fields:
        return isinstance(value, spec.value_type)
    # An extension type. A restored one has a class of its own, so that only fields count.
    return all(hasattr(value, name) and _same(getattr(value, name), field) for name, field in fields.items())


def _same(value: Any, field: Any) -> bool:
    if isinstance(field, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == field.keys()
            and all(_same(value[k], field[k]) for k in field)
        )
    if isinstance(field, tuple):
        return isinstance(value, tuple) and len(value) == len(field) and all(map(_same, value, field))
    if hasattr(field, "value_type"):
        return components(value) is None or fits(value, field)
    return type(value) is type(field) and bool(value == field)
