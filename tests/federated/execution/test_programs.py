"""Cohorts of other sizes need no other programs."""

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.federated import aggregators as agg

MODEL = fed.create_model_from_fn(
    {name: np.zeros(shape, np.float32) for name, shape in {"w": (4, 3), "b": (3,), "rows": (2, 3)}.items()},
    lambda p, b: b["x"] @ p["w"] + p["b"] + p["rows"][b["domain_id"]],
    "mse",
)
SGD = optax.sgd(0.1)
BATCHING = fed.ShuffleRepeatBatchHParams(batch_size=10)
OPTIONS = {"client_batching": BATCHING}
FACTORIES = {
    "median": agg.CoordinateMedianFactory(),
    "trimmed_mean": agg.TrimmedMeanFactory(0.1),
    "krum": agg.KrumFactory(1),
    "geometric_median": agg.GeometricMedianFactory(),
    "clipping": agg.robust_aggregator(weighted=False),
    "private": agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, 10),
    "trees": agg.DifferentiallyPrivateFactory.tree_adaptive(0.1, 10),
    "local": agg.LocalDpFactory(0.1, 1.0),
    "distributed": agg.UnweightedMeanFactory(agg.DistributedDpSumFactory(0.1, 10, 16, 1.0)),
    "secure": agg.secure_aggregator(weighted=False),
    "neighbors": agg.UnweightedMeanFactory(agg.SecureSumFactory(1.0, num_neighbors=2)),
    "compressed": agg.CompressionFactory(agg.Drive()),
    "one vector": agg.ConcatFactory(agg.UnweightedMeanFactory()),
    "screening": agg.ScreeningFactory(agg.UnweightedMeanFactory()),
}
DOMAINS = {"init_domain_weights": [1, 1], "init_domain_window": [[1, 1]]}
PROCESSES = {
    "fed_avg": lambda: fed.build_weighted_fed_avg(MODEL, SGD, **OPTIONS),
    "fed_prox": lambda: fed.build_weighted_fed_prox(MODEL, 0.1, SGD, **OPTIONS),
    "fed_sgd": lambda: fed.build_fed_sgd(MODEL, **OPTIONS),
    "fed_opt": lambda: fed.build_fed_opt(MODEL, SGD, **OPTIONS),
    "fed_nova": lambda: fed.build_fed_nova(MODEL, 0.1, **OPTIONS),
    "fed_dyn": lambda: fed.build_fed_dyn(MODEL, 30, 0.1, SGD, **OPTIONS),
    "scaffold": lambda: fed.build_scaffold(MODEL, 30, 0.1, **OPTIONS),
    "ditto": lambda: fed.build_ditto(MODEL, 0.1, SGD, **OPTIONS),
    "apfl": lambda: fed.build_apfl(MODEL, SGD, **OPTIONS),
    "per_fed_avg": lambda: fed.build_per_fed_avg(MODEL, 0.1, SGD, **OPTIONS),
    "fed_buff": lambda: fed.build_fed_buff(MODEL, SGD, buffer_size=3, concurrency=10, **OPTIONS),
    "mime": lambda: fed.build_mime(MODEL, SGD, **OPTIONS),
    "mime_lite": lambda: fed.build_mime_lite(MODEL, SGD, **OPTIONS),
    "agnostic": lambda: fed.build_agnostic_fed_avg(MODEL, SGD, **DOMAINS, **OPTIONS),
    "fed_recon": lambda: fed.build_fed_recon(MODEL, lambda name: name == "b", **OPTIONS),
    "hyp_cluster": lambda: fed.build_hyp_cluster(MODEL, 2, SGD, **OPTIONS),
    "fed_kmeans": lambda: fed.build_fed_kmeans(2, (4,), **OPTIONS),
    "select_rows": lambda: fed.build_weighted_fed_avg(
        fed.select_rows(MODEL, lambda name: name == "rows", "domain_id", 2), SGD, **OPTIONS
    ),
    **{
        name: lambda factory=factory: fed.build_unweighted_fed_avg(MODEL, SGD, aggregator=factory, **OPTIONS)
        for name, factory in FACTORIES.items()
    },
}
TWO_PASSES = ("mime", "mime_lite", "agnostic", "fed_recon", "hyp_cluster")
NAMES = ("run", "_begin_round", "_end_round", "_message_of_survey")


def cohort(rng, most):
    sizes = rng.integers(3, 40, int(rng.integers(5, most + 1)))
    found = []
    for i, n in enumerate(sizes):
        x = rng.normal(size=(n, 4)).astype(np.float32)
        examples = {"x": x, "y": np.ones((n, 3)), "domain_id": np.arange(n) % 2}
        found.append((f"client {i}", fed.ClientDataset(examples)))
    return found


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
    passes = 2 if name in TWO_PASSES else 1
    assert 1 <= len([text for text in own if "jit(run)" in text]) <= 3 * passes, own
    assert counts[-1] == counts[9], programs[counts[9] :]
