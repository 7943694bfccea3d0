"""String ops that TensorFlow may evaluate at conversion, with size bounds.

They are pure functions of static inputs. Replacement of a regular expression, padding to a width, or a number of
segments can make large results of small inputs; so the bound is checked before evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Bytes of a string in TensorFlow and in NumPy, beside its characters; and of a string of one byte with its index in a
# sparse tensor.
_PER_STRING, _PER_BYTE = 128, 160
_LONGEST_NUMBER = 320  # characters of a float64 without an exponent, before the point


def _flat(args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(v) for arg in args for v in (arg if isinstance(arg, list) else [arg])]


def text_bytes(array: np.ndarray) -> int:
    """Return the number of bytes of an array or of its strings."""
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _longest(array: np.ndarray) -> int:
    return max(map(len, array.flat), default=0)


def is_text(value: Any) -> bool:
    """Return whether a value is an array of strings, not of symbolic dimensions."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype.hasobject
        and value.size > 0
        and isinstance(value.flat[0], (bytes, str))
    )


def linear(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return a bound for results of at most a constant times the inputs' size."""
    del attrs
    flat = _flat(args)
    return _PER_BYTE * sum(map(text_bytes, flat)) + _PER_STRING * sum(v.size for v in flat)


def _text(attrs: Mapping[str, Any], name: str) -> int:
    return len(str(attrs.get(name, "")).encode("utf-8", "surrogateescape"))


def _replaced(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return a bound for replacements around each byte, with back-references."""
    (text, *patterns) = _flat(args)
    rewrite = _longest(patterns[1]) if len(patterns) > 1 else _text(attrs, "rewrite")
    return (text_bytes(text) + text.size) * (1 + 2 * rewrite) + _PER_STRING * text.size


def _joined(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return a bound for strings joined along axes; an empty join gives one string."""
    text = _flat(args)[0]
    count = math.prod(max(size, 1) for size in text.shape)
    return text_bytes(text) + count * (_PER_STRING + _text(attrs, "separator"))


def _joined_by_segment(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    text, ids, count = _flat(args)
    rest = math.prod(max(size, 1) for size in text.shape[ids.ndim :])
    return max(int(count), 0) * rest * _PER_STRING + _joined([text], attrs)


def _parts(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    del attrs
    text, *others = _flat(args)
    try:
        count = math.prod(np.broadcast_shapes(text.shape, *(p.shape for p in others)))
    except ValueError:
        count = text.size  # TensorFlow raises the error
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


def _concatenated(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return a bound for strings joined element by element, with broadcasting."""
    flat = _flat(args)
    count = math.prod(np.broadcast_shapes(*(v.shape for v in flat)))
    text = sum(text_bytes(v) * (count // v.size) for v in flat if v.size)
    return text + count * (_PER_STRING + len(flat) * _text(attrs, "separator"))


def _as_text(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    (value,) = _flat(args)
    more = max(attrs.get("width", -1), 0) + max(attrs.get("precision", -1), 0)
    return text_bytes(value) + value.size * (_PER_STRING + _LONGEST_NUMBER + more)


def _filled(args: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    escaped = 4 * sum(map(text_bytes, _flat(args)))
    return escaped + _LONGEST_NUMBER * sum(v.size for v in _flat(args)) + _text(attrs, "template")


COMPUTED_BYTES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], int]] = {
    "Add": _concatenated,
    "AsString": _as_text,
    "StringFormat": _filled,
    "StringJoin": _concatenated,
}
"""Upper bound of the bytes of strings that an op of ours makes, as `MOST_BYTES`; other ops only move strings."""

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
"""Upper bound of the bytes of an op's results, as a function of its inputs and attributes."""
