"""Connectionist temporal classification: the loss, and the decoders.

Graves et al., ICML 2006. The beam search is a tree search with data-dependent branches, as in
tensorflow/core/util/ctc: it runs in Python on the host.
"""

from __future__ import annotations

import functools
import heapq
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import row_capacity, truncate_rows
from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import Array, canonical, static_value

# The logarithm of zero: finite, as the difference of two infinities would be NaN in derivatives.
_LOG_ZERO = -1e30


def check_lengths(inputs: Any, sequence_length: Any) -> None:
    """Raise OpError unless shapes and static lengths, at most time, are valid."""
    if inputs.ndim != 3:
        raise OpError(f"inputs have time, batch and classes, not rank {inputs.ndim}")
    if sequence_length.ndim != 1 or sequence_length.shape[0] != inputs.shape[1]:
        raise OpError(f"sequence_length {sequence_length.shape} does not fit inputs {inputs.shape}")
    lengths = static_value(sequence_length)
    if lengths is not None and isinstance(inputs.shape[0], int) and (lengths > inputs.shape[0]).any():
        raise OpError(f"sequence_length {lengths.max()} is longer than the inputs' {inputs.shape[0]} steps")


# ---- loss ----


def _dense_labels(indices: Any, values: Any, batch: int, steps: Any, collapse: bool) -> tuple[Any, Any, Any]:
    """Return sparse labels as dense rows.

    The columns of ``indices`` are only compared, not used as positions.

    Args:
      steps: number of time steps. More labels have no path, so that traced rows are truncated to one more.
      collapse: whether repeated labels are dropped, of traced ones.

    Returns:
      Labels [batch, width], padded with -1; their number in each row [batch]; the number before collapsing [batch].
    """
    count = indices.shape[0]
    static_indices, labels = static_value(indices), static_value(values)
    if static_indices is not None and labels is not None:
        owner = static_indices[:, 0]
        lengths = np.bincount(owner, minlength=batch).astype(np.int32)
        rows = np.full((batch, lengths.max(initial=0)), -1, labels.dtype)
        rows[owner, np.arange(count) - np.searchsorted(owner, owner)] = labels
        return rows, lengths, lengths
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    # Padding to a static bound has index -1, which JAX would take for the last row, or indices that were gathered with
    # -1. Those are not in increasing order, which TensorFlow requires of all others.
    owner, column = indices[:, 0], indices[:, 1]
    position = owner * (jnp.max(column, initial=0) + 1) + column
    owner = jnp.where((owner < 0) | (position <= _previous(lax.cummax(position))), batch, owner)
    collapsed = owner
    if collapse:
        collapsed = jnp.where((owner == _previous(owner)) & (values == _previous(values)), batch, owner)
    order = jnp.cumsum(collapsed < batch, dtype=np.int32) - 1
    first = jnp.full(batch, count, np.int32).at[collapsed].min(order, mode="drop")
    position = order - first.at[collapsed].get(mode="clip")
    width = count if static_indices is None else int(np.bincount(static_indices[:, 0], minlength=1).max())
    if isinstance(steps, int) and not (isinstance(width, int) and width <= steps):
        width = steps + 1
    rows = jnp.full((batch, width), -1, values.dtype).at[collapsed, position].set(values, mode="drop")
    lengths, raw_lengths = (jnp.zeros(batch, np.int32).at[row].add(1, mode="drop") for row in (collapsed, owner))
    return rows, lengths, raw_lengths


def _previous(x: Any) -> Any:
    """Return the entry before each entry of a vector, -1 before the first."""
    return lax.pad(x, np.asarray(-1, x.dtype), [(1, -1, 0)])


@partial(jax.jit, static_argnums=(2, 3))
def _targets(rows: Any, lengths: Any, blank: int, collapse: bool) -> tuple[Any, Any]:
    """Return rows without labels past the first blank, or repeated ones, and lengths."""
    batch, width = rows.shape
    rows = jnp.asarray(rows)
    keep = jnp.arange(width) < jnp.asarray(lengths)[:, None]
    if collapse:
        keep &= jnp.concatenate([jnp.ones_like(rows[:, :1], bool), rows[:, 1:] != rows[:, :-1]], axis=1)
    keep &= jnp.cumsum(rows >= blank, axis=1) == 0
    column = jnp.where(keep, jnp.cumsum(keep, axis=1) - 1, width)
    out = jnp.full((batch, width), blank, rows.dtype)
    out = out.at[jnp.arange(batch)[:, None], column].set(rows, mode="drop")
    return out, jnp.sum(keep, axis=1, dtype=np.int32)


def _check_labels(rows: Any, lengths: Any, sequence_length: Any, blank: int, ignore_longer: bool) -> None:
    """Raise OpError for static labels that TensorFlow rejects."""
    labels, counts, times = static_value(rows), static_value(lengths), static_value(sequence_length)
    if labels is None or counts is None:
        return
    if (counts == 0).any():
        raise OpError(f"sequence {int(np.argmin(counts))} has no labels")
    valid = np.arange(labels.shape[1]) < counts[:, None]
    if (labels[valid] < 0).any():
        raise OpError("labels must not be negative")
    ended = np.cumsum(valid & (labels >= blank), axis=1) > 0
    if (ended & valid & (labels < blank)).any():
        raise OpError(f"a label follows a null label ({blank} or more)")
    if times is not None and not ignore_longer and (counts > times).any():
        row = int(np.argmax(counts > times))
        raise OpError(f"sequence {row} has {counts[row]} labels, but {times[row]} steps")


def _path_loss(inputs: Any, targets: Any, count: Any, sequence_length: Any, merge_repeated: bool) -> Any:
    """Return -log of the probability of all paths to the targets, about 1e30 if none."""
    steps, batch, classes = inputs.shape
    blank, dtype = classes - 1, inputs.dtype
    log_zero = jnp.asarray(_LOG_ZERO, dtype)
    # States: a blank before, between and after the labels.
    pairs = jnp.stack([jnp.full_like(targets, blank), targets], axis=2).reshape(batch, 2 * targets.shape[1])
    states = jnp.concatenate([pairs, jnp.full((batch, 1), blank, targets.dtype)], axis=1)
    width = states.shape[1]
    index, end = jnp.arange(width), 2 * count[:, None]
    is_label = index % 2 == 1
    previous = jnp.concatenate([jnp.full((batch, 2), -1, states.dtype), states], axis=1)[:, :width]
    skips = is_label & (index > 1) & ((states != previous) if merge_repeated else True)
    emitted = jnp.take_along_axis(jax.nn.log_softmax(inputs, axis=2), states[None], axis=2, mode="clip")
    emitted = jnp.maximum(emitted, log_zero)

    def shifted(alpha: Any, by: int) -> Any:
        return jnp.concatenate([jnp.full((batch, by), log_zero), alpha], axis=1)[:, :width]

    def body(alpha: Any, item: Any) -> Any:
        step, emitted = item
        stay = alpha if merge_repeated else jnp.where(is_label, log_zero, alpha)
        total = jnp.logaddexp(stay, shifted(alpha, 1))
        total = jnp.logaddexp(total, jnp.where(skips, shifted(alpha, 2), log_zero))
        total = jnp.maximum(jnp.where(index <= end, total + emitted, log_zero), log_zero)
        return jnp.where((step < sequence_length)[:, None], total, alpha), None

    # In the first blank, before the first step.
    start = jnp.broadcast_to(jnp.where(index == 0, jnp.zeros_like(log_zero), log_zero), (batch, width))
    alpha = scan(body, start, (lax.iota(np.int32, steps), emitted))[0]
    last = jnp.where((index == end) | (index == end - 1), alpha, log_zero)
    return -jax.nn.logsumexp(last, axis=1)


# Compiled even outside jit: about a hundred small operations.
@partial(jax.jit, static_argnums=(5,))
def _loss_and_gradient(
    inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any, merge_repeated: bool
) -> tuple[Any, Any]:
    def total(inputs: Any) -> tuple[Any, Any]:
        loss = _path_loss(inputs, targets, count, sequence_length, merge_repeated)
        return jnp.sum(loss), loss

    gradient, loss = jax.grad(total, has_aux=True)(inputs)
    # Without any path TensorFlow's gradient is the softmax.
    no_path = loss > -_LOG_ZERO / 2
    gradient = jnp.where(no_path[:, None], jax.nn.softmax(inputs, axis=2), gradient)
    unused = (sequence_length == 0) | longer
    steps = lax.iota(np.int32, inputs.shape[0])[:, None]
    gradient = jnp.where(((steps < sequence_length) & ~unused)[..., None], gradient, jnp.zeros_like(gradient))
    return jnp.where(unused, 0, jnp.where(no_path, jnp.inf, loss)).astype(inputs.dtype), gradient


@jax.custom_jvp
def _merge_repeated(inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any) -> tuple[Any, Any]:
    return _loss_and_gradient(inputs, targets, count, longer, sequence_length, True)


@jax.custom_jvp
def _keep_repeated(inputs: Any, targets: Any, count: Any, longer: Any, sequence_length: Any) -> tuple[Any, Any]:
    return _loss_and_gradient(inputs, targets, count, longer, sequence_length, False)


def _loss_jvp(function: Any) -> Any:
    def jvp(primals: Any, tangents: Any) -> Any:
        loss, gradient = function(*primals)
        # TensorFlow defines no second derivative.
        return (loss, gradient), (jnp.sum(gradient * tangents[0], axis=(0, 2)), jnp.zeros_like(gradient))

    return jvp


_merge_repeated.defjvp(_loss_jvp(_merge_repeated))
_keep_repeated.defjvp(_loss_jvp(_keep_repeated))


@op("CTCLoss", pattern=Pattern.MATERIALIZED)
def ctc_loss(
    inputs,
    labels_indices,
    labels_values,
    sequence_length,
    *,
    preprocess_collapse_repeated=False,
    ctc_merge_repeated=True,
    ignore_longer_outputs_than_inputs=False,
):
    """Compute the loss of each sequence, and its gradient with respect to the inputs.

    TF: core/kernels/ctc_loss_op.cc.

    The entries of a row of labels must be consecutive. Traced labels are not checked: a sequence with too few time
    steps for its labels has an infinite loss, an error in TensorFlow.

    Args:
      inputs: logits [time, batch, classes]; the last class is the blank.
      labels_indices: int64 [labels, 2], (batch, position) in increasing order.

    Returns:
      The loss [batch] and its gradient, of the inputs' shape; both of the inputs' dtype.
    """
    check_lengths(inputs, sequence_length)
    if labels_indices.ndim != 2 or labels_values.ndim != 1 or labels_indices.shape[0] != labels_values.shape[0]:
        raise OpError(f"labels_indices {labels_indices.shape} do not fit labels_values {labels_values.shape}")
    inputs, lengths = jnp.asarray(inputs), jnp.asarray(sequence_length)
    batch, blank = inputs.shape[1], inputs.shape[2] - 1
    indices = static_value(labels_indices)
    if indices is not None and indices.size and ((indices[:, 0] < 0) | (indices[:, 0] >= batch)).any():
        raise OpError(f"an index of the labels is out of range for {batch} sequences")
    if indices is not None and (np.diff(indices[:, 0]) < 0).any():
        raise OpError("the labels' indices are out of order")
    collapse = preprocess_collapse_repeated
    rows, counts, raw_counts = _dense_labels(labels_indices, labels_values, batch, inputs.shape[0], collapse)
    _check_labels(rows, raw_counts, sequence_length, blank, ignore_longer_outputs_than_inputs)
    targets, count = _targets(rows, counts, blank, collapse)
    # The number before collapsing is compared, as in TensorFlow.
    longer = jnp.asarray(raw_counts) > lengths if ignore_longer_outputs_than_inputs else jnp.zeros(batch, bool)
    run = _merge_repeated if ctc_merge_repeated else _keep_repeated
    loss, gradient = run(inputs, targets, count, longer, lengths)
    return loss, lax.stop_gradient(gradient)


@op("CTCLossV2", pattern=Pattern.MATERIALIZED)
@functools.wraps(ctc_loss, assigned=())
def ctc_loss_v2(
    inputs: Array, labels_indices: Array, labels_values: Array, sequence_length: Array, **attrs: Any
) -> tuple[Array, Array]:
    """Compute `ctc_loss` with class 0 as the blank.

    TF: tf.raw_ops.CTCLossV2.

    TensorFlow has a kernel for GPUs only.
    """
    labels_values = labels_values - np.ones((), labels_values.dtype)
    inputs = jnp.roll(jnp.asarray(inputs), -1, axis=-1)
    loss, gradient = ctc_loss(inputs, labels_indices, labels_values, sequence_length, **attrs)
    return loss, jnp.roll(gradient, 1, axis=-1)


# ---- decoding ----


@op("CTCGreedyDecoder")
def ctc_greedy_decoder(inputs, sequence_length, *, merge_repeated=False, blank_index=-1, bound: Bound):
    """Decode the most probable class of each time step.

    TF: core/kernels/ctc_decoder_ops.cc.

    Args:
      blank_index: index of the blank class; from the end if negative.

    Returns:
      int64 indices [labels, 2], values [labels] and dense shape [2]; and the negative sum of the largest inputs [batch,
      1].
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
    valid = xp.arange(inputs.shape[0]) < lengths[:, None]
    score = -xp.sum(xp.where(valid.T, xp.max(inputs, axis=2), 0), axis=0, dtype=inputs.dtype)[:, None]
    keep = valid & (best != blank)
    if merge_repeated:
        keep &= xp.concatenate([xp.ones((best.shape[0], 1), bool), best[:, 1:] != best[:, :-1]], axis=1)[
            :, : best.shape[1]
        ]
    column = xp.cumsum(keep, axis=1) - 1
    int64 = canonical(np.int64)
    shape = xp.stack([xp.asarray(best.shape[0]), xp.max(xp.sum(keep, axis=1), initial=0)]).astype(int64)
    if static:
        rows, steps = np.nonzero(keep)
        indices = np.stack([rows, column[rows, steps]], axis=1).astype(int64)
        return indices, best[rows, steps].astype(int64), shape, score
    size = row_capacity(bound, keep.shape[0] * keep.shape[1], "the number of decoded labels depends on traced values")
    rows, steps = truncate_rows(
        bound, lambda: jnp.count_nonzero(keep), *jnp.nonzero(keep, size=size, fill_value=-1), of=(keep,)
    )
    decoded = rows >= 0
    indices = jnp.where(decoded[:, None], jnp.stack([rows, column[rows, steps]], axis=1), -1).astype(int64)
    return indices, jnp.where(decoded, best[rows, steps], 0).astype(int64), shape, score


_ZERO = -math.inf


def _add(a: float, b: float) -> float:
    """Return the logarithm of the sum of two probabilities given as logarithms."""
    high, low = max(a, b), min(a, b)
    return high if low == _ZERO else high + math.log1p(math.exp(low - high))


class _Beam:
    """A prefix of labels, with log probabilities of its paths.

    They are those of all paths, of paths that end with a blank, and of paths that end with the label.
    """

    __slots__ = ("blank", "children", "label", "labelled", "old", "parent", "total")

    def __init__(self, parent: _Beam | None, label: int):
        self.parent, self.label = parent, label
        # A prefix that leaves the beam and returns is the same object: longer prefixes refer to it.
        self.children: dict[int, _Beam] = {}
        self.old = (_ZERO, _ZERO)  # total and blank before this step
        self.drop()

    def drop(self) -> None:
        self.total = self.blank = self.labelled = _ZERO


class _Search:
    """The search on one sequence."""

    def __init__(self, width: int, blank: int):
        self._width, self._blank = width, blank
        root = _Beam(None, -1)
        root.total = root.blank = 0.0
        self._leaves = [root]

    def step(self, log_probs: list[float]) -> None:
        """Advance by one time step with the log probabilities of its classes."""
        branches = sorted(self._leaves, key=lambda b: -b.total)
        for b in branches:
            b.old = (b.total, b.blank)
        for b in branches:
            if b.parent is not None:
                if b.parent.total != _ZERO:
                    before = b.parent.old[1] if b.label == b.parent.label else b.parent.old[0]
                    b.labelled = _add(b.labelled, before)
                b.labelled += log_probs[b.label]
            b.blank = b.old[0] + log_probs[self._blank]
            b.total = _add(b.blank, b.labelled)
        # A min-heap; the number avoids comparisons of beams.
        heap = [(b.total, -i, b) for i, b in enumerate(branches)]
        heapq.heapify(heap)
        number = len(heap)
        for b in branches:
            if not self._fits(heap, b.old[0]):
                continue
            for label, log_prob in enumerate(log_probs):
                if label == self._blank:
                    continue
                child = b.children.get(label)
                if child is None:
                    child = b.children[label] = _Beam(b, label)
                if child.total != _ZERO:
                    continue
                total = log_prob + (b.old[1] if label == b.label else b.old[0])
                if not self._fits(heap, total):
                    child.old = (_ZERO, _ZERO)
                    continue
                child.blank, child.labelled, child.total = _ZERO, total, total
                if len(heap) == self._width:
                    heapq.heappop(heap)[2].drop()
                heapq.heappush(heap, (total, -number, child))
                number += 1
        self._leaves = [b for _, _, b in sorted(heap, key=lambda item: item[:2], reverse=True)]

    def _fits(self, heap: list[Any], total: float) -> bool:
        return total > _ZERO and (len(heap) < self._width or total > heap[0][0])

    def best(self, count: int, merge_repeated: bool) -> list[tuple[list[int], float]]:
        """Return the most probable prefixes and their log probabilities."""
        if count > len(self._leaves):
            raise OpError(f"the search has found {len(self._leaves)} paths, fewer than top_paths = {count}")
        return [(self._labels(b, merge_repeated), b.total) for b in self._leaves[:count]]

    @staticmethod
    def _labels(beam: _Beam, merge_repeated: bool) -> list[int]:
        out: list[int] = []
        following = -1
        while beam.parent is not None:
            if not merge_repeated or beam.label != following:
                out.append(beam.label)
            following, beam = beam.label, beam.parent
        return out[::-1]


def _search(logits: np.ndarray, width: int, top_paths: int, merge_repeated: bool) -> list[tuple[list[int], float]]:
    logits = logits.astype(np.float64)
    high = logits.max(axis=1, keepdims=True)
    log_probs = logits - high - np.log(np.sum(np.exp(logits - high), axis=1, keepdims=True))
    search = _Search(width, logits.shape[1] - 1)
    for row in log_probs.tolist():
        search.step(row)
    return search.best(top_paths, merge_repeated)


@op("CTCBeamSearchDecoder")
def ctc_beam_search_decoder(inputs, sequence_length, *, beam_width, top_paths, merge_repeated=True, bound: Bound):
    """Find the most probable label sequences by beam search, outside ``jit``.

    TF: core/kernels/ctc_decoder_ops.cc.

    Of equally probable sequences, TensorFlow may return another one.

    Args:
      inputs: logits [time, batch, classes], static; the last class is the blank.

    Returns:
      Lists of ``top_paths`` int64 indices [labels, 2], values [labels] and dense shapes [2]; and log probabilities
      [batch, top_paths].
    """
    check_lengths(inputs, sequence_length)
    if not (isinstance(inputs, np.ndarray) and isinstance(sequence_length, np.ndarray)):
        raise OpError("a beam search runs on the host: the inputs must be static, so call the function outside jit")
    if top_paths > beam_width:
        raise OpError(f"top_paths {top_paths} must not exceed beam_width {beam_width}")
    results = [
        _search(inputs[:length, b], beam_width, top_paths, merge_repeated)
        for b, length in enumerate(sequence_length.tolist())
    ]
    int64 = canonical(np.int64)
    indices, values, shapes = [], [], []
    for k in range(top_paths):
        paths = [row[k][0] for row in results]
        indices.append(np.array([(b, i) for b, p in enumerate(paths) for i in range(len(p))], int64).reshape(-1, 2))
        values.append(np.array([label for p in paths for label in p], int64))
        shapes.append(np.array([len(paths), max(map(len, paths), default=0)], int64))
    scores = np.array([[score for _, score in row] for row in results], inputs.dtype).reshape(-1, top_paths)
    return indices, values, shapes, scores
