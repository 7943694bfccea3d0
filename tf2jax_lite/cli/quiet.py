"""TensorFlow without its chatter."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = ["import_tensorflow", "quiet_stderr"]


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drops what is written to stderr inside the ``with`` block; errors still reach the caller as exceptions.

    TensorFlow's C++ side writes some messages whatever the log level, so the file descriptor itself is turned away.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 2)
        os.close(sink)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up messages."""
    if "tensorflow" in sys.modules:
        return
    with quiet_stderr():
        import tensorflow as tf

        # TensorFlow is the oracle here and runs on the CPU: the accelerator's memory is JAX's.
        tf.config.set_visible_devices([], "GPU")
