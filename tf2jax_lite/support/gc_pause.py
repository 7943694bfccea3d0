"""Python's garbage collector, held while many objects are made that all stay."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

__all__ = ["paused"]

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Holds off collections in all threads until the last of those that hold them off, in whatever order, is done.

    A collection looks at everything that was made of late, again and again while a graph is read, and in between at all
    that TensorFlow, Keras and JAX hold.
    """
    global _holders, _was_enabled
    with _lock:
        if not _holders:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if not _holders and _was_enabled:
                gc.enable()
