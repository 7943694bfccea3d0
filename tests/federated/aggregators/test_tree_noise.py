"""Noise from trees against numpy's variances; events of accountants."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg

from .cohort import TEMPLATE, make

LEAF = jax.ShapeDtypeStruct((20_000,), jnp.float32)


def node_variances(rounds, use_efficient):
    """Return the variance of the noise of the first t rounds, for each t.

    A node of level l has variance 1; with its subtree it is the best unbiased estimate, 1 / (2 - 2**-l).
    """
    weight = (lambda level: 1 / (2 - 0.5**level)) if use_efficient else (lambda level: 1.0)
    return [sum(weight(level) for level in range(t.bit_length()) if t >> level & 1) for t in range(1, rounds + 1)]


@pytest.mark.parametrize("use_efficient", [True, False])
def test_sums_over_rounds_have_the_variance_of_their_nodes(use_efficient):
    """Also after restarts, whose trees are independent of earlier ones."""
    tree = agg.TreeNoise(5, 7, use_efficient)
    state, step, total, found = tree.initialize(LEAF), jax.jit(tree.next), 0, []
    for number in range(14):
        noise, state = step(state, 3.0, jax.random.key(number))
        total = total + np.asarray(noise, np.float64)
        found.append(total.var() / 9)
    first, second = node_variances(5, use_efficient), node_variances(7, use_efficient)
    expected = [*first, *(first[-1] + v for v in second), *(first[-1] + second[-1] + v for v in second[:2])]
    np.testing.assert_allclose(found, expected, rtol=5 * math.sqrt(2 / LEAF.shape[0]))


def test_without_noise_it_is_the_clipped_mean():
    factories = [
        agg.DifferentiallyPrivateFactory.tree_aggregation(0.0, 20, 3.0, restart_frequency=2),
        agg.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 20, 3.0),
    ]
    key, updates = jax.random.key(0), make()
    processes = [factory.create(TEMPLATE) for factory in factories]
    states, steps = [p.initialize() for p in processes], [jax.jit(p.next) for p in processes]
    for _ in range(3):
        found = [step(s, updates, key) for step, s in zip(steps, states, strict=True)]
        states = [f.state for f in found]
        jax.tree.map(np.testing.assert_array_equal, found[0].result, found[1].result)


def test_quantiles_may_move_by_equal_steps():
    """Down to 0."""
    estimation = agg.QuantileEstimation(0.5, 0.8, 0.3, geometric_update=False)
    found = estimation.initialize()
    for below, total, expected in ((2, 2, 0.44), (0, 2, 0.68), (2, 2, 0.62)):
        found = estimation.next(found, jnp.int32(below), jnp.int32(total), None)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert estimation.next(jnp.float32(0.01), jnp.int32(2), jnp.int32(2), None) == 0


def test_leaves_are_aggregated_as_one_vector():
    """One largest number of all leaves is sent, not one of each."""
    updates = make()
    process = agg.concat_factory(agg.CompressionFactory(agg.TopK(1 / 17))).create(TEMPLATE)
    alone = updates._replace(mask=np.arange(9) == 0)
    found = jax.jit(process.next)(process.initialize(), alone, jax.random.key(0)).result
    assert jax.tree.map(lambda leaf: leaf.shape, found) == jax.tree.map(lambda leaf: leaf.shape, TEMPLATE)
    rows = np.concatenate([updates.update[name][0].reshape(-1) for name in sorted(TEMPLATE)])
    sent = np.concatenate([np.asarray(found[name]).reshape(-1) for name in sorted(TEMPLATE)])
    np.testing.assert_allclose(sent, np.where(abs(rows) == abs(rows).max(), rows, 0), rtol=1e-6)


def test_an_adaptive_norm_changes_when_a_tree_restarts():
    """The estimates between follow Andrew et al."""
    factory = agg.DifferentiallyPrivateFactory.tree_adaptive(
        0.0, 7, 1.0, restart_warmup=2, restart_frequency=3, clip_learning_rate=0.3
    )
    process = factory.create(TEMPLATE)
    state, step, norms = process.initialize(), jax.jit(process.next), []
    for _ in range(9):
        found = step(state, make(scale=0.01), jax.random.key(0))
        state = found.state
        norms.append(float(found.measurements["clipping_norm"]))
    changes = np.flatnonzero(np.diff(norms)) + 1
    assert changes.tolist() == [2, 5, 8]
    np.testing.assert_allclose(norms[2], math.exp(-2 * 0.3 * 0.5), rtol=1e-5)  # all below: half a step of the rate


@pytest.mark.full
def test_training_goes_through_checkpoints_of_trees(tmp_path):
    model = fed.create_model_from_fn({"w": np.zeros((4, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(4, 4)).astype(np.float32), "y": np.ones((4, 3), np.float32)}
    factory = agg.DifferentiallyPrivateFactory.tree_adaptive(0.1, 3, restart_warmup=2, restart_frequency=2)
    process = fed.build_unweighted_fed_avg(model, optax.sgd(0.1), aggregator=factory)
    for rounds in (3, 5):
        state, history = fed.run_rounds(process, lambda _: [[batch]] * 3, rounds, checkpoint_dir=tmp_path / "c")
    assert len(history) == 5 and int(state.aggregator[1].round) == 1
    assert np.isfinite(state.params["w"]).all()


@pytest.mark.full
def test_trees_cost_as_accountants_say():
    dp = pytest.importorskip("dp_accounting")
    delta, noise = 1e-6, 4.0
    trees = [dp.SingleEpochTreeAggregationDpEvent(noise, steps) for steps in (128, 1024, 348)]
    renyi = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL)
    upper = renyi.compose(dp.ComposedDpEvent(trees)).get_epsilon(delta)
    found = agg.tree_epsilon(noise, 1500, delta, restart_warmup=128)
    assert 0.8 * upper < found <= upper
    twice = agg.tree_epsilon(noise, 1500, delta, restart_warmup=128, max_participations=2)
    assert found < twice < agg.tree_epsilon(noise / 2, 1500, delta, restart_warmup=128)
    factory = agg.DifferentiallyPrivateFactory.tree_aggregation(noise, 3, 1.0, restart_frequency=1024)
    assert agg.extract_dp_event(factory.create(TEMPLATE), 1024) == trees[1]
    with pytest.raises(InputError, match="see tree_epsilon"):
        agg.gaussian_epsilon(factory.create(TEMPLATE), 3, 3, 30, delta)


def test_events_are_of_all_releases_of_a_round():
    dp = pytest.importorskip("dp_accounting")
    fixed = agg.DifferentiallyPrivateFactory.gaussian_fixed(2.0, 3, 1.0).create(TEMPLATE)
    assert agg.extract_dp_event(fixed) == dp.GaussianDpEvent(2.0)
    assert agg.extract_dp_event(fixed, 5) == dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 5)
    for factory in (agg.dp_aggregator(0.1, 30), agg.ddp_secure_aggregator(0.1, 30)):
        process = factory.create(TEMPLATE)
        noises = [event.noise_multiplier for event in agg.extract_dp_event(process).events]
        assert len(noises) == 3
        np.testing.assert_allclose(sum(z**-2 for z in noises) ** -0.5, 0.1)
        args = (4, 30, 300, 1e-5)
        np.testing.assert_allclose(agg.gaussian_epsilon(process, *args), agg.gaussian_epsilon(0.1, *args), rtol=1e-6)
    with pytest.raises(InputError, match="does not promise differential privacy"):
        agg.extract_dp_event(agg.MeanFactory().create(TEMPLATE))


def test_local_noise_is_each_clients():
    template = {"w": LEAF}
    updates = make()._replace(update={"w": np.zeros((9, *LEAF.shape), np.float32)})
    process = agg.LocalDpFactory(2.0, 3.0).create(template)
    found = jax.jit(process.next)(process.initialize(), updates, jax.random.key(0)).result["w"]
    np.testing.assert_allclose(found.std(), 6 / math.sqrt(7), rtol=5 / math.sqrt(2 * found.size))


@pytest.mark.full
def test_local_epsilon_is_that_of_exchanged_messages():
    pytest.importorskip("dp_accounting")
    factory = agg.LocalDpFactory.from_epsilon(3.0, 1e-5, 1.0, rounds=2)
    assert 2.99 < agg.gaussian_epsilon(factory.create(TEMPLATE), 2, 10, 10, 1e-5, "fixed_size") <= 3.0
    with pytest.raises(InputError, match="Use build_unweighted_fed_avg"):
        model = fed.create_model_from_fn({"w": np.zeros(2, np.float32)}, lambda p, b: b["x"] * p["w"], "mse")
        fed.build_weighted_fed_avg(model, optax.sgd(0.1), aggregator=factory)
