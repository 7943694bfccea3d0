"""Time of conversion from a traced function, tf2jax's, and a profile of ours."""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Callable, Sequence
from typing import Any

from .timing import in_turns, ratios, seconds

# Where our time goes: a name for the page, then the function and the end of its file's path. None holds another.
PARTS = {
    "TensorFlow's GraphDef": ("as_graph_def", "framework/ops.py"),
    "nodes": ("load_main", "frontend/graphdef/functions.py"),
    "functions": ("load_library", "frontend/graphdef/functions.py"),
    "gradient functions": ("trace", "frontend/gradients/tf_registry.py"),
    "values of variables": ("_captures", "frontend/concrete/concrete_function.py"),
    "checks and plans": ("convert_imported", "tf2jax_lite/pipeline/convert.py"),
}
# Parts that are TensorFlow's.
GIVEN = ("TensorFlow's GraphDef", "gradient functions", "values of variables")


def shares(profile: cProfile.Profile, parts: dict[str, tuple[str, str]] = PARTS) -> dict[str, float]:
    """Return each part's share in a profile's time, and the rest's.

    A part within another counts there.

    Args:
      profile: the profile.
      parts: name to the function and the end of the path of the file that holds it.
    """
    stats = pstats.Stats(profile)
    total = stats.total_tt or 1.0  # type: ignore[attr-defined]
    found = dict.fromkeys(parts, 0.0)
    for (path, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        for name, (wanted, file) in parts.items():
            if function == wanted and path.endswith(file):
                found[name] += cumulative / total
    return {**found, "the rest": max(0.0, 1 - sum(found.values()))}


def conversion(name: str, *, size: str = "full", peer: str | None = None, budget: float = 20.0) -> dict[str, Any]:
    """Measure conversion of a model for inference.

    Both converters start with ``get_concrete_function``: TensorFlow's tracing is the same for both, and is told apart.

    Args:
      name: the model.
      size: "full" or "small".
      peer: where to import tf2jax from; None leaves it out.
      budget: seconds of turns.

    Returns:
      ``nodes``; seconds of ``tracing`` in TensorFlow, of the ``first`` conversion of the process and of those in turns
      (``times``), their ``ratios``, and the ``shares`` of ours.
    """
    import keras
    import tensorflow as tf

    import tf2jax_lite

    from . import models
    from .run import peer_module

    model = models.build(keras, name, size)
    x = models.MODELS[name].inputs(1, size)
    flat = tf.nest.flatten(x)
    specs = [tf.TensorSpec(v.shape, v.dtype) for v in flat]
    fn = tf.function(lambda first, *more: model([first, *more] if more else first, training=False))
    start = time.perf_counter()
    concrete = fn.get_concrete_function(*specs)
    record: dict[str, Any] = {"model": name, "size": size, "tracing": time.perf_counter() - start}
    record["nodes"] = len(concrete.graph.as_graph_def().node)
    convert = tf2jax_lite.convert  # its imports count as import
    record["first"] = seconds(lambda: convert(fn, *specs))
    contestants: dict[str, Callable[[], float]] = {
        "tf2jax_lite": lambda: seconds(lambda: tf2jax_lite.convert(fn, *specs))
    }
    module = peer_module(peer)
    if module is not None:
        try:
            module.convert(fn, *flat)
            contestants["tf2jax"] = lambda: seconds(lambda: module.convert(fn, *flat))
        except Exception as error:
            record["peer_failed"] = f"{type(error).__name__}: {str(error)[:200]}"
    record["times"] = in_turns(contestants, rounds=15, budget=budget)
    record["ratios"] = ratios(record["times"])
    profile = cProfile.Profile()
    profile.runcall(tf2jax_lite.convert, fn, *specs)
    record["shares"] = shares(profile)
    keras.backend.clear_session()
    gc.collect()
    return record


def rows(records: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return records as rows of nodes, times in ms, and ratios to tf2jax.

    Columns: model, nodes, tracing, ours, first, tf2jax, ratios without and with tracing.
    """
    found = []
    for r in records:
        ours = r["times"]["tf2jax_lite"]["median"]
        theirs = r["times"].get("tf2jax", {}).get("median")
        both = (ours + r["tracing"]) / (theirs + r["tracing"]) if theirs else None
        cells = (r["tracing"], ours, r["first"], theirs)
        milliseconds = ("fails" if "peer_failed" in r else "" if c is None else f"{1e3 * c:.0f}" for c in cells[3:])
        times = [f"{1e3 * c:.0f}" for c in cells[:3]]
        quotients = ("" if q is None else f"{q:.2f}" for q in (r["ratios"].get("tf2jax"), both))
        found.append((r["model"], r["nodes"], *times, *milliseconds, *quotients))
    return found
