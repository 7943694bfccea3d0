"""Rewrite one or two neighboring steps.

The rules are identities, constant folding, broadcasting, and axes of size 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.export.codegen.block_ir import Equation, Literal, Value

from .graph import Graph, Item, Replacement
from .shapes import aval, broadcast, inserted, is_array, new, same, scalar_literal

BROADCASTING = (*"add sub mul div max min and or xor eq ne lt le gt ge select_n".split(),)  # noqa: SIM905
"""Primitives that are written as functions or operators of NumPy, whose operands broadcast."""

ELEMENTWISE = ("add", "sub", "mul", "div", "max", "min", "neg", "exp", "rsqrt", "sqrt", "square")
"""Primitives of floats that `leading_axes` computes without leading axes of size 1."""

IDENTITIES = ("materialize", "copy", "copy_p", "convert_element_type", "pad", "reshape", "transpose")
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")


def identity(graph: Graph, step: Equation) -> Replacement | None:
    """Drop steps that return their operand.

    These are copies, conversions to the same dtype, reshapes and transposes to the same shape, and pads by nothing.
    """
    (operand, *rest), (output,) = step.inputs, step.outputs
    if step.name == "pad":
        widths = [width for widths in step.params["padding_config"] for width in widths]
        return operand if all(isinstance(width, int) and width == 0 for width in widths) else None
    if rest or operand.aval.dtype != output.aval.dtype or not same(operand.aval.shape, output.aval.shape):
        return None
    if step.name == "transpose" and tuple(step.params["permutation"]) != tuple(range(len(output.aval.shape))):
        return None
    return operand


_ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


FOLDED = (*_ARITHMETIC, "convert_element_type", "stop_gradient")


def uniform_number(graph: Graph, item: Item) -> np.ndarray | None:
    """Return the number that all elements of an item are, None if it is none."""
    maker = graph.definition(item)
    if maker is not None and maker.name == "broadcast_in_dim":
        item = maker.inputs[0]
    if not isinstance(item, Literal) or not item.array.size:
        return None
    flat = item.array.reshape(-1)
    return flat[0].reshape(()) if all(x.tobytes() == flat[0].tobytes() for x in flat) else None


def constants(graph: Graph, step: Equation) -> Replacement | None:
    """Compute arithmetic on numbers, and comparisons of arrays of one number."""
    dtype, shape = step.outputs[0].aval.dtype, step.outputs[0].aval.shape
    numbers = [uniform_number(graph, v) for v in step.inputs]
    if any(n is None for n in numbers) or not isinstance(dtype, np.dtype):
        return None
    if shape:
        if dtype != np.bool_ or step.name not in _ARITHMETIC:
            return None
        literal = Literal(np.asarray(_ARITHMETIC[step.name](*numbers), dtype))
        params = {"shape": shape, "broadcast_dimensions": (), "sharding": None}
        return [new("broadcast_in_dim", params, [literal], step, step.outputs)]
    with np.errstate(all="ignore"):
        if step.name == "convert_element_type":
            source, value = step.inputs[0].aval.dtype, np.asarray(numbers[0]).astype(dtype)
            if source.kind not in "biuf" or dtype.kind not in "iuf":
                return None
            return Literal(value) if source.kind == dtype.kind == "f" or value == numbers[0] else None
        if step.name == "stop_gradient":
            return step.inputs[0]
        return Literal(np.asarray(_ARITHMETIC[step.name](*numbers), dtype))


def selection(graph: Graph, step: Equation) -> Replacement | None:
    """Replace a selection by a constant by the operand that it selects."""
    which, *cases = step.inputs
    number = uniform_number(graph, which)
    if number is None:
        return None
    chosen = cases[int(number)]
    return chosen if same(chosen.aval.shape, step.outputs[0].aval.shape) else None


def neutral(graph: Graph, step: Equation) -> Replacement | None:
    """Drop a boolean operand that is the operation's neutral constant."""
    if step.outputs[0].aval.dtype != np.bool_:
        return None
    for constant, other in (step.inputs, step.inputs[::-1]):
        maker = graph.definition(constant)
        source = maker.inputs[0] if maker is not None and maker.name == "broadcast_in_dim" else constant
        number = scalar_literal(source)
        if number is None or bool(number) != (step.name == "and"):
            continue
        if same(other.aval.shape, step.outputs[0].aval.shape):
            return other
        shape, rank = step.outputs[0].aval.shape, len(other.aval.shape)
        kept = tuple(range(len(shape) - rank, len(shape)))
        params = {"shape": shape, "broadcast_dimensions": kept, "sharding": None}
        return [new("broadcast_in_dim", params, [other], step, step.outputs)]
    return None


def positive(graph: Graph, step: Equation) -> Replacement | None:
    """Write a mask that is the minimum of integers and a mask as both masks."""
    x, zero = step.inputs
    inserted_axes = graph.definition(x)
    maker = inserted_axes
    if maker is not None and maker.name == "expand_dims" and graph.is_used_once(x):
        maker = graph.definition(maker.inputs[0])
    number = scalar_literal(zero)
    if maker is None or maker.name != "min" or number is None or number != 0 or number.dtype.kind != "i":
        return None
    for masked, other in (maker.inputs, maker.inputs[::-1]):
        cast = graph.definition(masked)
        if cast is None or cast.name != "convert_element_type" or cast.inputs[0].aval.dtype != np.bool_:
            continue
        above = new("gt", {}, [other, zero], maker, aval(other.aval.shape, np.dtype(np.bool_)))
        shape = broadcast([other.aval.shape, cast.inputs[0].aval.shape])
        if shape is None or not same(shape, maker.outputs[0].aval.shape):
            continue
        given = [above.outputs[0], cast.inputs[0]]
        if maker is inserted_axes:
            return [above, new("and", {}, given, step, step.outputs)]
        both = new("and", {}, given, maker, aval(shape, np.dtype(np.bool_)))
        assert inserted_axes is not None
        return [above, both, new("expand_dims", inserted_axes.params, both.outputs, step, step.outputs)]
    return None


def first_rows(graph: Graph, step: Equation) -> Replacement | None:
    """Index the first rows of an array that is added to one with as many rows.

    Indexing clips a size that exceeds the array's, with which the operation then raises as the slice would.
    """
    for position, item in enumerate(step.inputs):
        maker = graph.definition(item)
        if maker is None or maker.name != "slice" or any(stride != 1 for stride in maker.params["strides"] or ()):
            continue
        source, shape = maker.inputs[0].aval.shape, item.aval.shape
        axes = [i for i, (size, n) in enumerate(zip(shape, source, strict=True)) if not (size is n or size == n)]
        other = step.inputs[1 - position].aval.shape
        if len(axes) != 1 or not graph.is_used_once(item) or not isinstance(source[axes[0]], int):
            continue
        (axis,) = axes
        place = axis - len(shape)
        known = isinstance(shape[axis], int) or maker.params["start_indices"][axis] != 0 or source[axis] == 1
        if known or -place > len(other) or other[place] != shape[axis]:
            continue
        words = {"axis": axis, "count": shape[axis]}
        rows = new("first_rows", words, maker.inputs, maker, aval(shape, item.aval.dtype))
        inputs = [rows.outputs[0] if i == position else v for i, v in enumerate(step.inputs)]
        return [rows, new(step.name, step.params, inputs, step, step.outputs)]
    return None


def truth(graph: Graph, step: Equation) -> Replacement | None:
    """Drop a comparison of booleans with False."""
    for constant, other in (step.inputs, step.inputs[::-1]):
        number = uniform_number(graph, constant)
        is_false = number is not None and number.dtype == np.bool_ and not number
        if is_false and same(other.aval.shape, step.outputs[0].aval.shape):
            return other
    return None


def zero(graph: Graph, step: Equation) -> Replacement | None:
    """Drop the addition of 0 to numbers that are not negative."""
    for constant, other in (step.inputs, step.inputs[::-1]):
        number, maker = uniform_number(graph, constant), graph.definition(other)
        while maker is not None and maker.name == "expand_dims":
            maker = graph.definition(maker.inputs[0])
        if number is not None and number == 0 and maker is not None and maker.name in ("iota", "philox_uniform"):
            return other if same(other.aval.shape, step.outputs[0].aval.shape) else None
    return None


def dropout(graph: Graph, step: Equation) -> Replacement | None:
    """Drop and scale elements by TensorFlow's random numbers of a seed."""
    if len(step.inputs) != 3:
        return None
    kept, scaled = graph.definition(step.inputs[0]), graph.definition(step.inputs[2])
    other = uniform_number(graph, step.inputs[1])
    if other is None or other != 0 or kept is None or kept.name != "ge" or scaled is None or scaled.name != "mul":
        return None
    noise, rate = graph.definition(kept.inputs[0]), uniform_number(graph, kept.inputs[1])
    if noise is None or noise.name != "philox_uniform" or rate is None or not graph.is_used_once(kept.inputs[0]):
        return None
    makers = {id(maker): maker for v in noise.inputs if (maker := _key_of(graph, v)) is not None}
    if len(makers) != 1 or any(_key_of(graph, v) is None for v in noise.inputs):
        return None
    (maker,) = makers.values()
    exact = float(str(rate))
    for x, factor in (scaled.inputs, scaled.inputs[::-1]):
        number = uniform_number(graph, factor)
        if number is None or number.dtype != np.float32 or number != np.float32(1 / (1 - exact)):
            continue
        if same(x.aval.shape, noise.outputs[0].aval.shape):
            return [new("philox_dropout", {"rate": exact}, [x, maker.inputs[0]], step, step.outputs)]
    return None


def _key_of(graph: Graph, item: Item) -> Equation | None:
    """Return the step that makes a key or a counter of a seed."""
    maker = graph.definition(item)
    while maker is not None and maker.name in ("reshape", "squeeze", "expand_dims"):
        maker = graph.definition(maker.inputs[0])
    return maker if maker is not None and maker.name == "philox_key" else None


def default_dtype(graph: Graph, step: Equation) -> Replacement | None:
    """Drop a product's preferred element type if it equals the default.

    The default is the dtype of the operands.
    """
    preferred = step.params["preferred_element_type"]
    if preferred is None or any(v.aval.dtype != preferred for v in (*step.inputs, *step.outputs)):
        return None
    return [new(step.name, {**step.params, "preferred_element_type": None}, step.inputs, step, step.outputs)]


def plain_product(graph: Graph, step: Equation) -> Replacement | None:
    """Replace a product that is 0 where a factor is 0 by ``mul``.

    The primitive has no function in JAX's public API, so source always has ``mul``.
    """
    return [new("mul", {}, step.inputs, step, step.outputs)]


def one(graph: Graph, step: Equation) -> Replacement | None:
    """Drop the factor 1 of real numbers.

    The product of an infinite complex number and 1 is NaN, so complex factors stay.
    """
    if jnp.issubdtype(step.outputs[0].aval.dtype, jnp.complexfloating):
        return None
    for constant, other in (step.inputs, step.inputs[::-1]):
        number = scalar_literal(constant)
        if number is not None and number == 1 and same(other.aval.shape, step.outputs[0].aval.shape):
            return other
    return None


def square(graph: Graph, step: Equation) -> Replacement | None:
    """Write a product of a value with itself as its square."""
    x, y = step.inputs
    return [new("square", {}, [x], step, step.outputs)] if x is y and isinstance(x, Value) else None


def triangle(graph: Graph, step: Equation) -> Replacement | None:
    """Write a comparison of indices, also as cumulative sums of ones, as ``tri``."""
    counts, shape = [graph.definition(v) for v in step.inputs], step.outputs[0].aval.shape
    counts = counts if step.name == "ge" else counts[::-1]
    if _counts(graph, counts[0], 2) and _counts(graph, counts[1], 1):
        return [new("tri", {}, [], step, step.outputs)]
    for maker, axis in zip(counts, (len(shape) - 2, len(shape) - 1), strict=True):
        if maker is None or maker.name != "cumsum" or maker.params["reverse"] or maker.params["axis"] != axis:
            return None
        ones = graph.definition(maker.inputs[0])
        number = scalar_literal(ones.inputs[0]) if ones is not None and ones.name == "broadcast_in_dim" else None
        if axis < 0 or number is None or number != 1 or not np.issubdtype(number.dtype, np.integer):
            return None
    if any(not isinstance(d, int) or d != 1 for d in shape[:-2]):
        return None
    if len(shape) == 2:
        return [new("tri", {}, [], step, step.outputs)]
    made = new("tri", {}, [], step, aval(shape[-2:], np.dtype(np.bool_)))
    return [made, new("expand_dims", {"axes": tuple(range(len(shape) - 2))}, made.outputs, step, step.outputs)]


def _counts(graph: Graph, maker: Equation | None, rank: int) -> bool:
    """Return whether a step counts along the first of some axes; others have size 1."""
    if maker is not None and maker.name == "expand_dims" and maker.params["axes"] == tuple(range(1, rank)):
        maker, rank = graph.definition(maker.inputs[0]), 1
    if maker is None or maker.name != "iota" or maker.params["dimension"] != 0:
        return False
    return len(maker.params["shape"]) == rank and all(isinstance(d, int) and d == 1 for d in maker.params["shape"][1:])


def stack(graph: Graph, step: Equation) -> Replacement | None:
    """Stack arrays instead of concatenating them along a new axis."""
    axis, arrays = step.params["dimension"], []
    for item in step.inputs:
        maker = graph.definition(item)
        if maker is None or maker.name != "expand_dims" or maker.params["axes"] != (axis,):
            return None
        arrays.append(maker.inputs[0])
    return [new("stack", {"axis": axis}, arrays, step, step.outputs)]


def insert_axes(graph: Graph, step: Equation) -> Replacement | None:
    """Unify reshapes and broadcasts that only insert axes of size 1."""
    (operand, *rest), (output,) = step.inputs, step.outputs
    if rest or (not operand.aval.shape and not is_array(operand)):
        return None
    if step.name == "broadcast_in_dim":
        kept = step.params["broadcast_dimensions"]
        shape = output.aval.shape
        axes = tuple(i for i in range(len(shape)) if i not in kept)
        if any(shape[i] != 1 for i in axes) or not same([shape[i] for i in kept], operand.aval.shape):
            return None
    else:
        axes = inserted(operand.aval.shape, output.aval.shape)
    if axes is None:
        return None
    if not axes:
        return operand
    return [new("expand_dims", {"axes": axes}, [operand], step, output)]


def merge_reshapes(graph: Graph, step: Equation) -> Replacement | None:
    """Reshape once instead of twice, or not at all."""
    maker = graph.definition(step.inputs[0])
    if maker is None or maker.name not in ("reshape", "squeeze", "expand_dims"):
        return None
    source, output = maker.inputs[0], step.outputs[0]
    if same(source.aval.shape, output.aval.shape):
        return source
    if step.name == "expand_dims" or not graph.is_used_once(step.inputs[0]):
        return None
    return [new("reshape", {"new_sizes": output.aval.shape, "dimensions": None}, [source], step, output)]


def index(graph: Graph, step: Equation) -> Replacement | None:
    """Index an axis of which a slice of size 1 is taken and dropped."""
    maker, output = graph.definition(step.inputs[0]), step.outputs[0].aval.shape
    if maker is None or maker.name != "slice" or not graph.is_used_once(step.inputs[0]):
        return None
    if any(stride != 1 for stride in maker.params["strides"] or ()):
        return None
    source, shape = maker.inputs[0].aval.shape, maker.outputs[0].aval.shape
    starts = maker.params["start_indices"]
    whole = [size is n or size == n for size, n in zip(shape, source, strict=True)]
    axes = [i for i, size in enumerate(shape) if not whole[i] and isinstance(size, int) and size == 1]
    if not axes or not same([size for i, size in enumerate(shape) if i not in axes], output):
        return None
    if not all(isinstance(starts[i], int) if i in axes else whole[i] for i in range(len(shape))):
        return None
    return [new("index", {"axes": tuple((i, starts[i]) for i in axes)}, maker.inputs, step, step.outputs)]


def reverse_twice(graph: Graph, step: Equation) -> Replacement | None:
    """Drop two reversals of the same axes, with a transpose between them or not."""
    axes = set(step.params["dimensions"])
    maker = graph.definition(step.inputs[0])
    transpose = (
        maker if maker is not None and maker.name == "transpose" and graph.is_used_once(step.inputs[0]) else None
    )
    if transpose is not None:
        axes = {transpose.params["permutation"][axis] for axis in axes}
        maker = graph.definition(transpose.inputs[0])
    if maker is None or maker.name != "rev" or set(maker.params["dimensions"]) != axes:
        return None
    if transpose is None:
        return maker.inputs[0]
    return [new("transpose", transpose.params, maker.inputs, transpose, step.outputs)]


def keep_reduced_axes(graph: Graph, step: Equation) -> Replacement | None:
    """Reduce with ``keepdims=True`` where the reduced axes are inserted again."""
    maker = graph.definition(step.inputs[0])
    if maker is None or not graph.is_used_once(step.inputs[0]):
        return None
    axes = tuple(step.params["axes"])
    is_reduction = maker.name in REDUCTIONS and not maker.params.get("keepdims")
    if is_reduction and axes == tuple(sorted(maker.params["axes"])):
        return [new(maker.name, {**maker.params, "keepdims": True}, maker.inputs, step, step.outputs)]
    words = _statistic_keywords(maker)
    if words and not words.get("keepdims") and axes == axes_of(words["axis"], len(step.outputs[0].aval.shape)):
        return [_statistic(maker, step, {**words, "keepdims": True})]
    return None


def squeeze_reduced_axes(graph: Graph, step: Equation) -> Replacement | None:
    """Compute a mean or variance without the reduced axes where they are dropped."""
    maker = graph.definition(step.inputs[0])
    words = _statistic_keywords(maker) if maker is not None and graph.is_used_once(step.inputs[0]) else {}
    rank = len(step.inputs[0].aval.shape)
    if not words.pop("keepdims", False) or axes_of(words["axis"], rank) != axes_of(step.params["dimensions"], rank):
        return None
    return [_statistic(maker, step, words)] if maker is not None else None


def _statistic_keywords(maker: Equation) -> dict[str, Any]:
    is_statistic = maker.name == "call" and maker.params["function"] in ("jnp.mean", "jnp.var")
    return dict(maker.params["keywords"]) if is_statistic else {}


def _statistic(maker: Equation, step: Equation, words: Mapping[str, Any]) -> Equation:
    return new("call", {**maker.params, "keywords": tuple(words.items())}, maker.inputs, step, step.outputs)


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """Return the axes that an ``axis`` argument means, in order."""
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(a % rank for a in axes))


def broadcasting(graph: Graph, step: Equation) -> Replacement | None:
    """Leave the broadcast of an operand to the operation."""
    output, inputs = step.outputs[0].aval, list(step.inputs)
    if step.name == "select_n" and (len(inputs) != 3 or inputs[0].aval.dtype != np.bool_):
        return None
    if step.name == "div" and not jnp.issubdtype(output.dtype, jnp.inexact):
        return None
    added: list[Equation] = []
    for position, item in enumerate(inputs):
        source = _source(graph, step, item)
        if source is None:
            continue
        smaller, made = source
        others = [v.aval.shape for i, v in enumerate(inputs) if i != position]
        found = broadcast([smaller.aval.shape, *others])
        if found is None or not same(found, output.shape):
            continue
        if all(scalar_literal(v) is not None for v in (smaller, *inputs[:position], *inputs[position + 1 :])):
            continue
        inputs[position] = smaller
        added += made
    if all(a is b for a, b in zip(inputs, step.inputs, strict=True)):
        return None
    return [*added, new(step.name, step.params, inputs, step, step.outputs)]


def leading_axes(graph: Graph, step: Equation) -> Replacement | None:
    """Compute without leading axes of size 1, and insert them into the result."""
    output = step.outputs[0].aval
    makers = [graph.definition(v) for v in step.inputs]
    counts = [
        len(m.params["axes"])
        for m in makers
        if m is not None and m.name == "expand_dims" and m.params["axes"] == tuple(range(len(m.params["axes"])))
    ]
    drop = min(counts, default=0)
    rank = len(output.shape) - drop
    if not drop or any(not isinstance(d, int) or d != 1 for d in output.shape[:drop]):
        return None
    inputs: list[Item] = []
    for item, maker in zip(step.inputs, makers, strict=True):
        source = maker.inputs[0] if maker is not None and maker.name == "expand_dims" else item
        inputs.append(item if len(item.aval.shape) <= rank else source)
    if any(len(v.aval.shape) > rank for v in inputs):
        return None
    found = broadcast([v.aval.shape for v in inputs])
    if found is None or not same(found, output.shape[drop:]):
        return None
    smaller = new(step.name, step.params, inputs, step, aval(found, output.dtype))
    return [smaller, new("expand_dims", {"axes": tuple(range(drop))}, smaller.outputs, step, step.outputs)]


def _source(graph: Graph, step: Equation, item: Item) -> tuple[Item, list[Equation]] | None:
    """Return a smaller operand that broadcasts to an item, and its steps.

    Smaller means fewer elements or fewer axes.
    """
    if isinstance(item, Literal):
        uniform = item.array.ndim > 0 and item.array.size and np.all(item.array == item.array.flat[0])
        return (Literal(item.array.flat[0].reshape(())), []) if uniform else None
    maker = graph.definition(item)
    if maker is not None and maker.name == "iota" and len(item.aval.shape) > 1 and not maker.inputs:
        return _positions(maker, step)
    if maker is None or maker.name not in ("expand_dims", "broadcast_in_dim") or len(maker.inputs) > 1:
        return None
    source, shape = maker.inputs[0], item.aval.shape
    if maker.name == "expand_dims":
        leading = tuple(range(len(maker.params["axes"])))
        return (source, []) if maker.params["axes"] == leading else None
    kept = maker.params["broadcast_dimensions"]
    if not kept:
        return source, []
    if tuple(kept) == tuple(range(len(shape) - len(kept), len(shape))):
        return source, []
    axes = tuple(i for i in range(len(shape) - kept[0]) if i + kept[0] not in kept)
    sizes = [1 if i in axes else source.aval.shape[kept.index(i + kept[0])] for i in range(len(shape) - kept[0])]
    made = new("expand_dims", {"axes": axes}, [source], step, aval(sizes, source.aval.dtype))
    return made.outputs[0], [made]


def _positions(maker: Equation, step: Equation) -> tuple[Item, list[Equation]] | None:
    """Return indices along one axis, without the axes before it.

    The axes after it have size 1.
    """
    shape, axis = maker.params["shape"], maker.params["dimension"]
    sizes = (shape[axis], *[1] * (len(shape) - axis - 1))
    if same(sizes, shape):
        return None
    made = new("iota", {**maker.params, "shape": sizes, "dimension": 0}, [], step, aval(sizes, maker.params["dtype"]))
    return made.outputs[0], [made]
