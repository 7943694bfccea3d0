"""Parts of a Keras model's training that its forward pass does not show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_LIBRARIES = ("keras", "tf_keras")
_TRAINERS = ("Model", "Trainer", "TensorFlowTrainer")
# Methods of Keras' models that may be overridden and do not change a training step.
_HARMLESS = frozenset(
    {
        *("build", "call", "compile", "compute_mask", "compute_metrics", "compute_output_shape", "compute_output_spec"),
        *("evaluate", "export", "from_config", "get_config", "get_compile_config", "compile_from_config", "get_layer"),
        *("layers", "load_weights", "make_predict_function", "make_test_function", "metrics", "metrics_names"),
        *("predict", "predict_on_batch", "predict_step", "reset_metrics", "save", "save_weights", "state_updates"),
        *("loss", "summary", "test_on_batch", "test_step", "to_json", "weights", "losses"),
    }
)
# Of `compile`: the loss and its weight are taken; the others do not change a step's gradient.
_TAKEN = ("loss", "loss_weights")
_WITHOUT_EFFECT = frozenset(
    {
        *("optimizer", "metrics", "weighted_metrics", "run_eagerly", "steps_per_execution", "jit_compile"),
        *("auto_scale_loss", "pss_evaluation_shards"),
    }
)


@dataclasses.dataclass
class TrainingFacts:
    """The parts of a Keras model's training beside its results.

    Attributes:
      adds_losses: whether the model adds losses: regularizers of weights and activities, ``add_loss``.
      returns_losses: whether the function returns ``(results, their sum)``.
      masks_losses: whether results have a mask, by which Keras leaves elements out of losses.
      refused: by the name of a variable that trains, the reason why training is not supported.
    """

    adds_losses: bool = False
    returns_losses: bool = False
    masks_losses: bool = False
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> TrainingFacts | None:
        """Return facts of an artifact's metadata; None if there are none."""
        if value is None:
            return None
        flags = ("adds_losses", "returns_losses", "masks_losses")
        refused = value.get("refused") if isinstance(value, Mapping) else None
        if not isinstance(refused, Mapping) or not all(isinstance(value.get(flag), bool) for flag in flags):
            raise ValueError("the training facts are of another form")
        reasons = {str(name): str(reason) for name, reason in refused.items()}
        return cls(**{flag: value[flag] for flag in flags}, refused=reasons)


def refused_variables(model: Any) -> dict[str, str]:
    """Return variables that need more than a gradient step, with the reason."""
    found = {}
    for variable in model.trainable_variables:
        name = (getattr(variable, "path", None) or variable.name).split(":")[0]
        constraint = getattr(variable, "constraint", None)
        if constraint is not None:
            found[name] = f"the constraint {getattr(constraint, '__name__', type(constraint).__name__)}"
        elif getattr(variable, "overwrite_with_gradient", False):
            found[name] = "overwrite_with_gradient (a scale of float8)"
    return found


def compile_options(model: Any) -> dict[str, Any]:
    """Return the arguments that a Keras model was compiled with."""
    return getattr(getattr(model, "_compile_config", None), "config", {})  # Keras has no public name for it


def unsupported_training(model: Any) -> list[str]:
    """Return the parts of a compiled model's ``fit`` that are not supported."""
    found = [f"{name}()" for name in _overridden(model)]
    config = compile_options(model)
    known = {*_TAKEN, *_WITHOUT_EFFECT}
    return found + [f"compile({name}=...)" for name, value in config.items() if name not in known and value is not None]


def _overridden(model: Any) -> list[str]:
    """Return the public methods of Keras' models that users replaced."""
    classes = type(model).__mro__
    trainers = [base for base in classes if _is_library(base) and base.__name__ in _TRAINERS]
    methods = {name for base in trainers for name, value in vars(base).items() if callable(value)}
    own = {name for base in classes if not _is_library(base) for name in vars(base)}
    own |= {name for name, value in vars(model).items() if callable(value) and not _is_library(value)}
    return sorted(name for name in own & methods - _HARMLESS if not name.startswith("_"))


def _is_library(value: Any) -> bool:
    """Return whether a class, or a value that Keras sets, is not a user's."""
    return str(getattr(value, "__module__", "")).split(".")[0] in (*_LIBRARIES, "tensorflow", "builtins")
