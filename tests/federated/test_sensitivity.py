"""One client moves private aggregates by their sensitivity, and nothing else.

All algorithms with all private aggregators: a combination either raises, or keeps both promises in its first rounds.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators.base import Factory, as_aggregator
from tf2jax_lite.learning.process import NOT_PRIVATE

SGD = optax.sgd(0.1)
COUNT, CLIP = 4, 0.5
MODEL = fed.create_model_from_fn(
    {"v": np.zeros((3,), np.float32), "w": np.full((4, 3), 0.1, np.float32)},
    lambda p, b: b["x"] @ p["w"] + p["v"],
    "mse",
)
SPARSE = fed.select_rows(
    MODEL, lambda name: name == "w", lambda e: (np.array([3, 0, 2, 1]), {**e, "x": e["x"][:, [3, 0, 2, 1]]}), 4
)


def noised(**options):
    return agg.DifferentiallyPrivateFactory(1.0, COUNT, CLIP, noise_seed=0, **options)


def quantile(start=CLIP, stddev=2.0):
    return agg.QuantileEstimation(start, 0.5, 0.2, below_estimate_stddev=stddev, clients_per_round=COUNT)


# A factory, and the most that its result moves by if a client is exchanged.
PRIVATE = {
    "fixed": (noised(), 2 * CLIP / COUNT),
    "adaptive": (dataclasses.replace(noised(), clip=quantile()), 2 * CLIP / COUNT),
    "trees": (noised(tree=agg.TreeNoise(2, 3)), 2 * CLIP / COUNT),
    "zeroing": (agg.ZeroingFactory(quantile(10 * CLIP), noised()), 2 * CLIP / COUNT),
    "clipping": (agg.ClippingFactory(0.1, noised()), 2 * 0.1 / COUNT),
    "compressed": (agg.CompressionFactory(agg.TopK(0.5), noised()), 2 * CLIP / COUNT),
    "secure": (noised(record_aggregation_factory=agg.SecureSumFactory(1.0)), 2 * CLIP / COUNT),
    # Of integers, with the scale for few clients: rounding adds to the clipping norm.
    "distributed": (agg.UnweightedMeanFactory(agg.DistributedDpSumFactory(1.0, COUNT, 20, CLIP, noise_seed=0)), 0.26),
    "local": (agg.LocalDpFactory(1.0, CLIP, noise_seed=0), 2 * CLIP / COUNT),
    "weighted": (agg.MeanFactory(noised()), None),
    "quantile in the clear": (dataclasses.replace(noised(), clip=agg.QuantileEstimation(CLIP)), None),
}
BATCHING = fed.ShuffleRepeatBatchHParams(batch_size=3)
UNIFORM = {"client_weighting": "uniform", "client_batching": BATCHING}


def both(aggregator):
    return {"aggregator": aggregator, "full_gradient_aggregator": aggregator, "client_batching": BATCHING}


ALGORITHMS = {
    "fed_avg": lambda a: fed.build_unweighted_fed_avg(MODEL, SGD, aggregator=a, client_batching=BATCHING),
    "fed_avg, weighted": lambda a: fed.build_weighted_fed_avg(MODEL, SGD, aggregator=a, client_batching=BATCHING),
    "select_rows": lambda a: fed.build_unweighted_fed_avg(SPARSE, SGD, aggregator=a, client_batching=BATCHING),
    "fed_opt": lambda a: fed.build_fed_opt(MODEL, SGD, "yogi", aggregator=a, **UNIFORM),
    "fed_prox": lambda a: fed.build_unweighted_fed_prox(MODEL, 0.1, SGD, aggregator=a, client_batching=BATCHING),
    "fed_sgd": lambda a: fed.build_fed_sgd(MODEL, aggregator=a, **UNIFORM),
    "mime": lambda a: fed.build_mime(MODEL, SGD, client_weighting="uniform", **both(a)),
    "mime, first pass in the clear": lambda a: fed.build_mime(MODEL, SGD, aggregator=a, **UNIFORM),
    "mime_lite": lambda a: fed.build_unweighted_mime_lite(MODEL, SGD, **both(a)),
    "fed_nova": lambda a: fed.build_fed_nova(MODEL, 0.1, aggregator=a, **UNIFORM),
    "fed_dyn": lambda a: fed.build_fed_dyn(MODEL, 10, 0.1, SGD, aggregator=a, client_batching=BATCHING),
    "per_fed_avg": lambda a: fed.build_per_fed_avg(MODEL, 1e-4, SGD, aggregator=a, **UNIFORM),
    "fed_buff": lambda a: fed.build_fed_buff(
        MODEL, SGD, buffer_size=COUNT, concurrency=COUNT, aggregator=a, client_batching=BATCHING
    ),
    "ditto": lambda a: fed.build_ditto(MODEL, 0.1, SGD, aggregator=a, **UNIFORM),
    "scaffold": lambda a: fed.build_scaffold(MODEL, 10, 0.1, aggregator=a, client_batching=BATCHING),
    "apfl": lambda a: fed.build_apfl(MODEL, SGD, aggregator=a, client_batching=BATCHING),
    "agnostic": lambda a: fed.build_agnostic_fed_avg(
        MODEL, SGD, init_domain_weights=[1, 1], init_domain_window=[[1, 1]], aggregator=a, client_batching=BATCHING
    ),
    "hyp_cluster": lambda a: fed.build_hyp_cluster(MODEL, 2, SGD, aggregator=a, **UNIFORM),
    "fed_recon": lambda a: fed.build_fed_recon(MODEL, lambda name: name == "v", aggregator=a, **UNIFORM),
}


@dataclasses.dataclass(frozen=True)
class Recorded(Factory):
    """An aggregation that keeps its results, and passes a constant on.

    Of a direction of zeros Mime's clients would all send zeros.
    """

    inner: Factory
    results: list = dataclasses.field(default_factory=list)

    def create(self, template):
        process = as_aggregator(self.inner, template)

        def report(state, accumulator, key):
            found = process.report(state, accumulator, key)
            jax.debug.callback(lambda tree: self.results.append(jax.device_get(tree)), found.result)
            return found._replace(result=jax.tree.map(lambda r: jnp.full_like(r, 0.01), found.result), state=state)

        return dataclasses.replace(process, report=report)

    _create = create


def clients(changed):
    """Return a cohort; its second client may have other data, far away.

    Without them no gradient is so large that `agg.ZeroingFactory` leaves it out.
    """
    rng = np.random.default_rng(0)
    found = []
    for index in range(COUNT):
        x = rng.normal(size=(5, 4)).astype(np.float32) * (100 if changed and index == 1 else 1)
        examples = {"x": x, "y": np.full((5, 3), 0.1, np.float32), "domain_id": (np.arange(5) % 2).astype(np.int32)}
        found.append((f"client {index}", fed.ClientDataset(examples)))
    return found


def run(process, recorded, changed):
    """Return the aggregates of a round, and all that is seen at the server."""
    recorded.results.clear()
    output = process.next(process.initialize(), clients(changed))
    public = {key: value for key, value in output.metrics.items() if key != NOT_PRIVATE}
    jax.effects_barrier()
    seen = output.state._replace(clients=(), key=0), public  # each client keeps its own state
    return list(recorded.results), jax.device_get(seen)


def distance(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return np.sqrt(sum(np.sum((np.asarray(x, np.float64) - y) ** 2) for x, y in pairs))


@pytest.mark.default_cases("scaffold-adaptive", "mime_lite-trees")
@pytest.mark.parametrize("aggregator", PRIVATE)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_client_moves_what_leaves_by_the_sensitivity(name, aggregator):
    factory, sensitivity = PRIVATE[aggregator]
    try:
        ALGORITHMS[name](factory)
    except InputError:
        return
    assert sensitivity is not None
    recorded = Recorded(factory)
    process = ALGORITHMS[name](recorded)
    (first, before), (second, after) = (run(process, recorded, changed) for changed in (False, True))
    assert len(first) == len(second) == (2 if name.startswith("mime") else 1)
    for one, other in zip(first, second, strict=True):
        assert 0 < distance(one, other) <= sensitivity * (1 + 1e-4)
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_most_algorithms_take_private_aggregators():
    """Otherwise the test above shows little."""
    taken = set()
    for name, build in ALGORITHMS.items():
        try:
            build(PRIVATE["fixed"][0])
        except InputError:
            continue
        taken.add(name)
    assert set(ALGORITHMS) - taken == {
        "fed_avg, weighted",
        "mime, first pass in the clear",
        "apfl",
        "agnostic",
        "hyp_cluster",
    }
