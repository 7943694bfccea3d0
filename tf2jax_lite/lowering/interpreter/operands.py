"""A node's inputs as its op takes them, and results as the node has them.

Traced indices out of range read zeros and write nothing, as TensorFlow's GPU kernels do; its CPU kernels raise. With
the option ``enable_checkify_for_asserts`` they are ``jax.experimental.checkify`` checks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.support.errors import StaticInputError
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import WordArray, exceeds_32_bits, is_int64, to_32_bits
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.tensor_list import TensorList

from .diagnostics import describe, located
from .frame import Frame
from .int64_narrowing import warn_if_narrowed

if TYPE_CHECKING:
    from .trace import Trace

# Their dtype is that of the value they stand for; TensorFlow records the dtype of the tensor that carries them.
_SYMBOLS = (values.VariableHandle, TensorList)
# Integer inputs that are not sizes.
_AXES = frozenset({"axis", "concat_dim", "dimension", "perm", "reduction_indices", "split_dim"})


class TracedInputError(StaticInputError, jax.errors.ConcretizationTypeError):
    """A traced value where a static one is needed; subclass of JAX's error."""


def grouped(step: Step, inputs: Sequence[Any]) -> list[Any]:
    """Return a node's inputs with a list for each list input."""
    groups = step.node.groups
    if groups.count(None) == len(groups) == len(inputs):
        return list(inputs)
    args: list[Any] = []
    position = 0
    for group in groups:
        if group is None:
            args.append(inputs[position])
            position += 1
        else:
            args.append(list(inputs[position : position + group]))
            position += group
    return args


def each(fn: Callable[[Any], Any], arg: Any) -> Any:
    """Apply a function to an input, or to all values of a list input."""
    return [fn(item) for item in arg] if isinstance(arg, list) else fn(arg)


def prepare(trace: Trace, step: Step, inputs: Sequence[Any], frame: Frame) -> tuple[list[Any], bool]:
    """Return an op's inputs, and whether it runs on each word of int64.

    Raises:
      TracedInputError: a static input depends on traced values.
    """
    op = step.op
    args = grouped(step, inputs)
    runs_per_word = False
    for index, arg in enumerate(args):
        if step.static[index]:
            if type(arg) is np.ndarray:
                continue
        elif is_traced(arg) and not op.reads:
            continue  # no conversion below changes it
        unconverted = index < len(op.inputs) and op.inputs[index] in op.unconverted
        if op.int64 == "pair":
            if not step.static[index] and not unconverted:  # a shape may have symbolic dimensions
                arg = args[index] = each(_unless_int64_pair, arg)
        elif any(isinstance(v, WordArray) for v in (arg if isinstance(arg, list) else [arg])):
            if op.int64 == "per_word":
                runs_per_word = True
                continue
            arg = args[index] = each(to_32_bits, arg)
        if step.static[index]:
            args[index] = _static_input(arg, step, index, frame, trace.tracker, _expected_bound(op, index, args))
        elif index < len(op.inputs) and op.inputs[index] in op.reads:
            args[index] = trace.read(arg, step, frame)
        elif unconverted:
            pass
        elif op.int64 == "pair":
            args[index] = each(_static_or_traced, arg) if op.bound is not None else arg
        else:
            for value in arg if isinstance(arg, list) else [arg]:
                if exceeds_32_bits(value) and step.node.name not in trace.program.narrowing:
                    warn_if_narrowed(value, describe(step, frame))
            args[index] = each(_static_or_traced if op.bound is not None else values.as_array, arg)
    return (_promoted(step, args) if trace.promote_dtypes else args), runs_per_word


def _unless_int64_pair(value: Any) -> Any:
    return value if is_int64(value) else values.as_array(value)


def _static_or_traced(value: Any) -> Any:
    found = values.static_value(value)
    return values.as_array(value) if found is None else found


def _expected_bound(op: Any, index: int, args: Sequence[Any]) -> Any:
    """Return the upper bound of a size: most segments have an id."""
    if op.inputs[index] != "num_segments" or "segment_ids" not in op.inputs:
        return None
    return math.prod(np.shape(args[op.inputs.index("segment_ids")]))


def _static_input(
    arg: Any, step: Step, index: int, frame: Frame, tracker: DynamicShapes | None, expected_bound: Any
) -> Any:
    def convert(value: Any) -> Any:
        found = values.static_value(value)
        if found is not None:
            return found
        if not isinstance(value, jax.Array):
            return value
        if tracker is not None and _may_be_sizes(value):
            return tracker.as_dims(value, expected_bound)
        name = step.op.inputs[index]
        advice = "Under jax.jit, pass what it depends on as a static argument (jax.jit(..., static_argnums=...))"
        if "Sparse" in step.op.name and "shape" in name:
            advice += ", a sparse tensor as jax.experimental.sparse.BCOO, whose shape is static"
        if _may_be_sizes(value) and name not in _AXES:
            advice += ", or convert with override_config('dynamic_shape_bound', n), the upper bound of what it sizes"
        message = (
            f"node {step.node.name!r} ({step.node.op}): input {index} ({name!r}) must be known while tracing, but it "
            f"is computed from traced values ({value}). {advice}."
        )
        raise TracedInputError(message, node=step.node.name, op=step.node.op, path=frame.path)

    return each(convert, arg)


def _may_be_sizes(value: Any) -> bool:
    return np.dtype(value.dtype).kind in "iu" and (value.shape == () or (len(value.shape) == 1 and value.shape[0] < 16))


def _promoted(step: Step, args: list[Any]) -> list[Any]:
    """Return inputs that share a type attribute in one dtype, promoted as JAX does."""
    by_type: dict[str, list[int]] = {}
    for index, name in enumerate(step.node.input_types[: len(args)]):
        if name and not step.static[index]:
            by_type.setdefault(name, []).append(index)
    for indices in by_type.values():
        items = [v for i in indices for v in (args[i] if isinstance(args[i], list) else [args[i]])]
        dtypes = {v.dtype for v in items if isinstance(v, (jax.Array, np.ndarray))}
        if len(dtypes) < 2:
            continue
        common = jnp.result_type(*dtypes)
        for i in indices:
            args[i] = each(functools.partial(_astype, dtype=common), args[i])
    return args


def _astype(value: Any, dtype: Any) -> Any:
    return value.astype(dtype) if isinstance(value, (jax.Array, np.ndarray)) else value


def same_varying_axes(args: list[Any]) -> list[Any]:
    """Return arrays that vary along the same mesh axes, for derivative rules."""
    axes = [axes_of(v) for v in args if isinstance(v, jax.Array)]
    if len(set(axes)) < 2:
        return args
    union = frozenset[str]().union(*axes)
    return [varying_along(v, union) if isinstance(v, jax.Array) else v for v in args]


def flat_results(results: Any) -> list[Any]:
    """Return an op's results as a flat list: values, tuples, or lists inside."""
    if isinstance(results, (list, tuple)):
        flat: list[Any] = []
        for item in results:
            flat.extend(item) if isinstance(item, (list, tuple)) else flat.append(item)
        return flat
    return [] if results is None else [results]


def check_dtypes(step: Step, results: list[Any], frame: Frame) -> None:
    """Compare results' dtypes with TensorFlow's, as JAX makes them.

    Static vectors with symbolic dimensions have dtype object; they are replaced by ones that remember the recorded
    dtype.
    """
    for index, expected in enumerate(step.dtypes):
        value = results[index]
        actual = getattr(value, "dtype", None)
        if expected is None or actual is expected:
            continue
        if actual is None or actual == expected or isinstance(value, _SYMBOLS):
            continue
        if isinstance(actual, np.dtype) and actual.kind == "O":
            if expected.kind in "iuf" and values.is_symbolic(value):
                results[index] = value.view(values.dims_dtype(expected))
        elif values.canonical(expected) != values.canonical(actual):
            raise located(f"result {index} has dtype {actual} where TensorFlow recorded {expected}", step, frame)


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
