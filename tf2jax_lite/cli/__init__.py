"""The command line, ``tf2jax-lite``, and its commands.

Entry: `main`, which runs a command, reports errors in one line, and sets the exit code.

Read in this order:
  shared: the typer app, the console, common options.
  app: inspect, ops and demo; it imports the modules of the other commands.
  convert, finetune, federate, serve, export_tf, verify, doctor: their commands.
  config_file: options of a command from a TOML file.
  child: runs ``verify`` in a child process, since TensorFlow's kernels may crash.
  quiet: drops TensorFlow's messages.
  advice: error texts with command-line options instead of Python calls.

Slow imports (TensorFlow, JAX) stay inside commands. No other package may import this one.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .child import in_child
from .quiet import DEFAULTS, open_streams

__all__ = ["main"]


@contextlib.contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Yield a list that gets an entry when the user interrupts.

    An interruption inside TensorFlow may come out as another error ("REPLACED BY KeyboardInterrupt").
    """
    seen: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or another handler
        yield seen
        return
    try:
        signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # not the main thread
        yield seen
        return
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(app: Callable[[], Any]) -> None:
    """Run a command and flush its output, so that write errors are raised here.

    Raises:
      BrokenPipeError: the reader has closed the pipe. Click would exit with 1, as if the command had failed.
    """
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, OSError) and end.__context__.errno == errno.EPIPE:
            raise end.__context__ from None
        sys.stdout.flush()
        raise


def _with_link(message: str, address: str | None) -> str:
    return message if address is None else f"{message.rstrip('. ')}. See {address}"


def main() -> None:
    """Run the command line; errors in the user's input are one line and exit code 2."""
    open_streams()
    # Imports and tracing allocate millions of objects that stay: with Python's threshold of 700, collections take a
    # tenth of the time of `convert`. Where graphs are read, `support.gc_pause` stops them for library users, too.
    gc.set_threshold(100_000)
    # TensorFlow reads this once, when it is first imported: drop its start-up messages.
    for name in ("TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY"):
        os.environ.setdefault(name, DEFAULTS[name])
    import typer

    from tf2jax_lite.support.errors import Tf2JaxError, entry_address
    from tf2jax_lite.support.text import printable

    from .advice import for_shell
    from .app import app

    keep = "\n\t"

    def refuse(text: object) -> NoReturn:
        typer.secho(f"Error: {printable(text, keep)}", fg=typer.colors.RED, err=True)
        sys.exit(2)

    with _interruptions() as seen:
        try:
            # With --verbose in front, it runs in this process, whose messages are shown.
            if sys.argv[1:2] == ["verify"] and (code := in_child()) is not None:
                sys.exit(code)
            _run(app)
        except Exception as error:
            if seen:
                sys.exit(130)
            if logging.getLogger("tf2jax_lite").isEnabledFor(logging.INFO):  # --verbose
                traceback.print_exc()
            if isinstance(error, Tf2JaxError):
                command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
                refuse(_with_link(for_shell(str(error), command), entry_address(type(error))))
            if isinstance(error, (RecursionError, MemoryError)):
                too_deep = isinstance(error, RecursionError)
                problem = "is nested too deeply" if too_deep else "needs more memory than available"
                refuse(f"the input {problem} ({str(error)[:200]})")
            if type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError"):  # too much memory, an unknown op
                first = next(iter(str(error).strip().splitlines()), "")
                refuse(f"XLA cannot compile or run this: {first[:300]}")
            if isinstance(error, BrokenPipeError):
                # The reader (head, less) has closed the pipe: no error.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                sys.exit(0)
            if isinstance(error, OSError):  # a full disk, a file deleted meanwhile
                refuse(error)
            raise
        except KeyboardInterrupt:
            sys.exit(130)
