"""TensorFlow without its chatter."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = ["import_tensorflow", "open_streams", "quiet_stderr"]

sink: int | None = None
"""A descriptor that gets what is dropped; None: the null device does."""


def open_streams() -> None:
    """Opens those of stdin, stdout and stderr that are closed (``2>&-``): nobody reads what is written there.

    Python has None for such a stream, and the next file that is opened would take its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drops what is written to stderr inside the ``with`` block; errors still reach the caller as exceptions.

    TensorFlow's C++ side writes some messages whatever the log level, so the file descriptor itself is turned away.
    Where the program was started without one, `open_streams` comes first.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        target = os.open(os.devnull, os.O_WRONLY) if sink is None else os.dup(sink)
        os.dup2(target, 2)
        os.close(target)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages, and without oneDNN's kernels unless the user asks for them.

    Some of those of TensorFlow 2.21 compute wrong numbers or corrupt memory on processors with AVX-512.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with quiet_stderr():
        import tensorflow as tf

        # TensorFlow is the oracle here and runs on the CPU: the accelerator's memory is JAX's.
        tf.config.set_visible_devices([], "GPU")
