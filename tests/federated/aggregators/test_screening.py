"""A client with unusable values has no part in any aggregation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

TEMPLATE = {"w": jax.ShapeDtypeStruct((3,), jnp.float32)}
GOOD = ([1.0, 2.0, 3.0], [2.0, 0.0, 1.0], [0.5, 1.0, 1.0])
FACTORIES = {
    "sum": agg.SumFactory(),
    "mean": agg.MeanFactory(),
    "unweighted mean": agg.UnweightedMeanFactory(),
    "screening": agg.ScreeningFactory(),
    "private": agg.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 3, 1.0),
    "distributed": agg.DistributedDpSumFactory(0.0, 5, 20, 1.0),
    "robust": agg.robust_aggregator(),
    "secure": agg.secure_aggregator(zeroing=False, clipping=False),
    "median": agg.CoordinateMedianFactory(),
    "trimmed mean": agg.TrimmedMeanFactory(0.2),
    "krum": agg.KrumFactory(),
    "geometric median": agg.GeometricMedianFactory(),
    "compressed": agg.CompressionFactory(agg.UniformQuantizer(256)),
}
# Rows and weights of hostile clients, after the three good ones.
HOSTILE = {
    "NaN": ([[np.nan, 0, 0]], [1]),
    "infinity": ([[0, -np.inf, 0]], [1]),
    "overflow in the sum": ([[3e38] * 3, [3e38] * 3], [1, 1]),
    "opposite overflow": ([[3e38] * 3, [-3e38] * 3], [1, 1]),
    "negative weight": ([[1e6] * 3], [-19.999]),
    "weight 1e38": ([[1, 1, 1]], [1e38]),
    "infinite weight": ([[1, 1, 1]], [np.inf]),
    "NaN weight": ([[1, 1, 1]], [np.nan]),
}


def updates(rows, weights, mask=None):
    rows = np.asarray(rows, np.float32)
    mask = np.ones(len(rows), bool) if mask is None else np.asarray(mask)
    return ClientUpdates({"w": rows}, np.asarray(weights, np.float32), mask, np.arange(len(rows), dtype=np.int32))


@pytest.mark.default_cases(*(f"{name}-NaN" for name in FACTORIES), *(f"mean-{kind}" for kind in HOSTILE))
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", FACTORIES)
def test_the_others_aggregate_is_that_without_hostile_clients(name, kind):
    rows, weights = HOSTILE[kind]
    rows, weights = [*GOOD, *rows], [10, 10, 4, *weights]
    process = FACTORIES[name].create(TEMPLATE)
    step = process.next if name == "krum" else jax.jit(process.next)
    state, key = process.initialize(), jax.random.key(3)
    found = step(state, updates(rows, weights), key)
    assert np.isfinite(found.result["w"]).all() and np.abs(found.result["w"]).max() < 20
    if name == "robust" and kind in ("NaN", "infinity"):
        return  # zeroing puts zeros for these, and their weights count
    if "overflow" in kind and process.bounds_updates:
        return  # it bounds what finite numbers can do, however large
    expected = step(state, updates(rows, weights, np.arange(len(rows)) < 3), key)
    jax.tree.map(np.testing.assert_array_equal, (found.result, found.state), (expected.result, expected.state))
    assert np.abs(found.result["w"]).max() > 0


def test_large_numbers_below_the_bound_are_not_refused():
    process = agg.MeanFactory().create(TEMPLATE)
    found = process.next((), updates([[1e18] * 3, [-1e18, 1e18, 3e17]], [2e9, 2e9]), jax.random.key(0))
    np.testing.assert_allclose(found.result["w"], [0, 1e18, 6.5e17], rtol=1e-6)


def test_an_aggregate_that_is_not_finite_changes_nothing():
    """Whatever screening of clients misses: here an aggregation that divides by zero."""
    whole = agg.MeanFactory().create(TEMPLATE)
    broken = agg.base.screened(
        agg.base.before(
            agg.base.Stage(
                lambda: jnp.float32(1), lambda: jnp.float32(0), lambda s, u, k: (u, 0.0), lambda s, t, k: (s / 0, {})
            ),
            whole,
            "broken",
        )
    )
    found = broken.next(broken.initialize(), updates(GOOD, [1, 1, 1]), jax.random.key(0))
    assert found.state[0] == 1 and not np.any(found.result["w"])


MODEL = fed.create_model_from_fn(
    {"w": np.zeros((4, 3), np.float32)},
    lambda p, b: b["x"] @ p["w"],
    fed.named_loss("sparse_categorical_crossentropy", from_logits=True),
)


def client(label=None, scale=1.0):
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 10).astype(np.int32)
    if label is not None:
        y[3] = label
    return fed.ClientDataset({"x": (scale * rng.normal(size=(10, 4))).astype(np.float32), "y": y})


BATCHING = fed.ShuffleRepeatBatchHParams(batch_size=5, seed=1, fill_remainder=False)


@pytest.mark.default_cases("label 3-scan", "NaN-vmap", "1e38-cpu_pool")
@pytest.mark.parametrize("execution", ["vmap", "scan", "loop", "debug", "cpu_pool"])
@pytest.mark.parametrize(
    "bad",
    [client(3), client(-1), client(scale=np.nan), client(scale=1e38)],
    ids=["label 3", "label -1", "NaN", "1e38"],
)
def test_a_round_leaves_out_names_and_counts_a_bad_client(bad, execution):
    """Of a label out of range, too, whose loss is NaN and whose gradient is not."""
    process = fed.build_weighted_fed_avg(
        MODEL, optax.sgd(0.1), client_batching=BATCHING, client_execution=execution, client_diagnostics=True
    )
    state = process.initialize()
    found = process.next(state, [("a", client()), ("bad", bad), ("c", client())])
    expected = process.next(state, [("a", client()), ("bad", None), ("c", client())])
    np.testing.assert_allclose(found.state.params["w"], expected.state.params["w"], rtol=1e-6)
    assert found.metrics["refused_clients"] == ["bad"] and "refused_clients" not in expected.metrics
    assert {n: int(c) for n, c in found.metrics["clients"].items()} == {
        "participated": 2, "non_finite": 1, "dropped": 0, "empty": 0, "round_refused": 0,
    }  # fmt: skip
    loss = found.metrics["client_work"]["train"]["loss"]
    np.testing.assert_allclose(loss, expected.metrics["client_work"]["train"]["loss"], rtol=1e-6)


def test_a_round_that_would_ruin_the_weights_is_refused():
    """A server optimizer overflows: the state stays, and the next round goes on."""
    process = fed.build_weighted_fed_avg(MODEL, optax.sgd(0.1), optax.sgd(1e39), client_batching=BATCHING)
    state = process.initialize()
    found = process.next(state, [client()])
    assert int(found.metrics["clients"]["round_refused"]) == 1 and int(found.state.round) == 1
    np.testing.assert_array_equal(found.state.params["w"], state.params["w"])


def test_a_bad_client_keeps_its_state():
    process = fed.build_scaffold(MODEL, 3, 0.1, client_batching=BATCHING)
    found = process.next(process.initialize(), [("a", client()), ("bad", client(3))])
    assert set(found.state.clients) == {"a"} and found.metrics["refused_clients"] == ["bad"]


def test_records_name_refused_clients():
    process = fed.build_weighted_fed_avg(MODEL, optax.sgd(0.1), client_batching=BATCHING)
    _, history = fed.run_rounds(process, lambda number: [("a", client()), ("bad", client(3))], 1)
    assert history[0]["refused_clients"] == ["bad"]
