"""Run a loaded artifact once, after a check of the memory that it needs."""

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
    """Compile a loaded function and run it, if the memory suffices.

    XLA's CPU client ends the process if an allocation fails; the sizes are known after compilation.

    Args:
      fn: a result of `load`.
      params: its params.
      arrays: by name, see `call_with_arrays`.
      rng: a key, for functions that draw random numbers.

    Returns:
      The results, without updated params.

    Raises:
      LimitError: it needs more memory than available.
      ExportError: XLA cannot compile or run it.
    """

    def results(params: Any, arrays: Any, rng: Any) -> Any:
        return call_with_arrays(fn, params, arrays, rng)[0]

    try:
        lowered = jax.jit(results).lower(dict(params), dict(arrays), rng)
        # Before compilation, which does not end for some programs with huge results.
        _check(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(lowered.out_info)))
        compiled = lowered.compile()
        check_memory(compiled)
        return jax.block_until_ready(compiled(dict(params), dict(arrays), rng))
    except jax.errors.JaxRuntimeError as error:
        kind = LimitError if "RESOURCE_EXHAUSTED" in str(error) else ExportError
        first = next(iter(str(error).strip().splitlines()), "")
        raise kind(f"XLA cannot run the model: {first[:300]}") from error


def check_memory(compiled: Any) -> None:
    """Check a compiled function's CPU memory against this process's limit.

    Args:
      compiled: the result of ``jax.jit(f).lower(...).compile()``.

    Raises:
      LimitError: it allocates more.
    """
    sizes = compiled.memory_analysis()
    if sizes is not None:
        _check(int(sizes.temp_size_in_bytes) + int(sizes.output_size_in_bytes))


def _check(needed: int) -> None:
    allowed = _memory() if jax.default_backend() == "cpu" else None  # on other backends XLA raises on allocation
    if allowed is not None and needed > allowed:
        raise LimitError(f"running the model takes {needed} bytes of memory; there are {allowed}.")


def _memory() -> int | None:
    """Return this process's memory limit in bytes; None if unknown."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            found = min(found, max(limit - used, 0))
    except (ImportError, OSError, ValueError):
        pass
    return found
