"""How much ops on strings make of strings that are known, for those that TensorFlow may evaluate at conversion.

They are functions of their inputs and touch nothing else. A regular expression's replacement, a padding to a width or a
number of segments makes much of little, so what can become of it is looked at before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["MOST_BYTES", "linear", "text_bytes"]

# Of a string in TensorFlow and in numpy, beside its bytes; and what a byte becomes that is a string of its own, with
# its place in a sparse tensor.
_PER_STRING, _PER_BYTE = 128, 160


def _flat(args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(v) for arg in args for v in (arg if isinstance(arg, list) else [arg])]


def text_bytes(array: np.ndarray) -> int:
    """Returns how many bytes an array holds, be they of strings."""
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _longest(array: np.ndarray) -> int:
    return max(map(len, array.flat), default=0)


def linear(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Results that are no larger than what goes in, but for a factor."""
    del attrs
    flat = _flat(args)
    return _PER_BYTE * sum(map(text_bytes, flat)) + _PER_STRING * sum(v.size for v in flat)


def _text(attrs: Mapping[str, Any], name: str) -> int:
    return len(str(attrs.get(name, "")).encode("utf-8", "surrogateescape"))


def _replaced(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """There is a place to replace before and after each byte; a replacement may hold the match twice per two bytes."""
    (text, *patterns) = _flat(args)
    rewrite = _longest(patterns[1]) if len(patterns) > 1 else _text(attrs, "rewrite")
    return (text_bytes(text) + text.size) * (1 + 2 * rewrite) + _PER_STRING * text.size


def _joined(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Strings joined along axes: a string for each place along the others, also where there is none to join."""
    text = _flat(args)[0]
    places = math.prod(max(size, 1) for size in text.shape)
    return text_bytes(text) + places * (_PER_STRING + _text(attrs, "separator"))


def _joined_by_segment(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    text, ids, count = _flat(args)
    rest = math.prod(max(size, 1) for size in text.shape[ids.ndim :])
    return max(int(count), 0) * rest * _PER_STRING + _joined([text], attrs)


def _parts(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    del attrs
    text, *places = _flat(args)
    try:
        count = math.prod(np.broadcast_shapes(text.shape, *(p.shape for p in places)))
    except ValueError:
        count = text.size  # TensorFlow says what does not fit
    return count * (_PER_STRING + _longest(text))


def _ngrams(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    text, splits = _flat(args)
    extra = max(_text(attrs, "separator"), 1) + max(_text(attrs, "left_pad"), _text(attrs, "right_pad"))
    total = 0
    for width in attrs.get("ngram_widths", ()):
        padding = width - 1 if attrs.get("pad_width", -1) < 0 else min(attrs["pad_width"], width - 1)
        count = text.size + splits.size * (2 * max(padding, 0) + 1)
        total += count * (_PER_STRING + max(width, 0) * (_longest(text) + extra))
    return total


def _padded_bytes(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    text, length = _flat(args)
    return linear(args, attrs) + text.size * max(int(length), 0)


MOST_BYTES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], int]] = {
    **dict.fromkeys(
        """
        DecodeBase64 DecodeRaw EncodeBase64 RegexFullMatch StaticRegexFullMatch StringLower StringSplit StringSplitV2
        StringStrip StringToNumber StringUpper UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
        UnicodeTranscode
        """.split(),  # noqa: SIM905
        linear,
    ),
    "DecodePaddedRaw": _padded_bytes,
    "ReduceJoin": _joined,
    "RegexReplace": _replaced,
    "StaticRegexReplace": _replaced,
    "StringNGrams": _ngrams,
    "Substr": _parts,
    "UnsortedSegmentJoin": _joined_by_segment,
}
"""The bytes that the results of an op take at most, of its inputs (lists where they are lists) and attributes."""
