"""Options of `verify` and exports, without JAX: commands list them at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerificationOptions(Options):
    """How a model is compared with TensorFlow."""

    seeds: Sequence[int] = option(
        (0,), "Seed of drawn inputs (0); each makes a case. Repeat for several.", flag="--seed"
    )
    batch_sizes: Sequence[int] = option(
        (1, 3), "For unknown first dimensions (1 and 3); each makes a case. Repeat for several.", flag="--batch-size"
    )
    rtol: float | None = option(
        None,
        "Tolerance on the relative error; by default 1e-4 (1e-2 for float16, 5e-2 for bfloat16; integers are equal).",
        least=0,
    )
    grad: bool = option(
        False,
        "Compare gradients of a random projection of the results with respect to trainable variables and floating "
        "inputs with GradientTape's.",
    )
    train: bool = option(False, "Compare variables after a call; Keras models also in training mode.")
    bisect: bool | None = option(
        None,
        "Look for the first differing nodes; by default if results differ by more than round-off or JAX fails. The "
        "verdict does not depend on it.",
        flag="--bisect/--no-bisect",
    )
    repro: Path | None = option(
        None, "A directory for a script that reproduces the first differing node.", metavar="DIR"
    )
    report: Path | None = option(None, "Write an HTML page.")
    node_data: Path | None = option(
        None,
        "A directory for error.json and seconds.json, the largest error and the time of each node, for Model Explorer; "
        "of a SavedModel or a frozen graph.",
        metavar="DIR",
    )
