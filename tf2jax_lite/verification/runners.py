"""One function called on one set of inputs, in TensorFlow and in JAX."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.export.reader import flat_results
from tf2jax_lite.support.errors import LoweringError, StaticInputError

from .targets import Target


def named(target: Target, flat: Sequence[Any]) -> dict[str, Any]:
    """Return flat results by name."""
    return flat_results(target.converted.interface.results(_Padded(flat)))


class _Padded(list):
    """Results by position; None beyond the last."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) if index < len(self) else None


def run_tf(target: Target, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Call TensorFlow; return flat results and variables, then restore these."""
    before = target.variable_values()
    try:
        results = [r.numpy() for r in target.call_tf(target.tensors(inputs))]
        after = target.variable_values()
    finally:
        target.assign(before)
    return [np.asarray(r) for r in results], after


class JaxRunner:
    """The converted function, compiled once per shape.

    If that fails, integer inputs are static (shapes and trip counts may depend on them); if that fails, too, the
    function runs op by op (shapes depend on values).

    Attributes:
      mode: how it ran: ``jit``, ``static integers`` or ``op by op``.
    """

    def __init__(self, target: Target):
        self._target = target
        self._params: Any = None
        self._compiled: Any = None
        self._strings: dict[int, np.ndarray] = {}
        self.mode = "jit"

    def __call__(self, inputs: Sequence[np.ndarray], seed: int = 0) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Return flat results and updated params."""
        results, state = self.raw(inputs, seed)
        flat = [self._strings[i] if r is None else np.asarray(r) for i, r in enumerate(results)]
        return flat, {name: np.asarray(v) for name, v in state.items()}

    def raw(self, inputs: Sequence[np.ndarray], seed: int = 0) -> Any:
        """Return the results as JAX arrays."""
        if self._params is None:  # on the device once, not in every call
            self._params = {name: jax.device_put(np.asarray(value)) for name, value in self._target.params.items()}
        key = jax.random.key(seed) if self._target.converted.program.random_nodes else None
        if self.mode == "jit":
            fixed = {i: x for i, x in enumerate(inputs) if x.dtype == object}
            traced = {i: x for i, x in enumerate(inputs) if x.dtype != object}
            compiled = self._compiled or self._jitted(fixed, len(inputs))
            if not fixed:  # strings are compiled in
                self._compiled = compiled
            try:
                return compiled(self._params, traced, key)
            except LoweringError as error:
                self.mode = "static integers" if isinstance(error, StaticInputError) else "op by op"
        if self.mode == "static integers":
            fixed = {i: x for i, x in enumerate(inputs) if x.dtype.kind in "iubO"}
            traced = {i: x for i, x in enumerate(inputs) if i not in fixed}
            try:
                return self._jitted(fixed, len(inputs))(self._params, traced, key)
            except LoweringError:
                self.mode = "op by op"
        results, state = self._target.converted.flat_call(self._params, list(inputs), key)
        return results, state

    def _jitted(self, fixed: Mapping[int, Any], count: int) -> Any:
        converted = self._target.converted

        def run(params: Any, traced: Any, key: Any) -> Any:
            given = {**traced, **fixed}
            results, state = converted.flat_call(params, [given[i] for i in range(count)], key)
            for i, value in enumerate(results):
                if isinstance(value, np.ndarray) and value.dtype == object:  # strings, which jit does not return
                    self._strings[i], results[i] = value, None
            return results, state

        return jax.jit(run)


_CALLS = 7


def time_both(target: Target, runner: JaxRunner, inputs: Sequence[np.ndarray]) -> dict[str, float]:
    """Return median seconds per call, ``tensorflow`` and ``jax``, when warm."""
    tensors = target.tensors(inputs)
    before = target.variable_values()

    def tensorflow() -> None:
        for result in target.call_tf(tensors):
            result.numpy()

    def compiled() -> None:
        jax.block_until_ready(runner.raw(inputs))

    found = {}
    try:
        for name, call in (("tensorflow", tensorflow), ("jax", compiled)):
            call()
            seconds = []
            for _ in range(_CALLS):
                begin = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - begin)
            found[name] = statistics.median(seconds)
    finally:
        target.assign(before)
    return found
