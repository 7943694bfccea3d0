"""Options of losses, models and optimizers; without JAX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.options import Options, option

_LOSS, _OPTIMIZATION, _WATCHING = "Loss", "Optimization", "Metrics and records"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """Options of cross entropies."""

    label_smoothing: float = option(
        0.0, "Share of targets that is spread over all classes.", least=0, below=1, identity="given", panel=_LOSS
    )
    class_weights: Sequence[float] = option(
        (),
        "Factor for the loss of each class; one for every class.",
        identity="given",
        flag="--class-weight",
        panel=_LOSS,
    )
    focal_gamma: float = option(
        0.0, "Exponent of the focal loss; 0 for cross entropy.", least=0, identity="given", panel=_LOSS
    )
    ignore_label: int | None = option(
        None, "Target of positions that do not count, as in padding.", identity="given", panel=_LOSS
    )

    def __post_init__(self) -> None:
        """Check the weights of classes, too."""
        super().__post_init__()
        if not all(0 <= weight < math.inf for weight in self.class_weights):
            raise InputError(f"class_weights are finite numbers of 0 or more, not {list(self.class_weights)}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(LossOptions):
    """Options that make a trainable model of an artifact."""

    loss: str = option(
        help="sparse_categorical_crossentropy, categorical_crossentropy, binary_crossentropy, mse, mae, huber, "
        "log_cosh, cosine, or module:function of your own.",
        identity="always",
        shell_default="sparse_categorical_crossentropy",
    )
    from_logits: bool = option(
        False, "Predictions are logits; for a cross entropy, probabilities otherwise.", identity="always"
    )
    label: str = option("y", "The targets' name in the data.")
    output: str | None = option(None, "The result that is the prediction, if there are several.", identity="always")
    output_losses: Sequence[str] = option(
        (),
        "Loss of one of several outputs, in place of --loss; its targets have its name. Repeat for each.",
        identity="given",
        flag="--output-loss",
        metavar="NAME=LOSS",
        panel=_LOSS,
    )
    output_weights: Sequence[str] = option(
        (),
        "Its factor in the sum of losses; 1 by default.",
        identity="given",
        flag="--output-weight",
        metavar="NAME=FACTOR",
        panel=_LOSS,
    )
    eval_signature: str | None = option(None, "The function in evaluation mode.", flag="--signature")
    train_signature: str | None = option(None, "The function in training mode; train if there is one.")
    freeze: Sequence[str] = option(
        (), "Params that do not train; repeat for several.", identity="always", metavar="REGEX"
    )
    metrics: Sequence[str] = option(
        (),
        "accuracy, top_5_accuracy, auc, pr_auc, mae, mse, perplexity, token_accuracy; of one of several outputs "
        "kind/accuracy. Repeat for several.",
        identity="given",
        flag="--metric",
        panel=_WATCHING,
    )
    backend: str = option("stablehlo", "stablehlo, or source (runs the artifact's Python code).")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options):
    """An optimizer by name, see `learning.optimizers.named_optimizer`."""

    optimizer: str = option("adamw", "sgd, adam, adamw, adagrad, rmsprop, yogi, lamb or lion.", identity="always")
    learning_rate: float = option(1e-3, "The highest rate.", identity="always")
    momentum: float | None = option(None, "Of sgd and rmsprop.", identity="always", panel=_OPTIMIZATION)
    weight_decay: float | None = option(None, "Of adamw, lamb and lion.", identity="always", panel=_OPTIMIZATION)
    clip_norm: float | None = option(None, "Scale gradients down to this norm.", identity="always", panel=_OPTIMIZATION)
    schedule: str = option(
        "constant", "constant, cosine or linear (down to 0 at the end).", identity="always", panel=_OPTIMIZATION
    )
    warmup_steps: int = option(
        0, "Steps in which the rate goes up from 0.", least=0, identity="always", panel=_OPTIMIZATION
    )
    lr_multipliers: Sequence[str] = option(
        (),
        "Learning rate of params by name: 'embedding=0.1'; repeat for several.",
        identity="given",
        flag="--lr-multiplier",
        metavar="REGEX=FACTOR",
        panel=_OPTIMIZATION,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundOptions(Options):
    """Options of `run_rounds`."""

    evaluate_every: int = option(10, "Evaluate after this many rounds, and after the last.", least=1)
    evaluate_first: bool = option(False, "Evaluate before the first round, too, as round 0.")
    checkpoint_dir: Any = option(
        None,
        "Where the state is saved, or a `CheckpointStore`; training resumes from there.",
    )
    checkpoint_every: int = option(10, "Save the state after this many rounds, and after the last.", least=1)
    metrics_file: str | Path | None = option(None, "A JSONL file: a line a round with the metrics' scalars.")
    tensorboard_dir: str | Path | None = option(None, "Where scalars are written for TensorBoard.")
    plot_file: str | Path | None = option(
        None, "An .svg of loss and accuracy by round, written at the end, also after an error."
    )
    progress: bool = option(False, "Show a progress bar.")
    timed: bool = option(False, "Record each round's ``seconds``, too; they are not the same after a resumption.")
    unit: str = option(
        "round",
        'The key of a round\'s number in its record: "epoch" where a round is a pass over one data set. It must be '
        '"round" with ``metrics_file``.',
    )
