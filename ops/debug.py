"""Ops that watch: assertions and printing."""

from typing import Any

import numpy as np
from jax.experimental import checkify

from tf2jax_lite.errors import OpError

from .registry import op
from .values import known


@op("Assert", effect=True, options=("enable_checkify_for_asserts",), partial=("data",))
def assert_(condition: Any, data: list[Any], *, summarize: int = 3, enable_checkify_for_asserts: bool = False) -> Any:
    """Refuses a condition known to be false; a traced one is checked if configured. See tf.raw_ops.Assert."""
    found = known(condition)
    shown = ", ".join(_show(d, summarize) for d in data)
    if found is not None:
        if not bool(np.all(found)):
            raise OpError(f"assertion failed: {shown}")
        return ()
    if enable_checkify_for_asserts:
        checkify.check(condition.all(), f"assertion failed: {shown}".replace("{", "{{").replace("}", "}}"))
    return ()


def _show(value: Any, count: int) -> str:
    found = known(value)
    if found is None:
        return f"<{value.dtype}{list(value.shape)}>"
    items = found.reshape(-1)[: count if count >= 0 else None]
    return " ".join(i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items)
