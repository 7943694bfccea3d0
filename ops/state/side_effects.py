"""Ops with side effects: Assert, Print, StringFormat, Timestamp.

TF: core/kernels/logging_ops.cc.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.strings.string_ops import ByteStrings, encoded, to_numpy
from tf2jax_lite.ops.traits import Option, Unconditional, Unconverted
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.int64 import to_32_bits
from tf2jax_lite.values.static import as_array, canonical, is_static, static_value


@op("Assert", side_effect=True)
def assert_(
    condition,
    data: Unconverted,
    *,
    summarize=3,
    enable_checkify_for_asserts: Option[bool] = False,
    certain: Unconditional,
):
    """Raise if a static condition is false; check a traced one if configured.

    In a branch chosen at run time (such as the default of `tf.switch_case`) a false static condition is checked like a
    traced one: it fails only if the branch is taken.
    """
    found = static_value(condition)
    if found is not None and bool(np.all(found)):
        return ()
    if found is not None and certain:
        raise OpError(f"assertion failed: {_format_data(data, summarize)}")
    if enable_checkify_for_asserts:
        text = f"assertion failed: {_format_data(data, summarize)}"
        checkify.check(jnp.all(condition), text.replace("{", "{{").replace("}", "}}"))
    return ()


def _format_data(data: list[Any], count: int) -> str:
    return ", ".join(_format_value(d, count) for d in data)


def _format_value(value: Any, count: int) -> str:
    if isinstance(value, Text):
        return value.template
    found = static_value(value)
    if found is None:
        return f"<{value.dtype}{list(value.shape)}>"
    items = found.reshape(-1)[: count if count >= 0 else None]
    return " ".join(i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items)


# ---- text ----


@dataclasses.dataclass(frozen=True)
class Text:
    """A string formatted from traced values; it can only be printed.

    Attributes:
      template: the template of StringFormat.
      placeholder: the substring of the template that is replaced by a value.
      inputs: the values, static or traced.
      summarize: number of elements printed at either end of a dimension.
    """

    template: str
    placeholder: str
    inputs: tuple[Any, ...]
    summarize: int


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _string(text: str) -> np.ndarray:
    return np.array(encoded(text), object)


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\{ord(c):03o}") for c in text)


def _element(value: Any) -> str:
    """Format one element as tensor.cc: with 6 digits if exact, else 9 (15, 17)."""
    if isinstance(value, bytes):
        return f'"{_escaped(_decode(value))}"'
    dtype = np.asarray(value).dtype
    if dtype.kind == "O":
        return str(value)
    if dtype == np.bool_:
        return str(int(value))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return "?"
    if jnp.issubdtype(dtype, jnp.floating):
        double = dtype == np.float64
        short = f"{float(value):.{15 if double else 6}g}"
        same = np.isnan(value) or (float(short) if double else np.float32(short)) == value
        return short if same else f"{float(value):.{17 if double else 9}g}"
    return str(int(value))


def _separator(level: int, rank: int) -> str:
    return " " if level == rank - 1 else "\n" * (rank - 1 - level) + " " * (level + 1)


def _dimension(value: np.ndarray, level: int, rank: int, ends: int) -> str:
    if level == rank:
        return _element(value[()])
    count = value.shape[0]
    out = ""
    for i in range(min(ends, count)):
        out += (_separator(level, rank) if i else "") + _dimension(value[i, ...], level + 1, rank, ends)
    if count > 2 * ends:
        out += _separator(level, rank) + "..."
    for i in range(max(ends, count - ends), count):
        out += _separator(level, rank) + _dimension(value[i, ...], level + 1, rank, ends)
    return f"[{out}]"


def _summary(value: Any, summarize: int) -> str:
    value = np.asarray(value)
    if not summarize and value.dtype == np.bool_:
        return ""
    if value.ndim == 0:
        return _element(value[()]) if summarize else "..."
    ends = value.size if summarize < 0 else min(summarize, value.size)
    return _dimension(value, 0, value.ndim, ends)


def _filled(template: str, placeholder: str, inputs: list[Any], summarize: int) -> str:
    parts = template.split(placeholder)
    if len(parts) != len(inputs) + 1:
        raise OpError(f"{len(parts) - 1} placeholders in the template and {len(inputs)} inputs")
    return parts[0] + "".join(_summary(v, summarize) + p for v, p in zip(inputs, parts[1:], strict=True))


@op("StringFormat", int64="pair")
def string_format(inputs: Unconverted, *, template="%s", placeholder="%s", summarize=3):
    """Format tensors by a template.

    TF: core/kernels/string_format_op.cc.

    Returns a `Text`, which can only be printed, if a tensor is traced.
    """
    values = [v if static_value(v) is None else static_value(v) for v in map(_operand, inputs)]
    if all(isinstance(v, np.ndarray) for v in values):
        return _string(_filled(template, placeholder, values, summarize))
    return Text(template, placeholder, tuple(values), summarize)


def _operand(value: Any) -> Any:
    return value if is_static(value) or isinstance(value, ByteStrings) else as_array(to_32_bits(value))


# ---- printing ----


def _stream(name: str) -> Callable[[str], None]:
    if name == "stdout" or name == "stderr" or name.startswith("log("):
        return lambda text: print(text, end="", file=sys.stdout if name == "stdout" else sys.stderr, flush=True)
    raise UnsupportedAttributeError(f"output_stream {name!r}: only stdout, stderr and the logs can be printed to")


def _print(write: Callable[[str], None], make: Callable[..., str], values: list[Any]) -> None:
    """Print when the node runs: each time, also under ``jit``."""
    static = [static_value(v) for v in values]
    traced = [v for v, s in zip(values, static, strict=True) if s is None]

    def run(*found: Any) -> None:
        given = iter(found)
        text = make([_to_numpy(next(given)) if s is None else s for s in static])
        write(encoded(text).decode("utf-8", "replace"))

    jax.debug.callback(run, *traced)


def _to_numpy(value: Any) -> np.ndarray:
    return to_numpy(value) if isinstance(value, ByteStrings) else np.asarray(value)


def _print_v2(input: Any, *, output_stream: str = "stderr", end: str = "\n") -> Any:
    write = _stream(output_stream)
    if isinstance(input, Text):
        text = input
        _print(write, lambda v: _filled(text.template, text.placeholder, v, text.summarize) + end, [*text.inputs])
    else:
        _print(write, lambda v: _decode(v[0][()]) + end, [input])
    return ()


@op("PrintV2", fold=_print_v2, side_effect=True, int64="pair")
def print_v2(input: Unconverted, *, output_stream="stderr", end="\n"):
    """Print a string when the function runs, in no fixed order under ``jit``."""
    return _print_v2(input, output_stream=output_stream, end=end)


@op("Print", side_effect=True)
def print_(input, data: Unconverted, *, message="", first_n=-1, summarize=3):
    """Return the input and print the data.

    The format is that of StringFormat. ``first_n`` counts runs in TensorFlow; there is no such state here, so only 0
    has an effect.
    """
    if first_n != 0:
        write = _stream("stderr")
        _print(
            write, lambda v: message + "".join(f"[{_summary(d, summarize)}]" for d in v) + "\n", [*map(_operand, data)]
        )
    return input


@op("Timestamp")
def timestamp():
    """Return seconds since the epoch at tracing time, a constant under ``jit``."""
    return np.asarray(time.time(), canonical(np.float64))
