"""Compare a loaded artifact with TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.params import is_seed_state
from tf2jax_lite.export import load, load_host
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.reader import call_with_arrays, flat_results, read_params
from tf2jax_lite.support.errors import ExportError

from .compare import OutputComparison, compare_arrays, failed
from .roundoff_verdict import RoundoffCheck

_LISTED = 30  # errors of params


class Artifact:
    """The functions of an artifact; each backend is loaded once.

    Args:
      backends: which to compare; ``source`` runs the artifact's own Python code.
    """

    def __init__(self, path: Path, backends: Sequence[str]):
        self._path = path
        self._backends = backends
        self._metadata = read_metadata(path)
        self._loaded: dict[tuple[str, str], Any] = {}

    @property
    def is_split(self) -> bool:
        """Return whether its functions are the cores of models that were split."""
        return bool((self._metadata.get("options") or {}).get("split_host"))

    @property
    def signatures(self) -> list[str]:
        """The names of its functions."""
        return list(self._metadata["signatures"])

    def seeds(self) -> dict[str, np.ndarray]:
        """Return seed params by name; Keras draws them again at each load."""
        names = [name for name in self._metadata["params"] if is_seed_state(name)]
        return {n: np.asarray(v) for n, v in read_params(self._path, self._metadata).items() if n in names}

    def trained_values(self) -> dict[str, np.ndarray]:
        """Return params by name if trained since conversion; otherwise nothing."""
        if not (self._metadata.get("options") or {}).get("training"):
            return {}
        return {
            str(name): np.asarray(value)
            for name, value in read_params(self._path, self._metadata).items()
            if not self._metadata["params"][name].get("constant")
        }

    def host_inputs(self, signature: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the core's inputs as the stored host part of a function computes them.

        Nothing if it has none.
        """
        entry = self._metadata["signatures"].get(signature, {})
        if "host" not in entry:
            return {}
        if (signature, "host") not in self._loaded:
            self._loaded[signature, "host"] = load_host(self._path, signature)
        return self._loaded[signature, "host"](**arrays)

    def compare(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray],
        variables: Mapping[str, np.ndarray],
        rtol: float | None,
        random: set[str],
        notes: list[str],
        roundoff_check: RoundoffCheck,
    ) -> list[OutputComparison]:
        """Compare a signature's results and assigned variables with TensorFlow's.

        Args:
          notes: collects notes about values that are not compared.
          roundoff_check: tells round-off from wrong results.
        """
        if signature not in self._metadata["signatures"]:
            _note(notes, f"the artifact has no signature {signature!r}")
            return []
        found = []
        weights = (self._metadata.get("options") or {}).get("weights")
        if isinstance(weights, dict) and isinstance(weights.get("errors"), dict):
            _note(notes, _weights_text(weights))
        drawn = self._metadata["signatures"][signature].get("random") == "jax"  # in place of TensorFlow's numbers
        for backend in self._backends:
            if not self._has(signature, backend):
                _note(notes, f"the artifact has no {backend}")
                continue
            with jax.enable_x64(self._needs_x64(signature)):
                fn, params = self._load(signature, backend)
                try:
                    results, state = call_with_arrays(fn, params, arrays, rng=jax.random.key(0))
                except Exception as error:  # a backend that fails is its verdict
                    text = f"{type(error).__name__}: {error}"
                    found += [failed(name, text, against=backend) for name in expected]
                    continue
                actual = {name: np.asarray(value) for name, value in flat_results(results).items()}
                after = {name: np.asarray(state[name]) for name in variables if name in state}
            for name, e in expected.items():
                if name not in actual:
                    raise ExportError(f"{self._path}: {signature!r} has no result {name!r}")
                options: dict[str, Any] = {
                    "against": backend,
                    "loose_dtype": True,
                    "values": not drawn and name not in random,
                }
                found.append(roundoff_check(compare_arrays(name, e, actual[name], rtol, **options), e, actual[name]))
            for name, value in after.items():
                e = variables[name]
                options = {"kind": "variable", "against": backend, "loose_dtype": True, "values": not drawn}
                found.append(roundoff_check(compare_arrays(name, e, value, rtol, **options), e, value))
        return found

    def _has(self, signature: str, backend: str) -> bool:
        entry = self._metadata["signatures"][signature]
        if backend == "stablehlo":
            return entry.get("stablehlo") is not None
        return self._metadata.get("source") is not None and entry.get("function") is not None

    def _needs_x64(self, signature: str) -> bool:
        """Return whether a signature was exported with 64-bit types."""
        results = self._metadata["signatures"][signature].get("outputs", ())
        return any(str(r.get("dtype")) in ("int64", "uint64", "float64", "complex128") for r in results)

    def _load(self, signature: str, backend: str) -> Any:
        if (signature, backend) not in self._loaded:
            self._loaded[signature, backend] = load(self._path, signature, backend=backend, stack_layers=False)
        return self._loaded[signature, backend]


def _weights_text(weights: Mapping[str, Any]) -> str:
    """Return the errors of weights in fewer bits as text, the largest first."""
    errors = sorted(((name, float(error)) for name, error in weights["errors"].items()), key=lambda item: -item[1])
    listed = ", ".join(f"{name} {error:.2%}" for name, error in errors[:_LISTED])
    more = f", and {len(errors) - _LISTED} more" if len(errors) > _LISTED else ""
    return f"weights are {weights.get('kind')}; relative errors by param: {listed}{more}"


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
