"""Parse StableHLO in a child process first, since MLIR may crash on it.

The child process is started once and reused, so a payload costs about as much as two reads. This process reads only
payloads that the child has read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from tf2jax_lite.support.errors import InvalidModelError
from tf2jax_lite.support.limits import check_bytes, is_trusted

__all__ = ["check_payload"]

_SCRIPT = Path(__file__).with_name("child_process.py")
_SECONDS_TO_START = 120.0
_SECONDS_TO_READ = 20.0
_MOST_KNOWN = 4096
_NO_START = (
    "the process that reads StableHLO first does not start. For modules that you trust, do without it: "
    'override_config("trusted", "StableHLO").'
)


class _Parser:
    """The other process, and its output so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._known: dict[bytes, bytes] = {}

    def answer(self, payload: bytes) -> bytes:
        """Return the process's answer; "" if it ends or exceeds the time."""
        key = hashlib.sha256(payload).digest()
        with self._lock:
            if key not in self._known:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = self._ask(payload)
            return self._known[key]

    def _ask(self, payload: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(len(payload).to_bytes(8, "little") + payload)
            process.stdin.flush()
            answer = _read_byte(process, _SECONDS_TO_READ + len(payload) / 1e6)
        except OSError:
            answer = b""
        if not answer:
            self.stop()
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
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
            self._owner = os.getpid()
            if _read_byte(self._process, _SECONDS_TO_START) != b"r":
                self.stop()
                raise InvalidModelError(_NO_START)
        return self._process

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


def _read_byte(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return an answer's byte; nothing if the process ends or works too long."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    begin = _seconds_used(process.pid)
    while _seconds_used(process.pid) - begin < seconds:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if ready:
            return os.read(descriptor, 1)
    return b""


def _seconds_used(pid: int) -> float:
    """Return a process's CPU time if known: busy machines distort the clock."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return time.monotonic()


_parser = _Parser()
atexit.register(_parser.stop)


def check_payload(payload: bytes | str) -> None:
    """Refuse a payload that MLIR cannot read safely.

    Refused are payloads that make MLIR crash, hang or take very much memory, invalid bytecode, and modules without a
    function to call.

    Text that MLIR cannot read is left to the reader, whose message says at which line. Nothing is looked at if
    ``config.trusted`` names "StableHLO".

    Raises:
      InvalidModelError: as said.
      LimitError: a tensor of it takes more than ``config.max_result_bytes``; XLA ends the process where sizes overflow.
    """
    if is_trusted("StableHLO"):
        return
    content = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else bytes(payload)
    answer = _parser.answer(content)
    if answer == b"n" and content.startswith(b"ML\xefR"):
        raise InvalidModelError("the StableHLO payload cannot be read: MLIR says that its bytecode is damaged.")
    if answer == b"f":
        raise InvalidModelError("the StableHLO module has no function 'main', which is the one that is called.")
    if answer >= b"\x80":
        largest = 1 << max(answer[0] - 129, 0)  # of so many binary digits
        check_bytes((largest,), 1, "a tensor of the StableHLO payload", option="max_result_bytes")
    elif answer != b"n":
        raise InvalidModelError(
            "the StableHLO payload is damaged: MLIR crashes, or takes too much time or memory, when it reads it."
        )
