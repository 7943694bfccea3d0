"""Options of `export_functions`, without JAX: commands list them at once."""

from __future__ import annotations

import dataclasses

from tf2jax_lite.support.options import Options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Forms of an artifact."""

    checkpoint: bool = option(False, "Add params as an Orbax checkpoint (extra: checkpoint).")
    mlir: bool = option(False, "Write StableHLO as text, too (model.mlir), for viewers of graphs.")
    shape_comments: bool = option(False, "In model.py, write the shape behind each line.")
    weights: str | None = option(
        None, "Store weights in fewer bits, and compute as before: int8 (with a scale a channel) or bfloat16."
    )
    scan_layers: bool = option(False, "Run repeated layers by lax.scan, which compiles faster.")
    framework: str = option("jax", "Of model.py: jax (functions of params), or nnx (flax.nnx modules).")
    random: str = option("jax", "Of dropout and other layers with seeds: jax (jax.random), or tensorflow (its bits).")
    overwrite: bool = option(False, "Replace an existing artifact.", flag="--force")
