"""Records of rounds: nested metrics as JSON values and as scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

Record = dict[str, Any]


def metric_arrays(metrics: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the numbers among nested metrics by path: ``client_work/train/loss``.

    Lists of numbers are arrays; those of anything else are nested metrics, by index. Text and None are left out.
    """
    found: dict[str, np.ndarray] = {}
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(metrics, Mapping):
        items = metrics.items()
    elif (array := _as_numbers(metrics)) is not None:
        found[prefix] = array
    elif isinstance(metrics, list | tuple):
        items = metrics._asdict().items() if hasattr(metrics, "_asdict") else enumerate(metrics)
    for name, value in items:
        found |= metric_arrays(value, f"{prefix}/{text_of_id(name)}" if prefix else text_of_id(name))
    return found


def _as_numbers(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # a list of lists of different lengths, a JAX key
        return None
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.float32) if jnp.issubdtype(array.dtype, np.floating) else None  # bfloat16, float8


def text_of_id(name: Any) -> str:
    """Return a client's id, or the key of a metric, as text."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def flat_metrics(metrics: Any) -> dict[str, Any]:
    """Return nested metrics by path: floats, and lists for arrays.

    See `metric_arrays`.
    """
    return {name: array.astype(np.float64).tolist() for name, array in metric_arrays(metrics).items()}


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return a record's numbers by path, as in ``finalizer/domain_weights/0``."""
    return {
        "/".join([path, *map(str, index)]): float(value)
        for path, array in metric_arrays(record).items()
        for index, value in np.ndenumerate(array)
    }


def diagnostics_record(by_client: Mapping[Any, Any]) -> dict[str, Any]:
    """Return clients' metrics by the text of their ids."""
    found: dict[str, Any] = {}
    for client_id, entry in by_client.items():
        name = text_of_id(client_id)
        own = list(map(flat_metrics, entry)) if isinstance(entry, list) else flat_metrics(entry)
        found[repr(client_id) if name in found else name] = own
    return found
