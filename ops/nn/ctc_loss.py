"""Connectionist temporal classification (Graves et al., ICML 2006): the loss, and decoding the best path.

The search for several paths is in ctc_beam_search.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

# Stands for the logarithm of zero: the difference of two infinities would be NaN in derivatives.
_NEVER = -1e30


def check_lengths(inputs: Any, sequence_length: Any) -> None:
    """Refuses inputs that are not [time, batch, classes], and known lengths that do not fit them."""
    if inputs.ndim != 3:
        raise OpError(f"inputs have time, batch and classes, not rank {inputs.ndim}")
    if sequence_length.ndim != 1 or sequence_length.shape[0] != inputs.shape[1]:
        raise OpError(f"sequence_length {sequence_length.shape} does not fit inputs {inputs.shape}")
    found = static_value(sequence_length)
    if found is not None and isinstance(inputs.shape[0], int) and (found > inputs.shape[0]).any():
        raise OpError(f"sequence_length {found.max()} is longer than the inputs' {inputs.shape[0]} steps")


# ---- loss ----


def _in_rows(indices: Any, values: Any, batch: int, steps: Any, collapse: bool) -> tuple[Any, Any, Any]:
    """Returns labels as rows, -1 where there is none, how many each row has, and how many were given for it.

    Their columns do not count.

    Args:
      indices: (labels, 2).
      values: (labels,).
      batch: how many rows there are.
      steps: of time. More labels than this have no path, so traced rows end after one more.
      collapse: whether traced labels are left out that repeat the one before.
    """
    count = indices.shape[0]
    found, labels = static_value(indices), static_value(values)
    if found is not None and labels is not None:
        owner = found[:, 0]
        lengths = np.bincount(owner, minlength=batch).astype(np.int32)
        rows = np.full((batch, lengths.max(initial=0)), -1, labels.dtype)
        rows[owner, np.arange(count) - np.searchsorted(owner, owner)] = labels
        return rows, lengths, lengths
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    # Entries that only pad to a bound have index -1, which JAX would take for the last row; or indices that were looked
    # up with it, which are not after those before them, as TensorFlow has it of all others.
    owner, column = indices[:, 0], indices[:, 1]
    place = owner * (jnp.max(column, initial=0) + 1) + column
    owner = jnp.where((owner < 0) | (place <= _before(lax.cummax(place))), batch, owner)
    kept = owner
    if collapse:
        kept = jnp.where((owner == _before(owner)) & (values == _before(values)), batch, owner)
    order = jnp.cumsum(kept < batch, dtype=np.int32) - 1
    first = jnp.full(batch, count, np.int32).at[kept].min(order, mode="drop")
    place = order - first.at[kept].get(mode="clip")
    width = count if found is None else int(np.bincount(found[:, 0], minlength=1).max())
    if isinstance(steps, int) and not (isinstance(width, int) and width <= steps):
        width = steps + 1
    rows = jnp.full((batch, width), -1, values.dtype).at[kept, place].set(values, mode="drop")
    count, given = (jnp.zeros(batch, np.int32).at[of].add(1, mode="drop") for of in (kept, owner))
    return rows, count, given


def _before(x: Any) -> Any:
    """Returns what stands before each entry, -1 before the first; how many there are may be data's."""
    return lax.pad(x, np.asarray(-1, x.dtype), [(1, -1, 0)])


@partial(jax.jit, static_argnums=(2, 3))
def _targets(rows: Any, lengths: Any, blank: int, collapse: bool) -> tuple[Any, Any]:
    """Leaves out repeated labels if asked to, and everything from the first blank on; returns rows and lengths."""
    batch, width = rows.shape
    rows, at = jnp.asarray(rows), jnp.arange(width)
    keep = at < jnp.asarray(lengths)[:, None]
    if collapse:
        keep &= jnp.concatenate([jnp.ones_like(rows[:, :1], bool), rows[:, 1:] != rows[:, :-1]], axis=1)
    keep &= jnp.cumsum(rows >= blank, axis=1) == 0
    place = jnp.where(keep, jnp.cumsum(keep, axis=1) - 1, width)
    out = jnp.full((batch, width), blank, rows.dtype)
    out = out.at[jnp.arange(batch)[:, None], place].set(rows, mode="drop")
    return out, jnp.sum(keep, axis=1, dtype=np.int32)


def _check_labels(rows: Any, lengths: Any, sequence_length: Any, blank: int, ignore_longer: bool) -> None:
    """Refuses what TensorFlow refuses, if the labels are known."""
    found, counts, times = static_value(rows), static_value(lengths), static_value(sequence_length)
    if found is None or counts is None:
        return
    if (counts == 0).any():
        raise OpError(f"sequence {int(np.argmin(counts))} has no labels")
    inside = np.arange(found.shape[1]) < counts[:, None]
    if (found[inside] < 0).any():
        raise OpError("labels must not be negative")
    ended = np.cumsum(inside & (found >= blank), axis=1) > 0
    if (ended & inside & (found < blank)).any():
        raise OpError(f"a label follows a null label ({blank} or more)")
    if times is not None and not ignore_longer and (counts > times).any():
        row = int(np.argmax(counts > times))
        raise OpError(f"sequence {row} has {counts[row]} labels, but {times[row]} steps")


def _path_loss(inputs: Any, targets: Any, count: Any, sequence_length: Any, merge_repeated: bool) -> Any:
    """Returns minus the log of the probability of all paths that spell the targets, about 1e30 if there is none."""
    steps, batch, classes = inputs.shape
    blank, dtype = classes - 1, inputs.dtype
    never = jnp.asarray(_NEVER, dtype)
    # The states: a blank before, between and after the labels.
    pairs = jnp.stack([jnp.full_like(targets, blank), targets], axis=2).reshape(batch, 2 * targets.shape[1])
    states = jnp.concatenate([pairs, jnp.full((batch, 1), blank, targets.dtype)], axis=1)
    width = states.shape[1]
    at, end = jnp.arange(width), 2 * count[:, None]
    label = at % 2 == 1
    before = jnp.concatenate([jnp.full((batch, 2), -1, states.dtype), states], axis=1)[:, :width]
    skips = label & (at > 1) & ((states != before) if merge_repeated else True)
    emitted = jnp.take_along_axis(jax.nn.log_softmax(inputs, axis=2), states[None], axis=2, mode="clip")
    emitted = jnp.maximum(emitted, never)

    def moved(alpha: Any, by: int) -> Any:
        return jnp.concatenate([jnp.full((batch, by), never), alpha], axis=1)[:, :width]

    def body(alpha: Any, item: Any) -> Any:
        step, emitted = item
        stay = alpha if merge_repeated else jnp.where(label, never, alpha)
        total = jnp.logaddexp(stay, moved(alpha, 1))
        total = jnp.logaddexp(total, jnp.where(skips, moved(alpha, 2), never))
        total = jnp.maximum(jnp.where(at <= end, total + emitted, never), never)
        return jnp.where((step < sequence_length)[:, None], total, alpha), None

    # As if there were a blank before the first step.
    start = jnp.broadcast_to(jnp.where(at == 0, jnp.zeros_like(never), never), (batch, width))
    alpha = scan(body, start, (lax.iota(np.int32, steps), emitted))[0]
    last = jnp.where((at == end) | (at == end - 1), alpha, never)
    return -jax.nn.logsumexp(last, axis=1)


# Compiled as a whole even outside jit: it is a hundred small steps.
@partial(jax.jit, static_argnums=(5,))
def _loss_and_gradient(
    inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any, merge_repeated: bool
) -> tuple[Any, Any]:
    def total(inputs: Any) -> tuple[Any, Any]:
        loss = _path_loss(inputs, targets, count, sequence_length, merge_repeated)
        return jnp.sum(loss), loss

    gradient, loss = jax.grad(total, has_aux=True)(inputs)
    # Without any path TensorFlow gives the softmax for a gradient.
    lost = loss > -_NEVER / 2
    gradient = jnp.where(lost[:, None], jax.nn.softmax(inputs, axis=2), gradient)
    unused = (sequence_length == 0) | longer
    steps = lax.iota(np.int32, inputs.shape[0])[:, None]
    gradient = jnp.where(((steps < sequence_length) & ~unused)[..., None], gradient, jnp.zeros_like(gradient))
    return jnp.where(unused, 0, jnp.where(lost, jnp.inf, loss)).astype(inputs.dtype), gradient


@jax.custom_jvp
def _merging(inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any) -> tuple[Any, Any]:
    return _loss_and_gradient(inputs, targets, count, longer, sequence_length, True)


@jax.custom_jvp
def _keeping(inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any) -> tuple[Any, Any]:
    return _loss_and_gradient(inputs, targets, count, longer, sequence_length, False)


def _loss_jvp(function: Any) -> Any:
    def jvp(primals: Any, tangents: Any) -> Any:
        loss, gradient = function(*primals)
        # TensorFlow has no second derivative.
        return (loss, gradient), (jnp.sum(gradient * tangents[0], axis=(0, 2)), jnp.zeros_like(gradient))

    return jvp


_merging.defjvp(_loss_jvp(_merging))
_keeping.defjvp(_loss_jvp(_keeping))


@op("CTCLoss", stored=True)
def ctc_loss(
    inputs: Any,
    labels_indices: Any,
    labels_values: Any,
    sequence_length: Any,
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
) -> tuple[Any, Any]:
    """Returns the loss of each sequence and its gradient by the inputs. See tf.raw_ops.CTCLoss.

    The entries of a row of labels must follow each other. Traced labels are not checked: a sequence without enough
    time for its labels has an infinite loss (an error in TensorFlow).
    """
    check_lengths(inputs, sequence_length)
    if labels_indices.ndim != 2 or labels_values.ndim != 1 or labels_indices.shape[0] != labels_values.shape[0]:
        raise OpError(f"labels_indices {labels_indices.shape} do not fit labels_values {labels_values.shape}")
    inputs, lengths = jnp.asarray(inputs), jnp.asarray(sequence_length)
    batch, blank = inputs.shape[1], inputs.shape[2] - 1
    found = static_value(labels_indices)
    if found is not None and found.size and ((found[:, 0] < 0) | (found[:, 0] >= batch)).any():
        raise OpError(f"an index of the labels is out of range for {batch} sequences")
    if found is not None and (np.diff(found[:, 0]) < 0).any():
        raise OpError("the labels' indices are out of order")
    rows, counts, raw = _in_rows(labels_indices, labels_values, batch, inputs.shape[0], preprocess_collapse_repeated)
    _check_labels(rows, raw, sequence_length, blank, ignore_longer_outputs_than_inputs)
    targets, count = _targets(rows, counts, blank, preprocess_collapse_repeated)
    # It is the labels as given that are compared here, in TensorFlow, too.
    longer = jnp.asarray(raw) > lengths if ignore_longer_outputs_than_inputs else jnp.zeros(batch, bool)
    run = _merging if ctc_merge_repeated else _keeping
    loss, gradient = run(inputs, targets, count, longer, lengths)
    return loss, lax.stop_gradient(gradient)


@op("CTCLossV2", stored=True)
def ctc_loss_v2(
    inputs: Any,
    labels_indices: Any,
    labels_values: Any,
    sequence_length: Any,
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
) -> tuple[Any, Any]:
    """As CTCLoss, with class 0 for the blank. See tf.raw_ops.CTCLossV2, which TensorFlow has on GPU."""
    loss, gradient = ctc_loss(
        jnp.roll(jnp.asarray(inputs), -1, axis=-1),
        labels_indices,
        labels_values - np.ones((), labels_values.dtype),
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
    )
    return loss, jnp.roll(gradient, 1, axis=-1)


# ---- decoding ----


@op("CTCGreedyDecoder", dynamic_shape="prefix")
def ctc_greedy_decoder(
    inputs: Any,
    sequence_length: Any,
    *,
    merge_repeated: bool = False,
    blank_index: int = -1,
    bound: int | DynamicShapes | None,
) -> tuple[Any, ...]:
    """Takes the likeliest class of each step. See tf.raw_ops.CTCGreedyDecoder.

    Returns indices, values and shape of a sparse tensor, and minus the sum of the largest inputs. Padded to a bound,
    indices past the last entry are -1; entries beyond the bound are dropped.
    """
    check_lengths(inputs, sequence_length)
    classes = inputs.shape[2]
    blank = blank_index + classes if blank_index < 0 else blank_index
    if not 0 <= blank < classes:
        raise OpError(f"blank_index {blank_index} is out of range for {classes} classes")
    static = isinstance(inputs, np.ndarray) and isinstance(sequence_length, np.ndarray)
    xp: Any = np if static else jnp
    inputs, lengths = xp.asarray(inputs), xp.asarray(sequence_length)
    best = xp.argmax(inputs, axis=2).T
    inside = xp.arange(inputs.shape[0]) < lengths[:, None]
    score = -xp.sum(xp.where(inside.T, xp.max(inputs, axis=2), 0), axis=0, dtype=inputs.dtype)[:, None]
    keep = inside & (best != blank)
    if merge_repeated:
        keep &= xp.concatenate([xp.ones((best.shape[0], 1), bool), best[:, 1:] != best[:, :-1]], axis=1)[
            :, : best.shape[1]
        ]
    column = xp.cumsum(keep, axis=1) - 1
    int64 = canonical(np.int64)
    shape = xp.stack([xp.asarray(best.shape[0]), xp.max(xp.sum(keep, axis=1), initial=0)]).astype(int64)
    if static:
        rows, at = np.nonzero(keep)
        indices = np.stack([rows, column[rows, at]], axis=1).astype(int64)
        return indices, best[rows, at].astype(int64), shape, score
    size = row_capacity(bound, keep.shape[0] * keep.shape[1], "how many labels are decoded depends on traced values")
    rows, at = truncate_rows(
        bound, lambda: jnp.count_nonzero(keep), *jnp.nonzero(keep, size=size, fill_value=-1), of=(keep,)
    )
    there = rows >= 0
    indices = jnp.where(there[:, None], jnp.stack([rows, column[rows, at]], axis=1), -1).astype(int64)
    return indices, jnp.where(there, best[rows, at], 0).astype(int64), shape, score
