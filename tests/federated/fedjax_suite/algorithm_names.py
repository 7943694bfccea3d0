"""FedJAX's names of algorithms, on processes, client work and ``for_each_client``."""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.federated.fedjax_suite.core_names import ModelEvaluator, model_of_loss
from tf2jax_lite import federated as fed
from tf2jax_lite.federated.algorithms.agnostic import _Message as Message
from tf2jax_lite.federated.algorithms.agnostic import _survey_work as survey_work
from tf2jax_lite.federated.algorithms.agnostic import _training_work as training_work
from tf2jax_lite.federated.algorithms.apfl import ApflClientState
from tf2jax_lite.federated.algorithms.apfl import _client_work as apfl_work


class State(NamedTuple):
    params: Any
    opt_state: Any
    inner: Any
    domain_weights: Any = None
    domain_window: Any = None
    client_states: Any = None
    cluster_params: Any = None


class FederatedAlgorithm(NamedTuple):
    init: Any
    apply: Any


def algorithm(build, view):
    """Return FedJAX's ``init`` and ``apply`` of a process."""
    made = {}

    def seen(state):
        return State(state.params, state.finalizer, state)._replace(**view(state))

    def init(params):
        made["process"] = build(params)
        return seen(made["process"].initialize(params=params))

    def apply(state, clients):
        inner, metrics = made["process"].next(state.inner, clients)
        return seen(inner), metrics["client_diagnostics"]

    return FederatedAlgorithm(init, apply)


def model_of_grad(grad_fn, params):
    """A model whose loss has the gradient of a function."""

    def apply_for_train(weights, batch, rng):
        grads = jax.lax.stop_gradient(grad_fn(weights, batch, rng))
        return jnp.broadcast_to(optax.tree.vdot(weights, grads), len(batch["x"]))

    return fed.Model(lambda key: params, apply_for_train, None, lambda batch, out: out)


OPTIONS = {"client_diagnostics": True}


def each_update(work, clients, message):
    """Pairs of id and result of client work, for batched clients."""
    for client_id, batches, key in clients:
        yield client_id, work.next(work.initialize(), message, batches, key).result


def federated_averaging(grad_fn, client_optimizer, server_optimizer, client_batch_hparams):
    def build(params):
        return fed.build_weighted_fed_avg(
            model_of_grad(grad_fn, params),
            client_optimizer,
            server_optimizer,
            client_batching=client_batch_hparams,
            **OPTIONS,
        )

    return algorithm(build, lambda state: {})


def create_train_for_each_client(grad_fn, client_optimizer):
    def train(params, clients):
        work = fed.build_model_delta_client_work(model_of_grad(grad_fn, params), client_optimizer)
        for client_id, result in each_update(work, clients, fed.ModelWeights(params, ())):
            yield client_id, result.update

    return train


fed_avg = types.SimpleNamespace(
    federated_averaging=federated_averaging, create_train_for_each_client=create_train_for_each_client
)


def proximal(per_example_loss, client_optimizer, server_optimizer, client_batch_hparams, proximal_weight):
    def build(params):
        return fed.build_weighted_fed_prox(
            model_of_loss(per_example_loss, params),
            proximal_weight,
            client_optimizer,
            server_optimizer,
            client_batching=client_batch_hparams,
            **OPTIONS,
        )

    return algorithm(build, lambda state: {})


def create_proximal_train(grad_fn, client_optimizer):
    def client_init(server_params, key):
        return server_params, server_params, client_optimizer.init(server_params), key

    def client_step(state, batch):
        params, server_params, opt_state, key = state
        key, own = jax.random.split(key)
        opt_state, params = client_optimizer.apply(grad_fn(params, server_params, batch, own), opt_state, params)
        return params, server_params, opt_state, key

    return fed.for_each_client(client_init, client_step, lambda params, state: optax.tree.sub(params, state[0]))


fed_prox = types.SimpleNamespace(fed_prox=proximal, create_train_for_each_client=create_proximal_train)


def mime_of(lite):
    def build_algorithm(
        per_example_loss,
        base_optimizer,
        client_batch_hparams,
        grads_batch_hparams,
        server_learning_rate,
        client_delta_clip_norm=None,
    ):
        def build(params):
            options = dict(OPTIONS)
            if client_delta_clip_norm is not None:
                options["aggregator"] = fed.aggregators.ClippingFactory(client_delta_clip_norm)
                options["full_gradient_aggregator"] = fed.aggregators.ClippingFactory(1e6)
            return fed.build_mime(
                model_of_loss(per_example_loss, params),
                base_optimizer,
                server_learning_rate=server_learning_rate,
                client_batching=client_batch_hparams,
                lite=lite,
                **options,
            )

        made = algorithm(build, lambda state: {"opt_state": state.finalizer.base})

        def apply(state, clients):
            state, diagnostics = made.apply(state, clients)
            clip = np.inf if client_delta_clip_norm is None else client_delta_clip_norm
            clipped = {i: {"clipped_delta_l2_norm": min(d["delta_l2_norm"], clip)} for i, d in diagnostics.items()}
            return state, {i: d | clipped[i] for i, d in diagnostics.items()}

        return FederatedAlgorithm(made.init, apply)

    return build_algorithm


def create_grads_for_each_client(grad_fn):
    def grads(params, clients):
        work = fed.build_fed_sgd_client_work(model_of_grad(grad_fn, params))
        for client_id, result in each_update(work, clients, fed.ModelWeights(params, ())):
            total = jax.tree.map(lambda leaf, result=result: leaf * result.update_weight, result.update)
            yield client_id, (total, result.update_weight)

    return grads


def create_mime_train(grad_fn, base_optimizer):
    def client_init(shared, key):
        return shared["params"], shared, key

    def client_step(state, batch):
        params, shared, key = state
        key, own = jax.random.split(key)
        grads = grad_fn(params, batch, own)
        if "control_variate" in shared:
            at_server = grad_fn(shared["params"], batch, own)
            grads = jax.tree.map(lambda g, s, c: g - s + c, grads, at_server, shared["control_variate"])
        _, params = base_optimizer.apply(grads, shared["opt_state"], params)
        return params, shared, key

    return fed.for_each_client(
        client_init, client_step, lambda shared, state: optax.tree.sub(shared["params"], state[0])
    )


mime, mime_lite = (
    types.SimpleNamespace(
        mime=mime_of(False),
        mime_lite=mime_of(True),
        create_grads_for_each_client=create_grads_for_each_client,
        create_train_for_each_client=create_mime_train,
    )
    for _ in range(2)
)


def agnostic_federated_averaging(
    per_example_loss,
    client_optimizer,
    server_optimizer,
    client_batch_hparams,
    domain_batch_hparams,
    init_domain_weights,
    domain_learning_rate,
    domain_algorithm="eg",
    domain_window_size=1,
    init_domain_window=None,
):
    window = [1.0] * len(init_domain_weights) if init_domain_window is None else init_domain_window

    def build(params):
        return fed.build_agnostic_fed_avg(
            model_of_loss(per_example_loss, params),
            client_optimizer,
            server_optimizer,
            init_domain_weights=init_domain_weights,
            init_domain_window=[window] * domain_window_size,
            domain_learning_rate=domain_learning_rate,
            client_batching=client_batch_hparams,
            **OPTIONS,
        )

    build({"w": jnp.zeros(())})  # checks the options

    def view(state):
        domains = state.finalizer
        return {
            "opt_state": domains.optimizer,
            "domain_weights": domains.weights,
            "domain_window": domains.window,
        }

    return algorithm(build, view)


def create_domain_metrics(per_example_loss, num_domains):
    def metrics(shared, clients):
        work = survey_work(model_of_loss(per_example_loss, shared["params"]).of_weights, num_domains, "domain_id")
        for client_id, result in each_update(work, clients, fed.ModelWeights(shared["params"], ())):
            count = result.update["count"]
            own = {"domain_loss": result.update["loss"], "domain_num": count}
            yield client_id, own | {"beta": jnp.sum(shared["alpha"] * count)}

    return metrics


def create_agnostic_train(per_example_loss, client_optimizer, num_domains):
    def train(shared, clients):
        model = model_of_loss(per_example_loss, shared["params"]).of_weights
        work = training_work(model, client_optimizer, "domain_id", {})
        message = Message(fed.ModelWeights(shared["params"], ()), shared["alpha"])
        for client_id, batches, own in clients:
            counts = jnp.zeros(num_domains).at[0].set(own["beta"] / shared["alpha"][0])
            result = work.next(work.initialize(), message, batches, own["rng"], counts).result
            yield client_id, result.update

    return train


agnostic_fed_avg = types.SimpleNamespace(
    agnostic_federated_averaging=agnostic_federated_averaging,
    create_domain_metrics_for_each_client=create_domain_metrics,
    create_train_for_each_client=create_agnostic_train,
)


def trainer_of(returns_delta):
    class Trainer:
        def __init__(self, grad_fn, client_optimizer):
            def client_init(shared, own):
                params, key = (shared, own) if shared is not None else own[::-1]
                return params, params, client_optimizer.init(params), key

            def client_step(state, batch):
                first, params, opt_state, key = state
                key, own = jax.random.split(key)
                opt_state, params = client_optimizer.apply(grad_fn(params, batch, own), opt_state, params)
                return first, params, opt_state, key

            def client_final(shared, state):
                return optax.tree.sub(state[0], state[1]) if returns_delta else state[1]

            self._each = fed.for_each_client(client_init, client_step, client_final)

        def train_global_params(self, params, clients):
            return self._each(params, clients)

        def train_per_client_params(self, clients):
            return self._each(None, ((i, batches, (key, params)) for i, batches, key, params in clients))

    return Trainer


def random_init(num_clusters, init, rng):
    process = fed.build_hyp_cluster(fed.Model(init, None, None, None), num_clusters, fed.optimizers.sgd(1.0))
    return [weights.trainable for weights in process.get_model_weights(process.initialize(rng))]


class ModelKMeansInitializer:
    def __init__(self, model, client_optimizer, regularizer=None):
        self._model, self._optimizer, self._regularizer = model, client_optimizer, regularizer

    def cluster_params(self, num_clusters, rng, clients, train_batch_hparams, eval_batch_hparams):
        found = fed.kmeans_init(
            self._model, num_clusters, clients, self._optimizer, client_batching=train_batch_hparams, key=rng
        )
        return [weights.trainable for weights in found]


def cluster_losses(evaluator, cluster_params, clients, batch_hparams):
    keys = {client_id: jax.random.split(key, len(cluster_params)) for client_id, _, key in clients}
    found = {client_id: [] for client_id, _, _ in clients}
    for number, params in enumerate(cluster_params):
        batched = [(i, data.padded_batch(batch_hparams), keys[i][number]) for i, data, _ in clients]
        for client_id, loss in evaluator.evaluate_global_params(params, batched):
            found[client_id].append(loss)
    return found


def maximization_step(evaluator, cluster_params, clients, batch_hparams):
    losses = cluster_losses(evaluator, cluster_params, clients, batch_hparams)
    return {client_id: int(jnp.argmin(jnp.stack(found))) for client_id, found in losses.items()}


class HypClusterEvaluator:
    def __init__(self, model, regularizer=None):
        self._losses = fed.AverageLossEvaluator(fed.model_per_example_loss(model), regularizer)
        self._metrics = ModelEvaluator(model)

    def evaluate_clients(self, cluster_params, train_clients, test_clients, batch_hparams):
        chosen = maximization_step(self._losses, cluster_params, train_clients, batch_hparams)
        clients = [(i, data.padded_batch(batch_hparams), cluster_params[chosen[i]]) for i, data in test_clients]
        return self._metrics.evaluate_per_client_params(clients)


def expectation_step(trainer, cluster_params, client_cluster_ids, clients, batch_hparams):
    pairs = [[] for _ in cluster_params]
    sizes = {client_id: len(data) for client_id, data, _ in clients}
    batched = [
        (i, data.shuffle_repeat_batch(batch_hparams), key, cluster_params[client_cluster_ids[i]])
        for i, data, key in clients
    ]
    for client_id, update in trainer.train_per_client_params(batched):
        pairs[client_cluster_ids[client_id]].append((update, sizes[client_id]))
    return [fed.tree_util.tree_mean(found) if found else None for found in pairs]


def clusters(
    per_example_loss,
    client_optimizer,
    server_optimizer,
    maximization_batch_hparams,
    expectation_batch_hparams,
    regularizer=None,
):
    made = {}

    def seen(state):
        weights = [weights.trainable for weights in made["process"].get_model_weights(state)]
        return State(None, None, state, cluster_params=weights)

    def init(params):
        made["process"] = fed.build_hyp_cluster(
            model_of_loss(per_example_loss, params[0], regularizer),
            len(params),
            client_optimizer,
            server_optimizer,
            client_batching=expectation_batch_hparams,
            **OPTIONS,
        )
        return seen(made["process"].initialize(params=params))

    def apply(state, clients):
        inner, metrics = made["process"].next(state.inner, clients)
        diagnostics = metrics.get("client_diagnostics", {})
        return seen(inner), {i: {"cluster_id": found["cluster_id"]} for i, found in diagnostics.items()}

    return FederatedAlgorithm(init, apply)


hyp_cluster = types.SimpleNamespace(
    ClientDeltaTrainer=trainer_of(True),
    ClientParamsTrainer=trainer_of(False),
    HypClusterEvaluator=HypClusterEvaluator,
    ModelKMeansInitializer=ModelKMeansInitializer,
    _cluster_losses=cluster_losses,
    expectation_step=expectation_step,
    hyp_cluster=clusters,
    maximization_step=maximization_step,
    random_init=random_init,
)


class ClientState(NamedTuple):
    params: Any
    interpolation_coefficients: Any


def adaptive(grad_fn, client_optimizer, server_optimizer, client_batch_hparams, client_coefficient):
    def build(params):
        return fed.build_apfl(
            model_of_grad(grad_fn, params),
            client_optimizer,
            server_optimizer,
            client_coefficient=client_coefficient,
            client_batching=client_batch_hparams,
            **OPTIONS,
        )

    return algorithm(build, lambda state: {"client_states": state.clients})


def evaluate_mixed(model):
    """Metrics' statistics of each client's own mixture."""

    def each(server_params, clients):
        for client_id, batches, own in clients:
            mixed = jax.tree.map(
                lambda a, v, w: a * v + (1 - a) * w, own.interpolation_coefficients, own.params, server_params
            )
            stats = {name: metric.zero() for name, metric in model.eval_metrics.items()}
            for batch in batches:
                found = model.apply_for_eval(mixed, batch)
                for name, metric in model.eval_metrics.items():
                    mask = batch.get(fed.EXAMPLE_MASK_KEY)
                    stats[name] = stats[name].merge(fed.metrics.evaluate_batch(metric, batch, found, mask))
            yield client_id, stats

    return each


def evaluate_adaptive(model, client_batch_hparams):
    each = evaluate_mixed(model)

    def evaluate(state, clients):
        new = ClientState(state.params, fed.tree_util.tree_zeros_like(state.params))
        batched = ((i, data.padded_batch(client_batch_hparams), state.client_states.get(i, new)) for i, data in clients)
        return each(state.params, batched)

    return evaluate


def create_adaptive_train(grad_fn, client_optimizer):
    def train(server_params, clients):
        work = apfl_work(model_of_grad(grad_fn, server_params).of_weights, client_optimizer, None)
        for client_id, batches, own in clients:
            shares = jax.tree.map(jnp.ravel, own["state"].interpolation_coefficients)
            shares = jax.tree.map(lambda share: share[0], shares)
            state = ApflClientState(own["state"].params, shares, True)
            message = fed.ModelWeights(server_params, ())
            result = work.next(work.initialize(), message, batches, own["rng"], state).result
            yield client_id, {"delta_params": result.update, "state": result.output}

    return train


apfl = types.SimpleNamespace(
    create_train_for_each_client=create_adaptive_train,
    eval_adaptive_personalized_federated_learning=evaluate_adaptive,
    ClientState=ClientState,
    ServerState=functools.partial(State, inner=None),
    adaptive_personalized_federated_learning=adaptive,
    create_eval_for_each_client=evaluate_mixed,
)
