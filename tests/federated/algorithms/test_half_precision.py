"""Weights of bfloat16 and float16: float32 sums, and unchanged dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.data import BatchHParams, ClientDataset
from tf2jax_lite.learning.metrics import MeanStat, SumStat
from tf2jax_lite.learning.model import TrainOutput, evaluate_model

HALVES = [jnp.bfloat16, jnp.float16]
ONE = BatchHParams(1)


def linear(dtype):
    """Return a model with the loss x * w: its gradient is the mean of x."""
    return fed.create_model_from_fn(
        {"w": jnp.ones((), dtype)}, lambda p, b: b["x"].astype(dtype) * p["w"], lambda b, found: found
    )


def clients(*numbers, value=1.0):
    return [ClientDataset({"x": np.full(n, value, np.float32)}) for n in numbers]


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_many_examples(dtype):
    """Sums of bfloat16 stand still at 256, those of float16 at 2048."""
    process = fed.build_fed_sgd(linear(dtype), optax.sgd(1.0), client_batching=ONE)
    state, _ = process.next(process.initialize(), clients(2304))
    assert float(state.weights.trainable["w"]) == 0.0 and state.weights.trainable["w"].dtype == dtype
    process = fed.build_mime(linear(dtype), optax.sgd(0.0), client_batching=ONE)
    _, metrics = process.next(process.initialize(), clients(2304))
    assert float(metrics["finalizer"]["gradient_norm"]) == 1.0


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
def test_losses_and_norms(dtype):
    """4096 losses of 256 exceed float16, as does the gradient's square."""
    model, data = linear(dtype), clients(4096, value=256.0)
    process = fed.build_fed_sgd(model, optax.sgd(1.0), client_batching=BatchHParams(4096))
    _, metrics = process.next(process.initialize(), data)
    assert float(metrics["client_work"]["train"]["loss"]) == 256.0
    assert float(metrics["finalizer"]["update_norm"]) == 256.0
    batches = list(data[0].batch(batch_size=16))
    assert float(evaluate_model(model, model.init(jax.random.key(0)), batches)["loss"]) == 256.0


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
def test_statistics_of_metrics(dtype):
    ones = jnp.ones(3000, dtype)
    for stat in (MeanStat.new(ones, ones), MeanStat(ones, ones), SumStat.new(ones), SumStat(ones)):
        assert float(stat.reduce().accum) == 3000.0
    total = SumStat.new(jnp.asarray(2048, dtype)).merge(SumStat.new(jnp.asarray(1, dtype)))
    assert float(total.result()) == 2049.0


@pytest.mark.full
@pytest.mark.parametrize("backend", ["scan", "vmap", "loop"])
def test_statistics_of_a_model_are_averaged(backend):
    """By all clients' weights: 600 of them in bfloat16 were 256 or 512."""
    start = fed.ModelWeights({"w": jnp.ones((), jnp.bfloat16)}, {"seen": jnp.zeros((), jnp.bfloat16)})

    def train(weights, batch, rng):
        predictions = batch["x"].astype(jnp.bfloat16) * weights.trainable["w"]
        return TrainOutput(predictions, {"seen": weights.non_trainable["seen"] + 1})

    model = fed.Model(lambda key: start, train, lambda weights, batch: batch["x"], lambda batch, found: found)
    process = fed.build_weighted_fed_avg(model, optax.sgd(0.0), client_execution=backend, client_batching=ONE)
    state, _ = process.next(process.initialize(), clients(*[1] * (2 if backend == "loop" else 600)))
    assert float(state.weights.non_trainable["seen"]) == 1.0
    assert state.weights.non_trainable["seen"].dtype == jnp.bfloat16


def average(server=None, client=None, **options):
    return lambda model: fed.build_weighted_fed_avg(model, client or optax.sgd(0.1), server, **options)


ALGORITHMS = {
    "fed_avg": average(),
    "fed_avg, clipped": average(aggregator=agg.robust_aggregator()),
    "fed_avg, privately": average(
        client_weighting="uniform", aggregator=agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, 2)
    ),
    "fed_avg, momentum": average(optax.sgd(1.0, momentum=0.9)),
    "fed_avg, schedules": average(
        optax.sgd(optax.cosine_decay_schedule(1.0, 5)), lambda number: optax.sgd(0.1 / (1 + number))
    ),
    "fed_prox": lambda m: fed.build_fed_prox(m, 0.1, optax.sgd(0.1)),
    "fed_sgd": fed.build_fed_sgd,
    "adam": lambda m: fed.build_fed_opt(m, optax.sgd(0.1), "adam"),
    "yogi": lambda m: fed.build_fed_opt(m, optax.sgd(0.1), "yogi"),
    "adagrad": lambda m: fed.build_fed_opt(m, optax.sgd(0.1), "adagrad"),
    "mime": lambda m: fed.build_mime(m, optax.sgd(0.1, momentum=0.9)),
    "mime_lite": lambda m: fed.build_mime_lite(m, optax.adam(0.1)),
    "scaffold": lambda m: fed.build_scaffold(m, 4, np.float32(0.1), server_learning_rate=np.float32(0.5)),
    "agnostic": lambda m: fed.build_agnostic_fed_avg(
        m, optax.sgd(0.1), init_domain_weights=[1, 1], init_domain_window=[[1, 1]]
    ),
    "per_fed_avg": lambda m: fed.build_per_fed_avg(m, np.float32(0.1), optax.sgd(0.1)),
    "fed_buff": lambda m: fed.build_fed_buff(m, optax.sgd(0.1), buffer_size=2),
    "hyp_cluster": lambda m: fed.build_hyp_cluster(m, 2, optax.sgd(0.1)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_state_keeps_its_dtypes(name):
    """A training whose new state has other dtypes than its checkpoint is not resumed."""
    process = ALGORITHMS[name](linear(jnp.bfloat16))
    state = process.initialize()
    batch = {"x": np.float32([1, 2]), "domain_id": np.int32([0, 1])}
    data = [[batch], [batch]]
    new, _ = process.next(state, [*enumerate(data)] if process.takes_client_ids else data)
    if name == "scaffold":
        controls = [new.clients.like, *new.clients.values(), new.finalizer]
        assert [c["w"].dtype for c in controls] == [jnp.float32] * 4
        state, new = (s._replace(clients=None) for s in (state, new))
    forms = [jax.tree.map(lambda leaf: f"{leaf.dtype}{leaf.shape}", s) for s in (state, new)]
    assert forms[0] == forms[1]


@pytest.mark.full
def test_control_variates_are_means_of_gradients():
    """Gradients are 1; a third, with two absent clients, is not in bfloat16."""
    process = fed.build_scaffold(linear(jnp.bfloat16), 3, 2.0**-10, client_batching=BatchHParams(8))
    start = process.initialize(params={"w": jnp.zeros((), jnp.bfloat16)})
    state, _ = process.next(start, [(0, clients(24)[0])])
    assert float(state.clients[0]["w"]) == 1.0
    assert float(state.finalizer["w"]) == np.float32(1) / np.float32(3)
