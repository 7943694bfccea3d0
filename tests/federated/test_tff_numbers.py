"""TFF's numeric tests, ported: rows of a feature, results here, and numbers.

Three clients send scalars; the numbers follow from TFF's documented formulas.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


def rounds(factory, values, count=1, weights=(1, 1, 1)):
    """Return the results of rounds in which clients send the same numbers."""
    process = factory.create(SCALAR)
    given = ClientUpdates(jnp.float32(values), jnp.float32(weights), jnp.ones(3, bool), jnp.arange(3))
    state, step, found = process.initialize(), jax.jit(process.next), []
    for _ in range(count):
        output = step(state, given, jax.random.key(0))
        state = output.state
        found.append(float(output.result))
    return found


def stepped(optimizer, *grads):
    """Return a weight, 1 at first, after an optimizer's steps."""
    weight = jnp.float32(1)
    state = optimizer.init(weight)
    for grad in grads:
        update, state = optimizer.update(jnp.float32(grad), state, weight)
        weight = weight + update
    return float(weight)


def optimized():
    adam = fed.server_optimizer("adam", 0.1, tau=1e-7, beta_2=0.999)
    adagrad = fed.server_optimizer("adagrad", 0.1, tau=1e-7, initial_accumulator_value=0.1)
    return [stepped(optax.sgd(0.1, 0.9), 1, 1), stepped(adam, 2), stepped(adagrad, 2)]


def kmeans():
    process = fed.build_fed_kmeans(2, (1,), client_batching=fed.BatchHParams(2))
    clients = [fed.ClientDataset({"x": np.float32(points)[:, None]}) for points in ([1, 2], [11])]
    state, _ = process.next(process.initialize(params=np.float32([[0], [10]])), clients)
    return np.ravel(state.weights.trainable)


def kmeans_keys():
    process = fed.build_fed_kmeans(2, (3,))
    first, same, other = (process.initialize(jax.random.key(seed)).weights.trainable for seed in (4, 4, 5))
    return [np.array_equal(first, same), np.array_equal(first, other), np.all((first >= 0) & (first < 1))]


def concatenated():
    factory = agg.concat_factory(agg.CompressionFactory(agg.TopK(0.4), agg.SumFactory()))
    form = {"a": jax.ShapeDtypeStruct((2,), jnp.float32), "b": jax.ShapeDtypeStruct((3,), jnp.float32)}
    process = factory.create(form)
    update = {"a": jnp.float32([[1, 5]]), "b": jnp.float32([[2, -6, 3]])}
    given = ClientUpdates(update, jnp.ones(1), jnp.ones(1, bool), jnp.arange(1))
    found = process.next(process.initialize(), given, jax.random.key(0)).result
    return np.concatenate([found["a"], found["b"]])


def without_clients():
    process = agg.MeanFactory().create(SCALAR)
    given = ClientUpdates(jnp.float32([1, 2, 3]), jnp.zeros(3), jnp.ones(3, bool), jnp.arange(3))
    empty = given._replace(mask=jnp.zeros(3, bool))
    return [float(process.next(process.initialize(), g, jax.random.key(0)).result) for g in (given, empty)]


def quantile(**options):
    estimation = agg.QuantileEstimation(10.0, 0.8, 0.5, **options)
    state, found = estimation.initialize(), []
    for below in (4, 0, 2):
        state = estimation.next(state, jnp.int32(below), jnp.int32(4), None)
        found.append(float(state))
    return found


def events():
    pytest.importorskip("dp_accounting")
    process = agg.DifferentiallyPrivateFactory.gaussian_fixed(2.0, 3, 1.0).create(SCALAR)
    event = agg.extract_dp_event(process, 5)
    return [event.count, event.event.noise_multiplier]


def several_models():
    """Of two models with a mean absolute error, evaluated on the same two clients."""
    model = fed.create_model_from_fn({"w": np.float32(0)}, lambda p, b: b["x"] * p["w"], "mae")
    process = fed.build_fed_multi_model_eval([model, model])
    state = process.initialize(params={"a": {"w": np.float32(1)}, "b": {"w": np.float32(3)}})
    batch = {"x": np.float32([1, 2]), "y": np.float32([1, 1])}
    _, metrics = process.next(state, [[batch], [batch]])
    return [float(metrics["client_work"][name]["eval"]["current_round_metrics"]["loss"]) for name in "ab"]


DP = agg.DifferentiallyPrivateFactory
LARGER_NORM = 3 * math.exp(-0.5 * (1 / 3 - 0.5))  # the norm after a round in which one client of three is below it

ROWS = {
    "optimizers": (
        optimized,
        [0.71, 0.9, 1 - 0.1 * 2 / math.sqrt(0.1 + 4)],
    ),
    "k-means": (kmeans, [1, 10.5]),
    "clipping": (lambda: rounds(agg.ClippingFactory(3.0), [1, -2, 10], weights=(1, 2, 1)), [0.0]),
    "zeroing": (lambda: rounds(agg.ZeroingFactory(3.0), [1, -2, 10], weights=(1, 2, 1)), [-0.75]),
    "differential privacy": (lambda: rounds(DP.gaussian_fixed(0.0, 4, 1.0), [0.5, 3, -0.2]), [1.3 / 4]),
    "quantile": (quantile, [10 * math.exp(-0.1), 10 * math.exp(0.3), 10 * math.exp(0.45)]),
    "tree_aggregation": (lambda: rounds(DP.tree_aggregation(0.0, 4, 1.0), [0.5, 3, -0.2], 3), [1.3 / 4] * 3),
    "tree_adaptive": (lambda: rounds(DP.tree_adaptive(0.0, 4, 1.0), [0.5, 3, -0.2], 3), [1.3 / 4] * 3),
    "geometric_update=False": (lambda: quantile(geometric_update=False), [9.9, 10.3, 10.45]),
    "extract_dp_event_from_state": (events, [5, 2]),
    "random_seed of k-means": (kmeans_keys, [True, False, True]),
    "stateful norms": (
        lambda: rounds(agg.ClippingFactory(agg.QuantileEstimation(3.0, 0.5, 0.5)), [1, 9, 9], 2),
        [7 / 3, (1 + 2 * LARGER_NORM) / 3],
    ),
    "concat_factory": (concatenated, [0, 5, 0, -6, 0]),
    "no_nan_division": (without_clients, [0, 0]),
    "multi-model evaluation": (several_models, [0.5, 3.5]),
}


@pytest.mark.parametrize("name", ROWS)
def test_numbers_are_tffs(name):
    found, expected = ROWS[name]
    np.testing.assert_allclose(found(), expected, rtol=1e-5, atol=1e-6)


def test_all_rows_are_there():
    assert len(ROWS) == 15
