"""Cohorts of other sizes need no other programs."""

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.federated import aggregators as agg

MODEL = fed.create_model_from_fn({"w": np.zeros((4, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
SGD = optax.sgd(0.1)
BATCHING = fed.ShuffleRepeatBatchHParams(batch_size=10)
OPTIONS = {"client_batching": BATCHING}
PROCESSES = {
    "fed_avg": lambda: fed.build_weighted_fed_avg(MODEL, SGD, **OPTIONS),
    "scaffold": lambda: fed.build_scaffold(MODEL, 30, 0.1, **OPTIONS),
    "per_fed_avg": lambda: fed.build_per_fed_avg(MODEL, 0.1, SGD, **OPTIONS),
    "fed_buff": lambda: fed.build_fed_buff(MODEL, SGD, buffer_size=3, concurrency=10, **OPTIONS),
    "mime": lambda: fed.build_mime(MODEL, SGD, **OPTIONS),
    "hyp_cluster": lambda: fed.build_hyp_cluster(MODEL, 2, SGD, **OPTIONS),
    **{
        name: lambda factory=factory: fed.build_unweighted_fed_avg(MODEL, SGD, aggregator=factory, **OPTIONS)
        for name, factory in {
            "median": agg.CoordinateMedianFactory(),
            "krum": agg.KrumFactory(1),
            "clipping": agg.robust_aggregator(weighted=False),
            "private": agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, 10),
            "compressed": agg.CompressionFactory(agg.Drive()),
        }.items()
    },
}
NAMES = ("run", "_begin_round", "_end_round", "_message_of_survey")


def cohort(rng, most):
    sizes = rng.integers(3, 40, int(rng.integers(5, most + 1)))
    return [
        (f"client {i}", fed.ClientDataset({"x": rng.normal(size=(n, 4)).astype(np.float32), "y": np.ones((n, 3))}))
        for i, n in enumerate(sizes)
    ]


@pytest.mark.default_cases("fed_avg")
@pytest.mark.parametrize("name", PROCESSES)
def test_changing_cohorts_share_programs(name, caplog):
    rng, process = np.random.default_rng(0), PROCESSES[name]()
    state, counts = process.initialize(), []
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for _ in range(20):
            state, _ = process.next(state, cohort(rng, 20))
            counts.append(sum("Finished XLA compilation" in r.getMessage() for r in caplog.records))
    programs = [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    own = [text for text in programs if any(f"jit({n})" in text for n in NAMES)]
    passes = 2 if name in ("mime", "hyp_cluster") else 1
    assert 1 <= len([text for text in own if "jit(run)" in text]) <= 3 * passes, own
    assert counts[-1] == counts[9], programs[counts[9] :]
