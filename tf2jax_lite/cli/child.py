"""Run a command in a child process, as TensorFlow's kernels may crash it."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from tf2jax_lite.support.errors import CrashedError

from . import quiet

# Prefix of lines that name steps; other lines are the child's stderr.
_STEP = "\x1estep "
# Number of lines of stderr that are kept, and that an error quotes.
_MAX_KEPT = 200
_MAX_QUOTED = 3
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()
# Time for a child to end after the terminal's Ctrl-C.
_GRACE_SECONDS = 2.0


def report_step(text: str) -> None:
    """Report the next step to a parent process; call it in `quiet.quiet_stderr`."""
    if quiet.sink is not None:
        print(f"{_STEP}{text}", file=sys.stderr, flush=True)


def in_child() -> int | None:
    """Fork.

    Return None in the child, which continues; in the parent, wait for the child and return its exit code. TensorFlow
    and JAX do not survive a fork after use: a process that has imported one of them, or that cannot fork (Windows),
    continues as if it were the child. The child ends with its parent, and gets the parent's signals.

    Raises:
      CrashedError: a signal ended the child.
    """
    if not hasattr(os, "fork") or not {"jax", "tensorflow"}.isdisjoint(sys.modules):
        return None
    sys.stdout.flush()
    sys.stderr.flush()
    said, says = os.pipe()
    watched, held = os.pipe()
    # Signals are blocked until the handlers are installed.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(said)
        os.close(held)
        quiet.sink = says
        threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
        return None
    os.close(says)
    os.close(watched)
    lines: collections.deque[str] = collections.deque(maxlen=_MAX_KEPT)
    reader = threading.Thread(target=_read, args=(said, lines), daemon=True)
    reader.start()
    with _forwarding(child):
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _, status = os.waitpid(child, 0)
    reader.join(timeout=1)  # a grandchild may still hold the pipe
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if -code in _FORWARDED:
        return 128 - code
    raise CrashedError(_crash(signal.Signals(-code).name, list(lines)))


def _crash(name: str, lines: Sequence[str]) -> str:
    steps = [line.removeprefix(_STEP).strip() for line in lines if line.startswith(_STEP)]
    start = max((i for i, line in enumerate(lines) if line.startswith(_STEP)), default=-1)
    said = [line.strip() for line in lines[start + 1 :] if line.strip()][-_MAX_QUOTED:]
    where = f" in step {steps[-1]!r}" if steps else ""
    quoted = f": {' | '.join(said)[:400]}" if said else ""
    advice = "This is no verdict on the conversion; other inputs (--inputs, --batch-size) may avoid it."
    if name == "SIGKILL":
        advice = "Another process did that, or the system for lack of memory."
    elif os.environ.get("TF_ENABLE_ONEDNN_OPTS", "0") not in ("0", "false"):
        advice = "This is no verdict on the conversion; oneDNN's kernels may be at fault: unset TF_ENABLE_ONEDNN_OPTS."
    return f"the process that runs TensorFlow and JAX was ended by {name}{where}{quoted}. {advice}"


def _read(descriptor: int, lines: collections.deque[str]) -> None:
    with os.fdopen(descriptor, errors="replace") as stream:
        lines.extend(line for line in stream)


def _end_with_parent(descriptor: int) -> None:
    os.read(descriptor, 1)  # returns when the parent has ended
    os._exit(1)


@contextlib.contextmanager
def _forwarding(child: int) -> Iterator[None]:
    """Forward signals to the child; a Ctrl-C in a terminal reaches it directly."""
    late = threading.Timer(_GRACE_SECONDS, os.kill, (child, signal.SIGINT))

    def interrupt(number: int, frame: object) -> None:
        with contextlib.suppress(RuntimeError):  # already started
            late.start()

    def terminate(number: int, frame: object) -> None:
        os.kill(child, number)

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGHUP: terminate}
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        late.cancel()
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
