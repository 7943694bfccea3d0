"""FedNova: clients' changes divided by their numbers of steps.

Source: Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.federated.aggregators import MeanFactory
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import ClientResult, ClientWeighting, build_model_delta_client_work
from tf2jax_lite.federated.compose import (
    Cohorts,
    Composition,
    Finalizer,
    LearningState,
    build_apply_optimizer_finalizer,
)
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights, PyTree


@takes_tff_keywords
def build_fed_nova(
    model: Model,
    client_learning_rate: float,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    momentum: float = 0.0,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    client_diagnostics: bool = False,
    **cohorts: Any,
) -> LearningProcess[LearningState]:
    """Build FedNova.

    A client with t steps of SGD sends its change divided by a = t, the sum of the weights of its gradients; with
    momentum m, a = (t - m (1 - m**t) / (1 - m)) / (1 - m). The server moves by the mean of these directions times the
    mean of a, so that clients with many steps do not draw the model to their own optimum.

    Args:
      model: the model.
      client_learning_rate: of the clients' SGD.
      server_optimizer: takes that product for a gradient; ``optax.sgd(1.0)`` by default.
      momentum: of the clients' SGD, in [0, 1).
      client_weighting: ``"num_examples"`` or ``"uniform"``.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: of ``{"direction": ..., "steps": ...}``; the weighted mean by default.
      client_diagnostics: see `compose_learning_process`.
      **cohorts: ``client_batching``, ``client_execution``, ``clients_per_chunk`` and ``mesh`` of
        `compose_learning_process`.

    Raises:
      InputError: an option does not fit.
    """
    check_number("build_fed_nova", "client_learning_rate", client_learning_rate, above=0)
    check_number("build_fed_nova", "momentum", momentum, least=0, below=1)
    model = check_model(model)
    work = build_model_delta_client_work(
        model,
        optax.sgd(float(client_learning_rate), momentum=float(momentum) or None),
        client_weighting=client_weighting,
        train_metrics=check_metrics("build_fed_nova", "train_metrics", train_metrics),
    )

    def client_final(state: Any, message: ModelWeights, carry: Any) -> ClientResult:
        found = work.client_final(state, message, carry)
        count = carry.step.astype(jnp.float32)
        total = (count - momentum * (1 - momentum**count) / (1 - momentum)) / (1 - momentum)
        safe = jnp.maximum(total, 1)
        direction = jax.tree.map(lambda d: (d / safe).astype(d.dtype), found.update)
        return found._replace(update={"direction": direction, "steps": total})

    finalizer = build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0))

    def finalize(state: PyTree, weights: ModelWeights, found: PyTree) -> MeasuredProcessOutput:
        steps = found["steps"]
        moved = jax.tree.map(lambda d: (steps * d).astype(d.dtype), found["direction"])
        done = finalizer.next(state, weights, moved)
        return done._replace(measurements={**done.measurements, "steps": steps})

    template = model.shapes.trainable
    return Composition(
        "build_fed_nova",
        model,
        dataclasses.replace(work, client_final=client_final, weights_of=lambda update: update["direction"]),
        MeanFactory() if aggregator is None else aggregator,
        Finalizer(finalizer.initialize, finalize),
        client_diagnostics=client_diagnostics,
        cohorts=Cohorts.of(**cohorts),
        update_form={"direction": template, "steps": jax.ShapeDtypeStruct((), jnp.float32)},
    ).process()
