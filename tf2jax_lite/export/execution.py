"""Runs a loaded artefact once, after looking at how much memory that takes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from tf2jax_lite.support.errors import ExportError, LimitError

from .load import call_with_arrays

__all__ = ["check_memory", "run_compiled"]


def run_compiled(fn: Callable[..., Any], params: Mapping[str, Any], arrays: Mapping[str, Any], rng: Any = None) -> Any:
    """Compiles a loaded function for some arrays and runs it, if the machine has the memory.

    XLA's CPU client ends the process where an allocation fails; what it will allocate is known before.

    Args:
      fn: as `load` returns it.
      params: its params.
      arrays: by name, see `call_with_arrays`.
      rng: a key, for functions that draw random numbers.

    Returns:
      The results, without updated params.

    Raises:
      LimitError: it takes more memory than there is.
      ExportError: XLA refuses to compile or to run it.
    """

    def results(params: Any, arrays: Any, rng: Any) -> Any:
        return call_with_arrays(fn, params, arrays, rng)[0]

    try:
        lowered = jax.jit(results).lower(dict(params), dict(arrays), rng)
        # Before compiling, which takes XLA without end for some programs whose results are too large for any machine.
        _check(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(lowered.out_info)))
        compiled = lowered.compile()
        check_memory(compiled)
        return jax.block_until_ready(compiled(dict(params), dict(arrays), rng))
    except jax.errors.JaxRuntimeError as error:
        kind = LimitError if "RESOURCE_EXHAUSTED" in str(error) else ExportError
        first = next(iter(str(error).strip().splitlines()), "")
        raise kind(f"XLA cannot run the model: {first[:300]}") from error


def check_memory(compiled: Any) -> None:
    """Refuses a compiled function that allocates more memory on the CPU than this process may have.

    Args:
      compiled: what ``jax.jit(f).lower(...).compile()`` returns.

    Raises:
      LimitError: as said.
    """
    sizes = compiled.memory_analysis()
    if sizes is not None:
        _check(int(sizes.temp_size_in_bytes) + int(sizes.output_size_in_bytes))


def _check(needed: int) -> None:
    allowed = _memory() if jax.default_backend() == "cpu" else None  # elsewhere XLA says so itself when it allocates
    if allowed is not None and needed > allowed:
        raise LimitError(f"running the model takes {needed} bytes of memory; there are {allowed}.")


def _memory() -> int | None:
    """Returns how many bytes this process may allocate at most, or None where the system does not say."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            found = min(found, max(most - used, 0))
    except (ImportError, OSError, ValueError):
        pass
    return found
