"""Programs compiled ahead, so that any thread can start them.

The behavior of `jax.jit` depends on thread-local options of JAX (64-bit mode, precision of products, ...). A program is
traced and compiled where the user's options hold; a worker's thread only runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["Programs", "signature"]

PyTree = Any

# Options with context managers that change traced or compiled programs.
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_device",
    "jax_debug_nans",
)

# XLA otherwise splits each larger elementwise operation, such as a step's update of the weights, between the cores.
# Where each core runs a program of its own, that only moves data from one core's cache to the other's.
_ONE_CORE = {"xla_cpu_multi_thread_eigen": False, "xla_disable_hlo_passes": "cpu-parallel-task-assigner"}


class Programs:
    """Compiled forms of one function, by argument shapes and JAX's options.

    Args:
      jitted: the result of `jax.jit`. Its last argument is static.
    """

    def __init__(self, jitted: Any):
        self._jitted = jitted
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def get(self, *args: Any, one_core: bool = False) -> Callable[..., Any]:
        """Return the program for arguments like these; it takes all but the last one.

        Args:
          *args: the arguments, or their shapes.
          one_core: on a CPU, compute products on the core that runs the program: others are busy with other programs.
        """
        *dynamic, static = args
        key = (static, one_core, signature(dynamic))
        with self._lock:  # rounds in several threads: one of them compiles
            found = self._compiled.get(key)
            if found is None:
                compiled = self._jitted.lower(*args).compile(_ONE_CORE if one_core else None)
                found = self._compiled[key] = _in_mode(compiled, bool(jax.config.jax_enable_x64))
        return found


def _in_mode(compiled: Callable[..., Any], x64: bool) -> Callable[..., Any]:
    """Return the program for numpy arrays, in the 64-bit mode of its creation."""

    def run(*args: Any) -> Any:
        with jax.enable_x64(x64):
            return compiled(*args)

    return run


def signature(tree: PyTree) -> Any:
    """Return a cache key: structure, shapes, dtypes, and JAX's options."""
    leaves, structure = jax.tree.flatten(tree)
    forms = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    return structure, forms, tuple(getattr(jax.config, name, None) for name in _OPTIONS)
