"""Keywords that `register_op` and `override_op` had before `OpOptions`.

They are kept for one release.

`translated` turns them into options and markers, with a DeprecationWarning that names the new form.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tf2jax_lite.ops.traits import Marker, Pattern, partial_fold

__all__ = ["translated"]

# The pattern of several flags was that of the first.
_PATTERNS = {
    "heavy": Pattern.CONTRACTION,
    "stored": Pattern.MATERIALIZED,
    "moves": Pattern.INJECTIVE,
    "dear": Pattern.TRANSCENDENTAL,
    "shape_only": Pattern.SHAPE_ONLY,
}
_INT64 = {"narrow": "truncate", "each": "per_word", "whole": "pair"}
_NEW_FORMS = {
    "host": "use fold=",
    "lazy": "use fold=partial_fold(fn)",
    "needs_key": "annotate the parameter (key: Key), with draws=fn if not every node draws",
    "needs_context": "annotate the first parameter (ctx: Context)",
    "reads": "annotate the inputs (x: Read, or Update if they are written, too)",
    "writes": "annotate the inputs (x: Write, or Update if they are read, too)",
    "wide": "annotate the inputs (x: UpdateInt64)",
    "partial": "annotate the inputs (x: Unconverted)",
    "dynamic_shape": "annotate the parameter (bound: Bound, or StaticBound)",
    "sized": "annotate the parameter (tracker: DynamicShapes | None)",
    "conditional": "annotate the parameter (certain: Unconditional)",
    "options": "annotate the parameters (name: Option)",
    "effect": "use side_effect=",
    "elements": "use result_size=",
    "words": "use int64=",
    "along": "it has no effect any more",
    "calls": "it has no effect any more",
    **{old: f"use pattern={new}" for old, new in _PATTERNS.items()},
}


def translated(
    name: str, options: Mapping[str, Any], parameters: Sequence[str], stacklevel: int
) -> tuple[dict[str, Any], dict[str, Marker | None]]:
    """Return options in their new form, and the parameter markers of old ones.

    Args:
      name: the op name, for the warning.
      options: options in old or new form.
      parameters: names of the function's parameters.
      stacklevel: of the warning, counted from the caller.
    """
    old = {option: value for option, value in options.items() if option in _NEW_FORMS}
    new = {option: value for option, value in options.items() if option not in _NEW_FORMS}
    if not old:
        return new, {}
    forms = "; ".join(f"{option}=: {_NEW_FORMS[option]}" for option in old)
    warnings.warn(
        f"op {name!r} has deprecated options (see tf2jax_lite.ops.traits): {forms}.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    patterns = [pattern for option, pattern in _PATTERNS.items() if old.get(option)]
    if patterns:
        new["pattern"] = patterns[0]
    if (host := old.get("host")) is not None:
        new["fold"] = partial_fold(host) if old.get("lazy") else host
    if "words" in old:
        new["int64"] = _INT64.get(old["words"], old["words"])
    for option, renamed in (("effect", "side_effect"), ("elements", "result_size")):
        if option in old:
            new[renamed] = old[option]
    if callable(old.get("needs_key")):
        new["draws"] = old["needs_key"]
    markers = _markers(old)
    if old.get("sized") and "extents" in parameters:
        markers["extents"] = Marker.SHAPES
    if old.get("needs_context") and parameters:
        markers[parameters[0]] = Marker.CONTEXT
    return new, markers


def _markers(old: Mapping[str, Any]) -> dict[str, Marker | None]:
    reads, writes, wide = (old.get(option, ()) for option in ("reads", "writes", "wide"))
    markers: dict[str, Marker | None] = {
        **dict.fromkeys(old.get("partial", ()), Marker.UNCONVERTED),
        **dict.fromkeys(writes, Marker.WRITE),  # first: results are in this order
        **{x: Marker.UPDATE if x in writes else Marker.READ for x in reads},
        **dict.fromkeys([x for x in wide if x in writes], Marker.UPDATE_INT64),
        **dict.fromkeys(old.get("options", ()), Marker.OPTION),
    }
    if old.get("needs_key"):
        markers["key"] = Marker.KEY
    if old.get("dynamic_shape"):
        markers["bound"] = Marker.STATIC_BOUND if old["dynamic_shape"] is True else Marker.BOUND
    if old.get("conditional"):
        markers["certain"] = Marker.UNCONDITIONAL
    return markers
