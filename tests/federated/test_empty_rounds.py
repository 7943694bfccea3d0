"""Rounds without clients leave the weights; under privacy they add noise."""

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.federated import aggregators as agg

MODEL = fed.create_model_from_fn({"w": np.ones((3, 2), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
SGD = optax.sgd(0.1)
PROCESSES = {
    "mean": lambda: fed.build_weighted_fed_avg(MODEL, SGD),
    "median": lambda: fed.build_weighted_fed_avg(MODEL, SGD, aggregator=agg.CoordinateMedianFactory()),
    "secure": lambda: fed.build_unweighted_fed_avg(MODEL, SGD, aggregator=agg.secure_aggregator(weighted=False)),
    "scaffold": lambda: fed.build_scaffold(MODEL, 5, 0.1),
    "fed_buff": lambda: fed.build_fed_buff(MODEL, SGD),
    "mime": lambda: fed.build_mime(MODEL, SGD),
    "hyp_cluster": lambda: fed.build_hyp_cluster(MODEL, 2, SGD),
}


@pytest.mark.default_cases("median", "scaffold")
@pytest.mark.parametrize("name", PROCESSES)
def test_an_empty_round_changes_nothing(name):
    process = PROCESSES[name]()
    state = process.initialize()
    new, metrics = process.next(state, [])
    jax.tree.map(np.testing.assert_array_equal, process.get_model_weights(new), process.get_model_weights(state))
    assert int(new.round) == 1 and not any(map(int, metrics["clients"].values()))


def test_an_empty_round_is_no_visible_one_under_privacy():
    factory = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 5, 1.0)
    process = fed.build_unweighted_fed_avg(MODEL, SGD, aggregator=factory)
    new, _ = process.next(process.initialize(), [])
    assert (np.asarray(new.params["w"]) != 1).all()
