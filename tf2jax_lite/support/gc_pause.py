"""A pause of Python's garbage collector while many long-lived objects are made."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause collections in all threads until the last ``with`` block ends.

    While a graph is read, each collection would visit all recent objects again, and from time to time all objects of
    TensorFlow, Keras and JAX.
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
