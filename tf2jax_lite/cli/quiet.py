"""Import TensorFlow without its messages, and drop output to stderr."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from tf2jax_lite.support.extras import require_tensorflow

DEFAULTS = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "ERROR", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Environment variables that the commands set where the user has not."""

sink: int | None = None
"""File descriptor that gets the dropped messages; None: the null device."""


def open_streams() -> None:
    """Open the null device for closed standard streams (``2>&-``).

    Python has None for such a stream, and the next opened file would get its descriptor.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this one
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drop the output to stderr inside the ``with`` block.

    Errors still reach the caller as exceptions. TensorFlow's C++ code writes some messages at any log level, so the
    file descriptor itself is redirected. Call `open_streams` first, in case the program was started without stderr.
    Nothing is dropped if the logger ``tf2jax_lite`` shows INFO (``--verbose``).
    """
    if sink is None and logging.getLogger("tf2jax_lite").isEnabledFor(logging.INFO):
        yield
        return
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
    """Import TensorFlow without start-up messages, by default without oneDNN kernels.

    Some oneDNN kernels of TensorFlow 2.21 compute wrong numbers or corrupt memory on processors with AVX-512.

    Raises:
      MissingLibraryError: it is not installed.
    """
    if sys.modules.get("tensorflow") is not None:
        return
    require_tensorflow()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", DEFAULTS["TF_ENABLE_ONEDNN_OPTS"])
    with quiet_stderr():
        import tensorflow  # noqa: F401

        from tf2jax_lite.frontend.runtime.gpu_memory import hide_gpu_from_tensorflow

        hide_gpu_from_tensorflow()  # it is the reference here and runs on the CPU
