"""CTC beam search in Python on the host.

A tree search with data-dependent branches, as in tensorflow/core/util/ctc.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from .ctc_loss import check_lengths

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
