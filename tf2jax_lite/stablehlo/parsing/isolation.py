"""Parse StableHLO in a child process first, since MLIR may crash on it.

The child process is started once and reused, so a payload costs about as much as two reads. This process reads only
payloads that the child has read.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tf2jax_lite.support.call_graph import check_size
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InvalidModelError, ShapeMismatchError, UnsupportedError
from tf2jax_lite.support.limits import check_result, is_trusted

_SCRIPT = Path(__file__).with_name("child_process.py")
_SECONDS_TO_START = 120.0
_SECONDS_TO_READ = 20.0
_MOST_KNOWN = 4096
_MAX_ANSWER = 1 << 28
_MAX_CALL_DEPTH = 200  # as many calls as the interpreter nests
_NO_START = (
    "the process that reads StableHLO first does not start. For modules that you trust, do without it: "
    'override_config("trusted", "StableHLO").'
)

DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "ui2": ml_dtypes.uint2,
    "ui4": ml_dtypes.uint4,
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{
        name: getattr(ml_dtypes, "float" + name[1:].lower().replace("e", "_e", 1))
        for name in ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
        if hasattr(ml_dtypes, "float" + name[1:].lower().replace("e", "_e", 1))
    },
    **{
        name: getattr(ml_dtypes, "float8_" + name[2:].lower())
        for name in (
            "f8E3M4",
            "f8E4M3",
            "f8E4M3FN",
            "f8E4M3FNUZ",
            "f8E4M3B11FNUZ",
            "f8E5M2",
            "f8E5M2FNUZ",
            "f8E8M0FNU",
        )
        if hasattr(ml_dtypes, "float8_" + name[2:].lower())
    },
}
"""The NumPy dtypes of the element types of MLIR."""


@dataclasses.dataclass(frozen=True)
class Payload:
    """Facts of a payload that was read.

    Attributes:
      arguments: element type, as in MLIR, and shape of each array that ``main`` takes; None stands for a dynamic size.
      results: the same of its results; None for tokens.
      is_dynamic: whether any size is dynamic.
      has_dynamic_calls: whether custom calls have dynamic sizes, so that each call's sizes are to be checked, too.
    """

    arguments: Sequence[Any]
    results: Sequence[Any]
    is_dynamic: bool
    has_dynamic_calls: bool


class _Parser:
    """The other process, and its output so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._is_ready = False
        self._known: dict[bytes, Mapping[str, Any]] = {}

    def answer(self, payload: bytes, shapes: Sequence[Sequence[int]] | None = None) -> Mapping[str, Any]:
        """Return the process's answer; nothing if it ends or exceeds the time."""
        sizes = b"" if shapes is None else json.dumps([list(map(int, shape)) for shape in shapes]).encode()
        key = hashlib.sha256(payload).digest() + sizes
        with self._lock:
            if key not in self._known:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = self._ask(payload, sizes)
            return self._known[key]

    def _ask(self, payload: bytes, sizes: bytes) -> Mapping[str, Any]:
        process = self._running()
        assert process.stdin is not None
        seconds = _SECONDS_TO_READ + len(payload) / 1e6
        try:
            process.stdin.write(len(payload).to_bytes(8, "little") + len(sizes).to_bytes(8, "little") + payload + sizes)
            process.stdin.flush()
            length = int.from_bytes(_read(process, 4, seconds), "little")
            answer = json.loads(_read(process, length, seconds)) if 0 < length <= _MAX_ANSWER else {}
        except (OSError, ValueError):
            answer = {}
        if not answer:
            self.stop()
        return answer

    def prepare(self) -> None:
        """Start the process without waiting for it; an error is for the first question."""
        with self._lock, contextlib.suppress(InvalidModelError):
            self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a forked process must not talk to its parent's
            self._process = None
        if self._process is None or self._process.poll() is not None:
            self.stop()
            command = [sys.executable, "-S", "-E", str(_SCRIPT), *sys.path]
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
                )
            except (OSError, TypeError, ValueError) as error:  # no processes here, or no Python of our own
                raise InvalidModelError(_NO_START) from error
            self._owner, self._is_ready = os.getpid(), False
        return self._process

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._started()
        if not self._is_ready:
            if _read(process, 1, _SECONDS_TO_START) != b"r":
                self.stop()
                raise InvalidModelError(_NO_START)
            self._is_ready = True
        return process

    def stop(self) -> None:
        """Stop the process."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()


def _read(process: subprocess.Popen[bytes], length: int, seconds: float) -> bytes:
    """Return a part of an answer; nothing if the process ends or works too long."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    begin = _seconds_used(process.pid)
    parts: list[bytes] = []
    while length and _seconds_used(process.pid) - begin < seconds:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if ready:
            parts.append(os.read(descriptor, length))
            if not parts[-1]:
                return b""
            length -= len(parts[-1])
    return b"" if length else b"".join(parts)


def _seconds_used(pid: int) -> float:
    """Return a process's CPU time if known: busy machines distort the clock."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return time.monotonic()


_parser = _Parser()
atexit.register(_parser.stop)


def prepare() -> None:
    """Start the other process, which takes a while, before there is a payload."""
    if not is_trusted("StableHLO"):
        _parser.prepare()


def check_payload(payload: bytes | str, shapes: Sequence[Sequence[int]] | None = None) -> Payload | None:
    """Refuse a payload that MLIR cannot read, or XLA cannot run, safely.

    Refused are payloads that make MLIR crash, hang or take very much memory, invalid bytecode, modules without a
    function to call, functions that call themselves or are too large when calls are expanded, and custom calls other
    than those in `custom_calls`.

    Text that MLIR cannot read is left to the reader, whose message says at which line. Nothing is looked at if
    ``config.trusted`` names "StableHLO".

    Args:
      shapes: of all arrays of a call, to look at its custom calls with the sizes that these have then.

    Returns:
      Facts of the module; None if nothing was looked at.
    """
    if is_trusted("StableHLO"):
        return None
    content = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else bytes(payload)
    answer = _parser.answer(content, shapes)
    kind, text = answer.get("problem", ("", ""))
    if kind == "unreadable":
        if content.startswith(b"ML\xefR"):
            raise InvalidModelError("the StableHLO payload cannot be read: MLIR rejects its bytecode.")
        return None
    if kind == "nesting":
        raise InvalidModelError("the StableHLO module nests its regions or attributes too deeply.")
    if kind in _KINDS:
        raise _KINDS[kind](text)
    if not answer or kind:
        raise InvalidModelError(
            "the StableHLO payload cannot be read: MLIR crashes, or takes too much time or memory, when it reads it."
        )
    if answer["main"] is None:
        raise InvalidModelError("the StableHLO module has no function 'main', which is the one that is called.")
    check_result((answer["bytes"],), 1, "a tensor of the StableHLO payload")
    functions = answer["functions"]
    check_size(
        {name: callees for name, (_, callees) in functions.items()},
        {name: count for name, (count, _) in functions.items()},
        current_config().max_nodes,
        _MAX_CALL_DEPTH,
    )
    arguments, results = answer["main"]
    return Payload(arguments, results, answer["is_dynamic"], answer["has_dynamic_calls"])


_KINDS = {"unsupported": UnsupportedError, "invalid": InvalidModelError, "sizes": ShapeMismatchError}
