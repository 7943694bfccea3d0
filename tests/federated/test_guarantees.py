"""All that leaves a client has the guarantees of the updates' aggregation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.model import TrainOutput
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.sources import create_model_from_fn

SGD = optax.sgd(0.1)
PLAIN = fed.create_model_from_fn({"w": np.zeros((4, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")


def _init(key):
    return ModelWeights({"w": jnp.zeros((4, 3))}, {"mean": jnp.zeros(4), "count": jnp.int32(0)})


def _train(weights, batch):
    moved = {"mean": 0.5 * (weights.non_trainable["mean"] + batch["x"].mean(0)), "count": jnp.int32(1)}
    return TrainOutput(batch["x"] @ weights.trainable["w"], moved)


NORMALIZED = create_model_from_fn(_init, _train, "mse", apply_eval=lambda w, b: b["x"] @ w.trainable["w"])
PRIVATE = {
    "fixed": agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, 1.0),
    "adaptive": agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, 3),
    "combination": agg.dp_aggregator(0.1, 3),
    "clipped": agg.ClippingFactory(1.0, agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, 1.0)),
    "compressed": agg.CompressionFactory(agg.Drive(), agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, 1.0)),
    "distributed": agg.ddp_secure_aggregator(0.1, 3),
}
OTHERS = {
    "median": agg.CoordinateMedianFactory(),
    "robust": agg.robust_aggregator(weighted=False),
    "secure": agg.secure_aggregator(weighted=False),
}
ALL = PRIVATE | OTHERS
UNGUARDED = {
    "mime": lambda a: fed.build_mime(PLAIN, SGD, client_weighting="uniform", aggregator=a),
    "mime lite": lambda a: fed.build_unweighted_mime_lite(PLAIN, SGD, aggregator=a),
    "agnostic": lambda a: fed.build_agnostic_fed_avg(
        PLAIN, SGD, init_domain_weights=[1, 1], init_domain_window=[[1, 1]], aggregator=a
    ),
}


@pytest.mark.parametrize("aggregator", ALL)
@pytest.mark.parametrize("name", UNGUARDED)
def test_a_first_pass_in_the_clear_raises(name, aggregator):
    with pytest.raises(InputError, match="the results of the first pass leave the clients without it"):
        UNGUARDED[name](ALL[aggregator])


@pytest.mark.parametrize("aggregator", ALL)
def test_a_first_pass_with_the_same_guarantees_is_taken(aggregator):
    both = {"aggregator": ALL[aggregator], "full_gradient_aggregator": ALL[aggregator]}
    fed.build_unweighted_mime_lite(PLAIN, SGD, **both)
    fed.build_mime(PLAIN, SGD, client_weighting="uniform", **both)


@pytest.mark.parametrize("aggregator", PRIVATE)
@pytest.mark.parametrize("build", [fed.build_unweighted_fed_avg, lambda m, o, **k: fed.build_scaffold(m, 5, 0.1, **k)])
def test_statistics_raise_under_privacy(build, aggregator):
    build(PLAIN, SGD, aggregator=PRIVATE[aggregator])
    with pytest.raises(InputError, match=r"statistics .* leave the clients without it"):
        build(NORMALIZED, SGD, aggregator=PRIVATE[aggregator])


@pytest.mark.parametrize("make", [agg.MeanFactory, lambda inner: agg.ClippingFactory(1.0, agg.MeanFactory(inner))])
def test_weights_raise_under_distributed_privacy(make):
    with pytest.raises(InputError, match="Use UnweightedMeanFactory"):
        make(agg.DistributedDpSumFactory(1.0, 5, 20, 1.0)).create({"w": jax.ShapeDtypeStruct((3,), jnp.float32)})


@pytest.mark.parametrize(
    "factory",
    [
        agg.DifferentiallyPrivateFactory(0.5, 7.0, agg.QuantileEstimation()),
        agg.ZeroingFactory(agg.QuantileEstimation(), PRIVATE["fixed"]),
        agg.CompressionFactory(agg.Drive(), agg.ClippingFactory(agg.QuantileEstimation(), PRIVATE["fixed"])),
    ],
    ids=["clipping", "zeroing", "inside"],
)
def test_a_norm_without_noise_raises_under_privacy(factory):
    with pytest.raises(InputError, match="norm follows the clients without noise"):
        fed.build_unweighted_fed_avg(PLAIN, SGD, aggregator=factory)


def clients(far=()):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(5, 4)).astype(np.float32), "y": np.ones((5, 3), np.float32)} for _ in range(7)]
    for index in far:
        batches[index]["x"] += 1e4
    return [[batch] for batch in batches]


@pytest.mark.default_cases("factory0")
@pytest.mark.parametrize("factory", [agg.CoordinateMedianFactory(), agg.KrumFactory(2), agg.TrimmedMeanFactory(0.3)])
def test_statistics_pass_a_robust_aggregation(factory):
    """Two of seven clients move the mean by thousands, and the aggregate not."""
    process = fed.build_unweighted_fed_avg(NORMALIZED, SGD, aggregator=factory)
    state = process.initialize()
    honest, attacked = (process.next(state, clients(far)).state.weights.non_trainable for far in ((), (2, 5)))
    assert np.abs(honest["mean"]).max() < 1 and np.abs(attacked["mean"]).max() < 1
    assert np.abs(attacked["mean"]).max() > 0


def test_statistics_pass_a_secure_aggregation():
    """The same numbers, up to quantization."""
    plain, secure = (
        fed.build_unweighted_fed_avg(NORMALIZED, SGD, aggregator=a)
        for a in (agg.UnweightedMeanFactory(), agg.UnweightedMeanFactory(agg.SecureSumFactory(8.0)))
    )
    found, expected = (p.next(p.initialize(), clients()).state.weights for p in (secure, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)


def test_metrics_that_privacy_does_not_cover_are_apart(tmp_path):
    """And are recorded nowhere."""
    process = fed.build_unweighted_fed_avg(PLAIN, SGD, aggregator=PRIVATE["combination"], client_diagnostics=True)
    metrics = process.next(process.initialize(), clients()).metrics
    assert set(metrics) == {"distributor", "finalizer", "aggregator", "not_private"}
    assert metrics["aggregator"] == {
        "zeroing_norm": metrics["aggregator"]["zeroing_norm"],
        "zeroing": {name: metrics["aggregator"]["zeroing"][name] for name in ("clipping_norm", "noise_stddev")},
    }
    assert {"client_work", "clients", "client_diagnostics", "aggregator"} == set(metrics["not_private"])
    _, history = fed.run_rounds(process, lambda number: clients(), 2, metrics_file=tmp_path / "m.jsonl")
    names = {name for record in [*history, *fed.read_history(tmp_path / "m.jsonl")] for name in record}
    covered = {"aggregator/zeroing_norm", "aggregator/zeroing/clipping_norm", "aggregator/zeroing/noise_stddev"}
    assert names == {"round", "finalizer/update_norm", *covered}
