"""Checks of traced indices that TensorFlow's CPU kernels refuse.

Traced indices out of range read zeros and write nothing, as TensorFlow's GPU kernels do. With the option
``enable_checkify_for_asserts`` they are ``jax.experimental.checkify`` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from tf2jax_lite.values.int64 import to_32_bits
from tf2jax_lite.values.static import dims

_Ranges = Iterator[tuple[Any, Any, Any]]  # indices, and their lower and upper limits, None where there is none
_SORTED = "sorted"


def _along_axis(params: Any, indices: Any, axis: Any) -> _Ranges:
    yield indices, 0, params.shape[int(axis)]


def _of_rows(indices: Any, shape: Sequence[Any]) -> _Ranges:
    for column in range(indices.shape[-1]):
        yield indices[..., column], 0, shape[column]


def _segments(segment_ids: Any, num_segments: Any = None) -> _Ranges:
    yield segment_ids, 0, None if num_segments is None else dims(num_segments)[0]
    yield segment_ids, _SORTED, None


_Rule = Callable[..., _Ranges]
_RULES: dict[str, _Rule] = {
    "Gather": lambda params, indices, **_: _along_axis(params, indices, 0),
    "GatherV2": lambda params, indices, axis, **_: _along_axis(params, indices, axis),
    "ResourceGather": lambda resource, indices, batch_dims=0, **_: _along_axis(resource, indices, batch_dims),
    "GatherNd": lambda params, indices, **_: _of_rows(indices, params.shape),
    "ResourceGatherNd": lambda resource, indices, **_: _of_rows(indices, resource.shape),
    "ScatterNd": lambda indices, shape, **_: _of_rows(indices, dims(shape)),
    "ScatterNdNonAliasingAdd": lambda tensor, indices, **_: _of_rows(indices, tensor.shape),
    "DynamicPartition": lambda partitions, num_partitions, **_: iter([(partitions, 0, num_partitions)]),
    "InvertPermutation": lambda x, **_: _along_axis(x, x, 0),
    "SparseSoftmaxCrossEntropyWithLogits": lambda features, labels, **_: _along_axis(features, labels, 1),
}
for _kind in ("Update", "Add", "Sub", "Max", "Min", "Mul", "Div"):
    _RULES[f"TensorScatter{_kind}"] = lambda tensor, indices, **_: _of_rows(indices, tensor.shape)
    _RULES[f"ResourceScatter{_kind}"] = lambda resource, indices, **_: _along_axis(resource, indices, 0)
    _RULES[f"ResourceScatterNd{_kind}"] = lambda ref, indices, **_: _of_rows(indices, ref.shape)
for _kind in ("Sum", "Prod", "Max", "Min", "Mean"):
    _RULES[f"Segment{_kind}"] = lambda segment_ids, **_: _segments(segment_ids)
    _RULES[f"UnsortedSegment{_kind}"] = lambda segment_ids, num_segments, **_: iter(
        [(segment_ids, None, dims(num_segments)[0])]
    )


def _sparse_segments(data: Any, indices: Any, segment_ids: Any, num_segments: Any = None, **_: Any) -> _Ranges:
    yield from _along_axis(data, indices, 0)
    yield from _segments(segment_ids, num_segments)


for _kind in ("Sum", "Mean", "SqrtN"):
    _RULES[f"SparseSegment{_kind}"] = _RULES[f"SparseSegment{_kind}WithNumSegments"] = _sparse_segments


def check_indices(op: str, names: Sequence[str], args: Sequence[Any], attrs: Mapping[str, Any], where: str) -> None:
    """Check traced indices of a node that TensorFlow would refuse, with checkify."""
    rule = _RULES.get(op)
    if rule is None or attrs.get("bad_indices_policy") == "IGNORE":
        return
    for found, lower, upper in rule(**dict(zip(names, args, strict=False)), **attrs):
        indices = to_32_bits(found)
        if not isinstance(indices, jax.Array):  # the op itself checks static ones
            continue
        if indices.dtype.itemsize < 4:  # the limit may be beyond the dtype's range
            indices = indices.astype(np.int32)
        text = where.replace("{", "{{").replace("}", "}}")
        if lower == _SORTED:
            checkify.check(jnp.all(indices[1:] >= indices[:-1]), f"segment ids are not increasing ({text})")
            continue
        low, high = jnp.min(indices, initial=0), jnp.max(indices, initial=0)
        inside = jnp.asarray(True)
        if lower is not None:
            inside &= jnp.all(indices >= lower)
        if upper is not None:
            upper = jnp.asarray(upper).astype(np.int32)
            inside &= jnp.all(indices < upper.astype(indices.dtype))
        index = low if upper is None else jnp.where((low < 0) & (lower is not None), low, high)
        limit = "" if upper is None else " and less than {limit}"
        text = f"index {{index}} is out of range: it must be at least 0{limit} ({text})"
        values: dict[str, Any] = {"index": index} if upper is None else {"index": index, "limit": upper}
        checkify.check(inside, text, **values)
