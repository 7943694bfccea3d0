"""Options of central training; without JAX."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.options import Options, option

_DEVICES, _ADAPTERS, _HEAD = "Devices and memory", "Adapters", "A new last layer"
_OPTIMIZATION, _WATCHING = "Optimization", "Metrics and records"
PRECISIONS = ("float32", "bf16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions(Options):
    """How a training step computes."""

    microbatches: int = option(
        1, "Parts of a batch, one after another in memory.", least=1, identity="given", panel=_DEVICES
    )
    ema_decay: float | None = option(
        None,
        "Of a moving average of weights, which is evaluated and written.",
        above=0,
        below=1,
        identity="given",
        panel=_OPTIMIZATION,
    )
    precision: str = option("float32", "float32, or bf16 for products in bfloat16.", identity="given", panel=_DEVICES)
    remat: bool = option(
        False,
        "Compute activations again in the backward pass; with --backend source.",
        identity="given",
        panel=_DEVICES,
    )

    def __post_init__(self) -> None:
        """Check the precision, too."""
        super().__post_init__()
        if self.precision not in PRECISIONS:
            raise InputError(f"no precision {self.precision!r}; there are {' and '.join(PRECISIONS)}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(StepOptions):
    """Options of `finetune`."""

    batch_size: int = option(32, "Examples in a step.", least=1, identity="always")
    seed: int = option(0, "Random seed; the same seed gives the same weights.", least=0, identity="always")
    checkpoint_dir: str | Path | None = option(
        None, "Save the state there, and resume from it if there is one.", shell_type=Path | None
    )
    checkpoint_steps: int | None = option(
        None, "Save the state after this many steps, too, not only after epochs.", least=1, identity="recorded"
    )
    mesh: Any = option(
        None,
        "Devices to train on: data=8, or data=4,model=2.",
        identity="recorded",
        shell_type=str | None,
        panel=_DEVICES,
    )
    sharding: Any = option(
        "replicated",
        "Of params on a mesh: replicated, or fsdp (fully sharded).",
        identity="recorded",
        shell_type=str,
        panel=_DEVICES,
    )
    shard: Sequence[str] = option(
        (),
        "Sharding of params by name: 'kernel$=None,model'; repeat for several.",
        identity="recorded",
        metavar="REGEX=AXES",
        panel=_DEVICES,
    )
    monitor: str | None = option(
        None, "Metric of --patience and --keep-best; eval/loss by default.", identity="recorded", panel=_WATCHING
    )
    patience: int | None = option(
        None, "End after this many epochs without improvement.", least=1, identity="recorded", panel=_WATCHING
    )
    keep_best: bool = option(False, "Write the weights of the best epoch.", identity="recorded", panel=_WATCHING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOptions(Options):
    """A new last layer, which trains; see `finetuning.heads`.

    Without other options of what trains, it trains alone, in evaluation mode.
    """

    classes: int | None = option(
        None,
        "Train a new last layer for so many classes; runs the artifact's Python code.",
        least=1,
        identity="given",
        panel=_HEAD,
    )
    head: str | None = option(
        None,
        "Scope of the params of the new layer, such as top/dense; the last layer by default.",
        identity="given",
        flag="--replace",
        metavar="SCOPE",
        panel=_HEAD,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterOptions(Options):
    """Low-rank adapters W + alpha / rank * A B, which train in place of the params."""

    lora_rank: int | None = option(
        None, "Train adapters of this rank, not params.", least=1, identity="given", panel=_ADAPTERS
    )
    lora_alpha: float | None = option(
        None, "Scale of adapters; the rank by default.", identity="given", panel=_ADAPTERS
    )
    lora_targets: str = option(
        "kernel$", "Params that get adapters.", identity="given", metavar="REGEX", panel=_ADAPTERS
    )
    train_fully: Sequence[str] = option(
        (),
        "Params that train beside adapters; without adapters, those that train alone. Repeat for several.",
        identity="given",
        metavar="REGEX",
        panel=_ADAPTERS,
    )

    def __post_init__(self) -> None:
        """Check the pattern, too."""
        super().__post_init__()
        try:
            re.compile(self.lora_targets)
        except re.error as error:
            raise InputError(f"lora_targets is a regular expression: {error}.") from error

    @property
    def alpha(self) -> Any:
        """The scale; the rank if it is not given."""
        return self.lora_rank if self.lora_alpha is None else self.lora_alpha
