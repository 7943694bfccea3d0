"""Numbers of the standard data sets' images and text, for their models.

Source: fedjax.datasets. Labels 0, 1 and 2 are padding, begin and end of a text; those of the vocabulary follow, and
then those of all else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.support.errors import DataError, InputError

__all__ = ["SHAKESPEARE_CHARACTERS", "StackoverflowTokenizer", "emnist_images", "shakespeare_sequences"]

Examples = Mapping[str, Any]

PAD, BOS, EOS = 0, 1, 2
_RESERVED = 3
SHAKESPEARE_CHARACTERS = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
"""Those of TensorFlow Federated's tutorial on text generation, in its order."""


def emnist_images(client_id: Any, examples: Examples) -> dict[str, np.ndarray]:
    """Return EMNIST's examples as ``x`` (n, 28, 28, 1), 0 for paper, and ``y``.

    A function for `FederatedData.preprocess_client`.
    """
    return {"x": 1 - np.asarray(examples["pixels"])[..., None], "y": np.asarray(examples["label"], np.int32)}


def shakespeare_sequences(sequence_length: int = 80) -> Callable[[Any, Examples], dict[str, np.ndarray]]:
    """Return a function that cuts Shakespeare's text into sequences.

    It is for `FederatedData.preprocess_client`. All snippets of a client, each between the labels of begin and end,
    make one sequence. ``x`` (n, sequence_length) are its pieces, and ``y`` those of the sequence one label later, with
    padding at the end.

    Args:
      sequence_length: of a piece.

    Raises:
      InputError: it is not at least 1.
    """
    check_number("shakespeare_sequences", "sequence_length", sequence_length, least=1, whole=True)
    table = np.full(256, _RESERVED + len(SHAKESPEARE_CHARACTERS), np.int32)
    table[np.frombuffer(SHAKESPEARE_CHARACTERS, np.uint8)] = _RESERVED + np.arange(len(SHAKESPEARE_CHARACTERS))

    def preprocess(client_id: Any, examples: Examples) -> dict[str, np.ndarray]:
        pieces = [([BOS], table[np.frombuffer(snippet, np.uint8)], [EOS]) for snippet in examples["snippets"]]
        joined = np.concatenate([np.zeros(0, np.int32), *itertools.chain.from_iterable(pieces)]).astype(np.int32)
        rows = -(-max(len(joined) - 1, 0) // sequence_length)

        def cut(labels: np.ndarray) -> np.ndarray:
            padded = np.full(rows * sequence_length, PAD, np.int32)
            padded[: len(labels)] = labels
            return padded.reshape(rows, sequence_length)

        return {"x": cut(joined[:-1]), "y": cut(joined[1:])}

    return preprocess


class StackoverflowTokenizer:
    """Turns Stack Overflow's sentences into labels of words.

    See fedjax.datasets.stackoverflow.

    Args:
      vocab: the words, most frequent first, as text or bytes; without special ones.

    Raises:
      InputError: a word is there twice.
    """

    def __init__(self, vocab: Sequence[str | bytes]):
        words = [word.encode() if isinstance(word, str) else bytes(word) for word in vocab]
        self._labels = {word: _RESERVED + number for number, word in enumerate(words)}
        self._other = _RESERVED + len(words)
        if len(self._labels) != len(words):
            raise InputError("StackoverflowTokenizer: a word of the vocabulary is there twice")

    def as_preprocess_batch(self, max_length: int) -> Callable[[Examples], dict[str, np.ndarray]]:
        """Return a function for `FederatedData.preprocess_batch`.

        It turns ``tokens`` into ``x`` and ``y`` (n, max_length), padded or cut off, and keeps ``domain_id``.

        Args:
          max_length: of a sentence.
        """
        check_number("StackoverflowTokenizer", "max_length", max_length, least=1, whole=True)

        def preprocess(examples: Examples) -> dict[str, np.ndarray]:
            if "tokens" not in examples:
                raise DataError(f"StackoverflowTokenizer: no feature 'tokens' among {sorted(examples)}")
            found = np.full((len(examples["tokens"]), max_length + 1), PAD, np.int32)
            for row, sentence in zip(found, examples["tokens"], strict=True):
                words = (self._labels.get(word, self._other) for word in (sentence.split(b" ") if sentence else ()))
                labels = list(itertools.islice(itertools.chain([BOS], words, [EOS]), max_length + 1))
                row[: len(labels)] = labels
            # A last label that a sentence of exactly that length predicts, but does not read.
            inputs = np.where(found[:, 1:] == PAD, PAD, found[:, :-1])
            kept = {"domain_id": examples["domain_id"]} if "domain_id" in examples else {}
            return {"x": inputs, "y": found[:, 1:], **kept}

        return preprocess
