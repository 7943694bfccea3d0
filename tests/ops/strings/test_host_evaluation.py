"""Results of string ops do not exceed their bounds."""

import numpy as np
import pytest

from tf2jax_lite.frontend.runtime.string_evaluator import StringEvaluator
from tf2jax_lite.ops.strings.host_evaluation import MOST_BYTES


def texts(*values):
    return np.array([v.encode() for v in values], object)


def text(value):
    return np.array(value.encode(), object)


WORDS = texts("", "a", "ab cd,ef", "x" * 300, "grün " * 20)
UNICODE = {"input_encoding": "UTF-8", "errors": "replace", "replacement_char": 0xFFFD}
SEGMENTS = {"Tindices": np.dtype(np.int32), "Tnumsegments": np.dtype(np.int32)}
MADE = {
    "rewritten nothing": ("RegexReplace", [WORDS, text(""), text("longer than what it stands for")], {}),
    "rewritten bytes": ("StaticRegexReplace", [WORDS], {"pattern": ".", "rewrite": r"\0\0\0" * 9}),
    "rewritten whole": ("StaticRegexReplace", [WORDS], {"pattern": "(.*)", "rewrite": r"\1-\1-\0"}),
    "bytes as strings": ("StringSplit", [texts("abc" * 50), text("")], {"skip_empty": False}),
    "separators": ("StringSplitV2", [texts("," * 200), text(",")], {"maxsplit": -1}),
    "joined": ("ReduceJoin", [np.stack([WORDS, WORDS]), np.int32([0])], {"separator": "---" * 20}),
    "joined nothing": ("ReduceJoin", [np.zeros([0, 50], object), np.int32([0])], {}),
    "segments": (
        "UnsortedSegmentJoin",
        [WORDS, np.int32([0, 0, 1, 1, 900]), np.int32(1000)],
        {**SEGMENTS, "separator": "|" * 40},
    ),
    "segments of nothing": ("UnsortedSegmentJoin", [np.zeros([0, 9], object), np.int32([]), np.int32(100)], SEGMENTS),
    "parts": (
        "Substr",
        [WORDS[3:4, None], np.zeros([1, 90], np.int32), np.full([1, 90], 300, np.int32)],
        {"T": np.dtype(np.int32)},
    ),
    "padded": ("DecodePaddedRaw", [WORDS, np.int32(4000)], {"out_type": np.dtype(np.uint8)}),
    "ngrams": (
        "StringNGrams",
        [WORDS, np.int64([0, 0, 2, 5])],
        {
            "Tsplits": np.dtype(np.int64),
            "separator": "--",
            "ngram_widths": [1, 7, 40],
            "left_pad": "<" * 9,
            "right_pad": ">" * 30,
            "pad_width": -1,
            "preserve_short_sequences": True,
        },
    ),
    "characters": ("UnicodeDecodeWithOffsets", [WORDS], UNICODE),
    "damaged": (
        "UnicodeTranscode",
        [np.array([b"\xff" * 200], object)],
        {**UNICODE, "output_encoding": "UTF-32-BE", "replace_control_characters": False},
    ),
    "base 64": ("EncodeBase64", [WORDS], {"pad": True}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MADE)
def test_bounds_hold(name):
    op, inputs, attrs = MADE[name]
    results = StringEvaluator(1 << 30).evaluate(op, inputs, attrs)
    size = sum(sum(map(len, v.flat)) + 32 * v.size if v.dtype == object else v.nbytes for v in results)
    assert 0 < size <= MOST_BYTES[op](inputs, attrs)
