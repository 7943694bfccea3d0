"""Options of aggregators give finite aggregates, or raise by their name."""

import math

import jax
import numpy as np
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.learning.process import ClientUpdates

UPDATE = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
UPDATES = ClientUpdates({"a": UPDATE}, np.ones(7, np.float32), np.ones(7, bool), np.arange(7))
TEMPLATE = {"a": jax.ShapeDtypeStruct((4,), np.float32)}
INF, NAN = math.inf, math.nan
KINDS = (NAN, "x", True)  # of the wrong kind wherever a number is needed


def quantile(**options):
    return agg.ClippingFactory(agg.QuantileEstimation(**options))


def compression(codec, **options):
    return agg.CompressionFactory(codec(**options))


def coded(name):
    return lambda **options: compression(getattr(agg, name), **options)


NOISE = {"below_estimate_stddev": 1.0}
# The factory, its option, the other arguments, and the refused values in addition to KINDS.
REFUSED = [
    (agg.ClippingFactory, "clipping_norm", {}, (0, -1.0, None)),
    (agg.ClippingFactory, "norm_order", {"clipping_norm": 1.0}, (0, 3)),
    (agg.ZeroingFactory, "zeroing_norm", {}, (0, -INF, None)),
    (quantile, "initial_estimate", {}, (0, INF, None)),
    (quantile, "target_quantile", {}, (-0.1, 1.1, None)),
    (quantile, "learning_rate", {}, (0, INF, None)),
    (quantile, "multiplier", {}, (-1, INF, None)),
    (quantile, "increment", {}, (-1, INF, None)),
    (quantile, "below_estimate_stddev", {"clients_per_round": 5.0}, (-1, INF, None)),
    (quantile, "clients_per_round", NOISE, (0, -1, INF, None)),
    (agg.DifferentiallyPrivateFactory, "noise_multiplier", {"clients_per_round": 7, "clip": 1.0}, (-1, INF, None)),
    (agg.DifferentiallyPrivateFactory, "clients_per_round", {"noise_multiplier": 1.0, "clip": 1.0}, (0, INF, None)),
    (agg.DifferentiallyPrivateFactory, "clip", {"noise_multiplier": 1.0, "clients_per_round": 7}, (0, INF, None)),
    (agg.dp_aggregator, "noise_multiplier", {"clients_per_round": 7}, (-1, INF, None)),
    (agg.dp_aggregator, "clients_per_round", {"noise_multiplier": 0.1}, (0, INF, None)),
    (coded("UniformQuantizer"), "num_levels", {}, (1, 2.5, None)),
    (coded("RotatedUniformQuantizer"), "num_levels", {}, (1, 2.5, None)),
    (coded("EliasGamma"), "step_size", {}, (0, -0.5, INF, None)),
    (agg.entropy_compression_aggregator, "step_size", {}, (0, -0.5, INF, None)),
    (coded("TernGrad"), "clip_stddevs", {}, (0, -INF)),
    (coded("TopK"), "fraction", {}, (0, 1.5, None)),
    (agg.CompressionFactory, "codec", {}, (None, agg.Drive)),
    (agg.CompressionFactory, "threshold", {}, (-1, 0.5, None)),
    (agg.TrimmedMeanFactory, "trim_fraction", {}, (0.5, None)),
    (agg.KrumFactory, "num_byzantine", {}, (-1, 1.5, None)),
    (agg.KrumFactory, "num_selected", {}, (0, 1.5, None)),
    (agg.GeometricMedianFactory, "num_iterations", {}, (0, 1.5, INF, None)),
    (agg.GeometricMedianFactory, "smoothing", {}, (0, INF, None)),
    (agg.GeometricMedianFactory, "tolerance", {}, (-1, INF, None)),
    (agg.SecureSumFactory, "bound", {}, (0, INF, None)),
    (agg.SecureSumFactory, "modulus_bits", {"bound": 1.0}, (7, 33, 16.0, None)),
    (agg.SecureSumFactory, "num_neighbors", {"bound": 1.0}, (1, 3, 2.0)),
    (agg.SecureSumFactory, "min_clients", {"bound": 1.0}, (-1, 1.5, None)),
]
ACCOUNTING = {"rounds": 3, "clients_per_round": 2, "num_clients": 10, "delta": 1e-5}
REFUSED += [
    (agg.gaussian_epsilon, name, {**ACCOUNTING, "noise_multiplier": 1.0}, refused)
    for name, refused in {
        "noise_multiplier": (-1, INF),
        "rounds": (0, 1.5),
        "clients_per_round": (0, 11),
        "num_clients": (0, 2.5),
        "delta": (0, 1),
    }.items()
]
REFUSED.append((agg.gaussian_noise_multiplier, "epsilon", ACCOUNTING, (0, INF)))


@pytest.mark.full_cases("33-noise_multiplier--1")
@pytest.mark.parametrize(
    ("make", "name", "given", "value"),
    [
        pytest.param(make, name, given, value, id=f"{number}-{name}-{value}")
        for number, (make, name, given, values) in enumerate(REFUSED)
        for value in (*values, *KINDS)
        if (name, value) != ("norm_order", True)  # 1
    ],
)
def test_refused_by_name(make, name, given, value):
    with pytest.raises(InputError, match=f"{name}|clients a round"):
        make(**{**given, name: value})


@pytest.mark.default_cases(
    "ZeroingFactory(zeroing_norm=inf, inner_agg_factory=MeanFactory(value_sum_factory=None), norm_order=inf)"
)
@pytest.mark.parametrize(
    "factory",
    [
        agg.ClippingFactory(INF),
        agg.ZeroingFactory(INF),
        quantile(multiplier=0, increment=0),
        agg.CompressionFactory(agg.TernGrad(clip_stddevs=INF)),
        agg.SecureSumFactory(np.float32(5.0), min_clients=0),
        agg.KrumFactory(np.int64(1), num_selected=np.int64(2)),
    ],
    ids=str,
)
def test_accepted_extreme_values_give_finite_results(factory):
    process = factory.create(TEMPLATE)
    found = process.next(process.initialize(), UPDATES, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((found.state, found.result)))


@pytest.mark.default_cases("ClippingFactory1", "DifferentiallyPrivateFactory0")
@pytest.mark.parametrize(
    "factory",
    [
        agg.ClippingFactory(1.0),
        agg.ClippingFactory(1.0, norm_order=1),
        agg.ZeroingFactory(1.0),
        agg.DifferentiallyPrivateFactory.gaussian_fixed(0.1, 7, 1.0),
        agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, 7),
        agg.robust_aggregator(),
        agg.MeanFactory(agg.SecureSumFactory(5.0)),
    ],
    ids=lambda factory: type(factory).__name__,
)
def test_updates_without_numbers(factory):
    """A model with a layer of no units sends such; their norm is 0."""
    process = factory.create({"a": jax.ShapeDtypeStruct((0,), np.float32)})
    updates = UPDATES._replace(update={"a": np.zeros((7, 0), np.float32)})
    found = process.next(process.initialize(), updates, jax.random.key(0))
    assert found.result["a"].shape == (0,)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.state))
