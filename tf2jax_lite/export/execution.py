"""Run an artifact once, after a check of the memory that it needs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.params import stacked
from tf2jax_lite.support.errors import ExportError, LimitError
from tf2jax_lite.support.extras import require_device
from tf2jax_lite.support.limits import reading

from . import program_cache
from .host_part import core_arrays
from .hub import local_artifact
from .load import load
from .loaded_function import LoadedFunction
from .metadata import checked_hashes, read_metadata, read_stacks
from .reader import call_with_arrays, fitting_arrays, module_file, read_params, read_signature


def run_artifact(
    path: str | Path,
    arrays: Mapping[str, Any],
    *,
    signature: str | None = None,
    backend: str = "stablehlo",
    seed: int = 0,
    cache: bool = True,
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = lambda params: params,
) -> Any:
    """Run a function of an artifact, with an earlier run's program if there is one.

    Compiled programs of StableHLO are kept in the user's cache directory, see `program_cache`.

    Args:
      arrays: by name, in dtypes that `fitting_arrays` accepts; of an artifact with a host part (`load_host`), its
        arguments, such as strings, or those of the core.
      seed: of the key, for functions that draw random numbers.
      cache: whether to read and store compiled programs.
      adapt: called with the params; it returns those to run with.

    Returns:
      The results, without updated params.
    """
    require_device()
    folder = local_artifact(path)
    arrays = core_arrays(folder, signature, arrays)
    key = None
    if backend == "stablehlo" and cache and program_cache.directory() is not None:
        with reading(str(folder), ExportError):
            metadata, name, entry, interface = read_signature(folder, signature)
            with checked_hashes(folder, metadata):
                shapes = {array: np.shape(value) for array, value in arrays.items()}
                module_file(folder, metadata, name)  # which the program stands for
                key = program_cache.program_key(metadata, name, shapes)
                found = program_cache.read_program(key)
                if found is not None:
                    compiled, taken = found
                    fitting = fitting_arrays(interface, taken, arrays)
                    with errors_of_xla():
                        check_memory(compiled)
                    params = stacked(adapt(read_params(folder, metadata)), read_stacks(metadata))
            if found is not None:
                with errors_of_xla():
                    return jax.block_until_ready(compiled(params, fitting, _key(seed, entry["rng"])))
    fn, params = load(folder, signature, backend=backend, verify_hashes=key is None, stack_layers=False)
    params = stacked(adapt(params), read_stacks(read_metadata(folder)))
    fitting = fitting_arrays(fn.interface, fn.taken, arrays)
    rng = _key(seed, fn.needs_key)
    try:
        with errors_of_xla():
            compiled = compile_function(fn, params, fitting, rng)
            if key is not None:
                program_cache.write_program(key, compiled, fn.taken)
            return jax.block_until_ready(compiled(dict(params), fitting, rng))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # model.py was edited: its shapes depend on values
        return call_with_arrays(fn, params, fitting, rng=rng)[0]


def _key(seed: int, needed: bool) -> Any:
    """Return a key, or None if it is not needed: XLA compiles a program for it."""
    return jax.random.key(seed) if needed else None


def compile_function(fn: LoadedFunction, params: Mapping[str, Any], arrays: Mapping[str, Any], rng: Any) -> Any:
    """Return the compiled function if the memory suffices, which XLA does not check."""

    def results(params: Any, arrays: Any, rng: Any) -> Any:
        return call_with_arrays(fn, params, arrays, rng)[0]

    lowered = jax.jit(results).lower(dict(params), dict(arrays), rng)
    # Before compilation, which does not end for some programs with huge results.
    _check(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(lowered.out_info)))
    compiled = lowered.compile()
    check_memory(compiled)
    return compiled


@contextlib.contextmanager
def errors_of_xla() -> Iterator[None]:
    """Raise errors of XLA as ours.

    Raises:
      LimitError: the memory does not suffice.
      ExportError: XLA cannot compile or run it.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        kind = LimitError if "RESOURCE_EXHAUSTED" in str(error) else ExportError
        first = next(iter(str(error).strip().splitlines()), "")
        raise kind(f"XLA cannot run the model: {first[:300]}") from error


def check_memory(compiled: Any) -> None:
    """Check a compiled function's CPU memory against this process's limit.

    Args:
      compiled: the result of ``jax.jit(f).lower(...).compile()``.
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
