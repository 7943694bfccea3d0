"""Federated reconstruction: clients find a model's local part in each round.

Sources: Singhal et al. 2021, "Federated Reconstruction: Partially Local Federated Learning";
tff.learning.algorithms.build_fed_recon and build_fed_recon_eval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.federated.aggregators import MeanFactory, SumFactory
from tf2jax_lite.federated.algorithms.evaluation import EvalState, evaluation_process, evaluation_work
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientResult,
    ClientWeighting,
    ClientWork,
    build_model_delta_client_work,
)
from tf2jax_lite.federated.compose import (
    Finalizer,
    LearningState,
    Survey,
    build_apply_optimizer_finalizer,
    check_optimizer,
    compose_learning_process,
)
from tf2jax_lite.federated.execution import CohortRunner, Execution
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import (
    Model,
    TrainOutput,
    check_model,
    gradient_step,
    model_value_and_grad,
    pads_batches,
    with_cpu_rules,
)
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError


class _Parts(NamedTuple):
    """A model's parts: each trains alone, with the other not trainable."""

    shared: Model
    local: Model


def _split(who: str, model: Model, is_local: Callable[[str], bool]) -> _Parts:
    """Return the model of the shared weights, and that of the local ones."""
    pairs, structure = jax.tree.flatten_with_path(model.shapes.trainable)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs]
    local = [name for name in names if is_local(name)]
    if not local or len(local) == len(names):
        raise InputError(
            f"{who}: is_local chooses some of the trainable weights, not {'all' if local else 'none'} of "
            f"{', '.join(names[:10])}"
        )

    def part(trains: Callable[[str], bool]) -> Model:
        def init(key: Any) -> ModelWeights:
            whole = model.init(key)
            found = dict(zip(names, jax.tree.leaves(whole.trainable), strict=True))
            return ModelWeights(
                {name: leaf for name, leaf in found.items() if trains(name)},
                {"other": {n: leaf for n, leaf in found.items() if not trains(n)}, "state": whole.non_trainable},
            )

        def whole(weights: ModelWeights) -> ModelWeights:
            found = {**weights.trainable, **weights.non_trainable["other"]}
            trainable = jax.tree.unflatten(structure, [found[name] for name in names])
            return ModelWeights(trainable, weights.non_trainable["state"])

        def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
            output = model.apply_for_train(whole(weights), batch, rng)
            return output._replace(non_trainable={**weights.non_trainable, "state": output.non_trainable})

        return dataclasses.replace(
            model,
            init=init,
            apply_for_train=apply_for_train,
            apply_for_eval=lambda weights, batch: model.apply_for_eval(whole(weights), batch),
            changes={"other": False, "state": model.changes},
        )

    return _Parts(part(lambda name: name not in local), part(lambda name: name in local))


class _Carry(NamedTuple):
    weights: ModelWeights
    optimizer: PyTree
    key: Any
    step: Any


def _reconstruction(parts: _Parts, optimizer: optax.GradientTransformation) -> ClientWork:
    """Return the first pass: its output is the client's local weights."""
    value_and_grad = model_value_and_grad(with_cpu_rules(parts.local))

    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> _Carry:
        local = parts.local.init(key).trainable
        weights = ModelWeights(local, {"other": message.trainable, "state": message.non_trainable["state"]})
        return _Carry(weights, optimizer.init(local), key, jnp.int32(0))

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        key = jax.random.fold_in(carry.key, carry.step)
        weights, opt_state, _ = gradient_step(value_and_grad, optimizer, carry.weights, carry.optimizer, batch, key)
        kept = weights._replace(non_trainable=carry.weights.non_trainable)
        return _Carry(kept, opt_state, carry.key, carry.step + 1)

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        return ClientResult((), jnp.float32(1), output=carry.weights.trainable)

    pads = pads_batches(parts.local)
    return ClientWork(lambda: (), client_init, client_step, client_final, pads_batches=pads)


def _second_pass(work: ClientWork) -> ClientWork:
    """Return work on the shared weights, with the client's local weights."""

    def with_local(message: ModelWeights, local: PyTree) -> ModelWeights:
        return message._replace(non_trainable={**message.non_trainable, "other": local})

    def client_init(state: Any, message: ModelWeights, key: Any, local: PyTree) -> Any:
        local = jax.tree.map(jnp.asarray, local)
        return work.client_init(state, with_local(message, local), key, None), local

    def client_step(state: Any, message: ModelWeights, carry: Any, batch: Mapping[str, Any]) -> Any:
        inner, local = carry
        return work.client_step(state, with_local(message, local), inner, batch), local

    def client_final(state: Any, message: ModelWeights, carry: Any) -> ClientResult:
        return work.client_final(state, with_local(message, carry[1]), carry[0])

    return dataclasses.replace(work, client_init=client_init, client_step=client_step, client_final=client_final)


@takes_tff_keywords
def build_fed_recon(
    model: Model,
    is_local: Callable[[str], bool],
    client_optimizer: optax.GradientTransformation | None = None,
    server_optimizer: optax.GradientTransformation | None = None,
    reconstruction_optimizer: optax.GradientTransformation | None = None,
    *,
    split_dataset: bool = False,
    reconstruction_batching: Batching | None = None,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    client_batching: Batching | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build federated reconstruction. See tff.learning.algorithms.build_fed_recon.

    In each round a client draws new local weights (``model.init`` with its key), trains them with the shared weights
    fixed, and then trains the shared weights with the local ones fixed. It sends the difference of the shared weights
    alone, and keeps nothing.

    Args:
      model: the model.
      is_local: ``(name) -> bool``, which trainable weights are local; names are paths with slashes.
      client_optimizer: trains the shared weights; ``optax.sgd(0.1)`` by default, as in TFF.
      server_optimizer: ``optax.sgd(1.0)`` by default.
      reconstruction_optimizer: trains the local weights; ``optax.sgd(0.1)`` by default.
      split_dataset: reconstruct from the even batches of the client's examples in order, and train from the odd ones
        (of one batch, from every other example); each half is then repeated, shuffled and filled by itself. By default
        both take all examples.
      reconstruction_batching: how ClientDatasets are cut into batches for the reconstruction (several epochs, say);
        ``client_batching`` by default.
      client_weighting: ``"num_examples"``, of the second pass, or ``"uniform"``.
      train_metrics: see `build_weighted_fed_avg`; of the second pass.
      aggregator: the weighted mean by default.
      client_batching: see `compose_learning_process`.
      **options: see `compose_learning_process`.

    Returns:
      The process; the server's trainable weights are a dict from the shared weights' names to arrays.

    Raises:
      InputError: no trainable weight is local, or all are; or an option does not fit.
    """
    sgd = optax.sgd(0.1)
    reconstruction = check_optimizer(reconstruction_optimizer or sgd, "build_fed_recon: reconstruction_optimizer")
    metrics = check_metrics("build_fed_recon", "train_metrics", train_metrics)
    parts = _split("build_fed_recon", check_model(model), is_local)
    work = build_model_delta_client_work(
        parts.shared, client_optimizer or sgd, client_weighting=client_weighting, train_metrics=metrics
    )
    finalizer = build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0))
    return compose_learning_process(
        parts.shared,
        client_work=_second_pass(work),
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=Finalizer(
            finalizer.initialize, lambda state, weights, found: finalizer.next(state, weights, found.aggregate)
        ),
        survey=Survey(
            _reconstruction(parts, reconstruction),
            SumFactory().create(()),
            lambda weights, state, found: weights,
            reconstruction_batching,
            splits=split_dataset,
        ),
        client_batching=client_batching,
        **options,
    )


@takes_tff_keywords
def build_fed_recon_eval(
    model: Model,
    is_local: Callable[[str], bool],
    reconstruction_optimizer: optax.GradientTransformation | None = None,
    *,
    split_dataset: bool = True,
    reconstruction_batching: Batching | None = None,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
) -> LearningProcess[EvalState]:
    """Build evaluation after reconstruction of the clients' local weights.

    Each client draws new local weights, trains them with the shared weights fixed, and evaluates both together. See
    tff.learning.algorithms.build_fed_recon_eval.

    Args:
      model: the model that `build_fed_recon` trains; its ``eval_metrics`` and its mean ``loss`` are evaluated.
      is_local: as for `build_fed_recon`.
      reconstruction_optimizer: trains the local weights; ``optax.sgd(0.1)`` by default, as in TFF.
      split_dataset: reconstruct from the even batches and evaluate on the odd ones, as TFF does by default; see
        `build_fed_recon`. False takes all examples for both.
      reconstruction_batching: see `build_fed_recon`.
      client_batching: how ClientDatasets are cut into batches; usually each example once (``BatchHParams``).
      client_execution: see `CohortRunner`.
      clients_per_chunk: see `CohortRunner`.

    Returns:
      The process, with the metrics of `build_fed_eval`. ``set_model_weights(state, weights)`` takes the weights of a
      process of `build_fed_recon`.

    Raises:
      InputError: no trainable weight is local, or all are; or an option does not fit.
    """
    reconstruction = check_optimizer(
        reconstruction_optimizer or optax.sgd(0.1), "build_fed_recon_eval: reconstruction_optimizer"
    )
    parts = _split("build_fed_recon_eval", check_model(model), is_local)
    first_pass, runner = (
        CohortRunner(work, SumFactory().create(()), client_execution, clients_per_chunk)
        for work in (_reconstruction(parts, reconstruction), _second_pass(evaluation_work(parts.shared)))
    )
    return evaluation_process(
        parts.shared, runner, client_batching, first_pass, reconstruction_batching, splits=split_dataset
    )
