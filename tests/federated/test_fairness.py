"""Distributions of metrics over clients."""

import numpy as np
import pytest

from tf2jax_lite.federated import fairness_summary


@pytest.mark.parametrize(("name", "worst"), [("loss", 19.0), ("accuracy", 0.0)])
def test_the_worst_tenth_is_that_of_the_metric(name, worst):
    values = np.random.default_rng(0).permutation(20).astype(np.float32)
    summary = fairness_summary({i: {name: v, "num_examples": np.int32(3)} for i, v in enumerate(values)})
    assert set(summary) == {name}
    found = summary[name]
    assert found["mean"] == values.mean() and found["variance"] == pytest.approx(values.var())
    tails = [0.5, 18.5]
    assert [found["worst_decile"], found["best_decile"]] == (tails[::-1] if name == "loss" else tails)
    assert found["worst"] == worst


def test_clients_in_a_list_and_numbers_that_are_not_finite():
    found = fairness_summary({"a": [{"loss": 1.0}, {"loss": 3.0}], "b": {"loss": np.nan, "hits": np.ones(3)}})
    assert set(found) == {"loss"} and found["loss"]["mean"] == 2.0
    assert fairness_summary({}) == {}
