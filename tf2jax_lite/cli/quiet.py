"""TensorFlow without its start-up chatter."""

from __future__ import annotations

import os
import sys

__all__ = ["import_tensorflow"]


def import_tensorflow() -> None:
    """Imports TensorFlow with what it writes to stderr meanwhile dropped.

    Some of its start-up messages are written before any log level applies, so the file descriptor itself is turned away;
    an error in the import still reaches the user as an exception.
    """
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 2)
        os.close(sink)
        import tensorflow as tf

        # TensorFlow is the oracle here and runs on the CPU: the accelerator's memory is JAX's.
        tf.config.set_visible_devices([], "GPU")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
