"""Adaptive server optimizers by name. Source: Reddi et al. 2020, "Adaptive Federated Optimization"."""

from __future__ import annotations

from typing import Any

import optax

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.client_work import ClientOptimizer
from tf2jax_lite.federated.compose import LearningState
from tf2jax_lite.federated.model import Model
from tf2jax_lite.federated.options import check_number
from tf2jax_lite.federated.process import LearningProcess

__all__ = ["SERVER_OPTIMIZERS", "build_fed_opt", "server_optimizer"]

SERVER_OPTIMIZERS = ("adagrad", "adam", "momentum", "sgd", "yogi")


def server_optimizer(
    name: str,
    learning_rate: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
) -> optax.GradientTransformation:
    """Returns a server optimizer with the paper's defaults.

    Args:
      name: one of `SERVER_OPTIMIZERS`.
      learning_rate: a float, or a schedule: a function of the round's number.
      beta_1: decay of the first moment, or of the momentum.
      beta_2: decay of the second moment.
      tau: the degree of adaptivity, added to the root of the second moment; of Adagrad, its square under the root.

    Raises:
      InputError: no such optimizer, or a rate that is none.
    """
    _check_rate(learning_rate)
    if name == "adam":
        return optax.adam(learning_rate, b1=beta_1, b2=beta_2, eps=tau)
    if name == "yogi":
        return optax.yogi(learning_rate, b1=beta_1, b2=beta_2, eps=tau)
    if name == "adagrad":
        return optax.adagrad(learning_rate, initial_accumulator_value=0.0, eps=tau**2)
    if name == "momentum":
        return optax.sgd(learning_rate, momentum=beta_1)
    if name == "sgd":
        return optax.sgd(learning_rate)
    raise InputError(f"no server optimizer {name!r}; there are {', '.join(SERVER_OPTIMIZERS)}")


def _check_rate(learning_rate: Any) -> None:
    if not callable(learning_rate):  # no schedule
        check_number("server_optimizer", "learning_rate", learning_rate, above=0)


def build_fed_opt(
    model: Model,
    client_optimizer: ClientOptimizer,
    optimizer: str | optax.GradientTransformation = "adam",
    learning_rate: Any = 1e-2,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Builds FedOpt (FedAdam, FedYogi, FedAdagrad, FedAvgM): FedAvg whose server steps with an adaptive optimizer.

    Args:
      model: the model.
      client_optimizer: see `build_weighted_fed_avg`.
      optimizer: a name for `server_optimizer`, or an optax transformation.
      learning_rate: of a named optimizer.
      **options: see `build_weighted_fed_avg`.

    Raises:
      InputError: no such optimizer, or an option that does not fit.
    """
    server = server_optimizer(optimizer, learning_rate) if isinstance(optimizer, str) else optimizer
    return build_weighted_fed_avg(model, client_optimizer, server, **options)
