"""Code written for TFF: names, variants of builders, the training loop."""

import csv
import dataclasses
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tests.federated import workload
from tests.federated.workload import Logistic, batches, local_sgd, tree, weighted_mean
from tf2jax_lite.errors import InputError

CLIENTS = workload.make_clients(3, seed=4, low=5, high=9, shape=(6,), classes=4)
DATA = [fed.ClientDataset(c) for c in CLIENTS]
BATCHING = fed.BatchHParams(batch_size=4)
LR = 0.3
SIZES = [len(c["y"]) for c in CLIENTS]


def model():
    return workload.jax_logistic(6, 4)


def zeros():
    return Logistic.zeros(6, 4)


def mean_of(clients, update, weights):
    return weighted_mean([update(c) for c in clients], weights)


def trained(process, rounds=2):
    state = process.initialize()
    for _ in range(rounds):
        state, _ = process.next(state, DATA)
    return process.get_model_weights(state).trainable


def close(found, expected, atol=1e-5):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


def close_trees(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_names_of_templates():
    assert fed.LearningState is fed.LearningAlgorithmState
    assert fed.DistributionProcess is fed.Distributor and fed.FinalizerProcess is fed.Finalizer
    process = fed.compose_learning_process(
        model(),
        distributor=fed.build_broadcast_process(),
        client_work=fed.build_model_delta_client_work(
            model(), optax.sgd(LR), client_weighting=fed.ClientWeighting.UNIFORM
        ),
        aggregator=fed.aggregators.MeanFactory(),
        finalizer=fed.build_apply_optimizer_finalizer(optax.sgd(1.0)),
        client_batching=BATCHING,
    )
    state = process.initialize()
    assert state._fields[2:7] == ("global_model_weights", "distributor", "client_work", "aggregator", "finalizer")
    assert state.weights is state.global_model_weights and state.params is state.weights.trainable
    with pytest.raises(InputError, match="client_weighting is 'num_examples' or 'uniform'"):
        fed.build_fed_sgd_client_work(model(), client_weighting="size")


@pytest.mark.full
def test_tffs_keywords():
    options = {"client_batching": BATCHING}
    found = fed.build_weighted_fed_avg(
        model_fn=model(),
        client_optimizer_fn=optax.sgd(LR),
        server_optimizer_fn=optax.sgd(0.5),
        model_aggregator=fed.aggregators.clipping_factory(0.1),
        model_distributor=fed.build_broadcast_process(),
        client_weighting=fed.ClientWeighting.NUM_EXAMPLES,
        **options,
    )
    factory = fed.aggregators.ClippingFactory(0.1)
    same = fed.build_weighted_fed_avg(model(), optax.sgd(LR), optax.sgd(0.5), aggregator=factory, **options)
    jax.tree.map(np.testing.assert_array_equal, trained(found), trained(same))
    with pytest.raises(InputError, match="model_aggregator is TFF's name of aggregator; give one"):
        fed.build_fed_sgd(model(), aggregator=factory, model_aggregator=factory)


def test_factories_have_tffs_defaults():
    agg = fed.aggregators
    estimation = agg.PrivateQuantileEstimationProcess.no_noise(1.0, 0.8, 0.2)
    assert agg.clipping_factory(estimation) == agg.ClippingFactory(estimation, agg.MeanFactory())
    assert agg.zeroing_factory(2.0, norm_order=2.0) == agg.ZeroingFactory(2.0, agg.MeanFactory(), 2.0)
    private = agg.ddp_secure_aggregator(1.0, 100).inner_agg_factory.value_sum_factory
    assert (private.bits, private.l2_clip, private.modclip_prob, private.auto_l2_clip) == (20, 0.1, 1e-4, True)
    assert (private.auto_l2_target_quantile, private.auto_l2_lr) == (0.5, 0.2)
    coded = agg.entropy_compression_aggregator(zeroing=False, clipping=False).value_sum_factory
    assert coded == agg.CompressionFactory(agg.EliasGamma(0.5), agg.SumFactory())
    secure = agg.secure_aggregator()
    assert (secure.zeroing_norm.initial_estimate, secure.inner_agg_factory.clipping_norm) == (10.0, estimation)
    bound = secure.inner_agg_factory.inner_agg_factory.value_sum_factory.bound
    assert (bound.initial_estimate, bound.target_quantile, bound.learning_rate, bound.multiplier) == (50, 0.95, 1, 2)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [True, False])
def test_fed_prox_variants(weighted):
    mu, p = 0.7, zeros()
    for _ in range(2):
        updates = [
            tree(
                np.subtract,
                local_sgd(p, c, LR, 4, direction=lambda y, g, _, p=p: tree(lambda g, y, x: g + mu * (y - x), g, y, p)),
                p,
            )
            for c in CLIENTS
        ]
        p = tree(np.add, p, weighted_mean(updates, SIZES if weighted else [1] * 3))
    build = fed.build_weighted_fed_prox if weighted else fed.build_unweighted_fed_prox
    close(trained(build(model(), mu, optax.sgd(LR), client_batching=BATCHING)), p)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [True, False])
def test_optimizer_schedules(weighted):
    p = zeros()
    for number in range(2):
        updates = [tree(np.subtract, local_sgd(p, c, LR * 0.5**number, 4), p) for c in CLIENTS]
        p = tree(np.add, p, weighted_mean(updates, SIZES if weighted else [1] * 3))
    kind = "weighted" if weighted else "unweighted"
    build = getattr(fed, f"build_{kind}_fed_avg_with_optimizer_schedule")
    close(trained(build(model(), lambda r: LR * 0.5**r, optax.sgd, client_batching=BATCHING)), p)
    with pytest.raises(InputError, match="client_learning_rate_fn is a function"):
        build(model(), 0.1, optax.sgd)


@pytest.mark.full
def test_own_client_step_with_the_weights_of_the_carry():
    """Gradients are clipped to a norm of 0.1, as in TFF's tutorial on composing."""
    grad, work = fed.model_grad(model()), fed.build_model_delta_client_work(model(), optax.sgd(LR))

    def client_step(state, message, carry, batch):
        grads = grad(fed.ModelWeights(carry.trainable, carry.non_trainable), batch, None).trainable
        grads = jax.tree.map(lambda g: g / jnp.maximum(optax.tree.norm(grads) / 0.1, 1), grads)
        weights = jax.tree.map(lambda w, g: w - LR * g, carry.trainable, grads)
        return carry._replace(trainable=weights, weight=carry.weight + batch[fed.EXAMPLE_MASK_KEY].sum())

    process = fed.compose_learning_process(
        model(),
        client_work=dataclasses.replace(work, client_step=client_step),
        aggregator=fed.aggregators.MeanFactory(),
        finalizer=fed.build_apply_optimizer_finalizer(optax.sgd(1.0)),
        client_batching=BATCHING,
    )

    def clipped(y, g, batch):
        norm = np.sqrt(sum((leaf**2).sum() for leaf in g.values()))
        return tree(lambda leaf: leaf / max(norm / 0.1, 1), g)

    p = zeros()
    for _ in range(2):
        updates = [tree(np.subtract, local_sgd(p, c, LR, 4, direction=clipped), p) for c in CLIENTS]
        p = tree(np.add, p, weighted_mean(updates, SIZES))
    close(trained(process), p)


@pytest.mark.full
def test_a_carry_has_the_weights_that_change():
    start = fed.ModelWeights({"w": jnp.ones(2)}, {"fixed": jnp.ones(3), "moving": jnp.zeros(())})

    def apply_for_train(weights, batch, rng):
        return fed.TrainOutput(
            batch["x"] @ weights.trainable["w"], {**weights.non_trainable, "moving": batch["x"].sum()}
        )

    changing = fed.Model(
        lambda key: start,
        apply_for_train,
        lambda weights, batch: batch["x"] @ weights.trainable["w"],
        fed.named_loss("mse"),
        changes={"fixed": False, "moving": True},
    )
    work = fed.build_model_delta_client_work(changing, optax.sgd(LR))
    carry = work.client_init(work.initialize(), start, jax.random.key(0), None)
    assert carry.non_trainable == {"fixed": None, "moving": 0}
    batch = {"x": np.ones((3, 2), np.float32), "y": np.zeros(3, np.float32)}
    result = work.next(work.initialize(), start, [batch], jax.random.key(0)).result
    assert [float(leaf) for leaf in result.non_trainable] == [-6.0]


def mime_lite(weights, rates, server_rate=1.0):
    """Return Mime Lite with momentum in numpy."""
    p, m = zeros(), zeros()
    for rate in rates:
        c = weighted_mean([Logistic.grad(p, k) for k in CLIENTS], weights)
        updates = [
            tree(
                np.subtract,
                p,
                local_sgd(p, k, rate, 4, direction=lambda y, g, _, m=m: tree(lambda g, m: g + 0.9 * m, g, m)),
            )
            for k in CLIENTS
        ]
        p = tree(lambda a, b: a - server_rate * b, p, weighted_mean(updates, weights))
        m = tree(lambda c, m: c + 0.9 * m, c, m)
    return p


@pytest.mark.full
def test_mime_lite_variants():
    options = {"client_batching": BATCHING}
    base = optax.sgd(LR, momentum=0.9)
    found = fed.build_weighted_mime_lite(model(), base, optax.sgd(0.5), **options)
    close(trained(found), mime_lite(SIZES, [LR, LR], 0.5))
    found = fed.build_unweighted_mime_lite(model(), base, **options)
    close(trained(found), mime_lite([1, 1, 1], [LR, LR]))
    found = fed.build_mime_lite_with_optimizer_schedule(
        model(), lambda r: LR * 0.5**r, lambda rate: optax.sgd(rate, momentum=0.9), **options
    )
    close(trained(found), mime_lite(SIZES, [LR, LR / 2]))


@pytest.mark.default_cases("split")
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_fed_recon_agrees_with_numpy(split):
    """The bias is local: retrained in each round, and never sent."""
    p, rate = zeros()["w"], 0.2
    for _ in range(2):
        updates, weights = [], []
        for client in CLIENTS:
            own, w = np.zeros(4), p
            found = batches(client, 4)
            first, second = (found[::2], found[1::2]) if split else (found, found)
            for batch in first:
                own = own - rate * Logistic.grad({"w": p, "b": own}, batch)["b"]
            for batch in second:
                w = w - LR * Logistic.grad({"w": w, "b": own}, batch)["w"]
            updates.append({"w": w - p})
            weights.append(sum(len(batch["y"]) for batch in second))
        p = p + weighted_mean(updates, weights)["w"]
    process = fed.build_fed_recon(
        model(),
        lambda name: name == "b",
        optax.sgd(LR),
        reconstruction_optimizer=optax.sgd(rate),
        split_dataset=split,
        client_batching=BATCHING,
    )
    weights = trained(process)
    assert set(weights) == {"w"}
    close(weights, {"w": p})
    with pytest.raises(InputError, match="is_local chooses some of the trainable weights, not none of b, w"):
        fed.build_fed_recon(model(), lambda name: False)


@pytest.mark.full_cases("whole")
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_fed_recon_eval_agrees_with_numpy(split):
    """The clients' biases are retrained; statistics go on over rounds."""
    own = workload.jax_logistic(6, 4, {"accuracy": fed.metrics.Accuracy()})
    p, rate, options = np.random.default_rng(1).normal(size=(6, 4)), 0.2, {} if split else {"split_dataset": False}
    losses, right = [], []  # of each client
    for client in CLIENTS:
        bias, found = np.zeros(4), batches(client, 4)
        first, second = (found[::2], found[1::2]) if split else (found, found)
        for batch in first:
            bias = bias - rate * Logistic.grad({"w": p, "b": bias}, batch)["b"]
        x, y = (np.concatenate([batch[name] for batch in second]) for name in ("x", "y"))
        logits = x @ p + bias
        losses.append(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y])
        right.append(logits.argmax(1) == y)
    process = fed.build_fed_recon_eval(
        own, lambda name: name == "b", reconstruction_optimizer_fn=optax.sgd(rate), client_batching=BATCHING, **options
    )
    state = process.set_model_weights(process.initialize(), {"w": jnp.asarray(p, jnp.float32)})
    for data in (DATA[:2], DATA):
        state, metrics = process.next(state, data)
    current, total = (metrics["client_work"]["eval"][f"{name}_metrics"] for name in ("current_round", "total_rounds"))
    for found, start in ((current, 2), (total, 0)):
        for name, values in (("loss", losses), ("accuracy", right)):
            np.testing.assert_allclose(found[name], np.concatenate((values[:2] + values)[start:]).mean(), rtol=1e-5)
    with pytest.raises(InputError, match="build_fed_recon_eval: is_local chooses some"):
        fed.build_fed_recon_eval(own, lambda name: True)


def test_several_models_are_evaluated_on_the_same_clients():
    """Clients may be iterators, which are read once."""
    own = workload.jax_logistic(6, 4, {"accuracy": fed.metrics.Accuracy()})
    params = {name: {"w": jnp.full((6, 4), scale), "b": jnp.arange(4.0)} for name, scale in (("a", 0.0), ("b", 1.0))}
    process = fed.build_fed_multi_model_eval([own, own], client_batching=BATCHING)
    single = fed.build_fed_eval(own, client_batching=BATCHING)
    state = process.set_model_weights(process.initialize(), params)
    ones = {name: single.initialize(params=p) for name, p in params.items()}
    for data in (DATA[:2], DATA):
        state, metrics = process.next(state, [iter([dict(d.raw_examples)]) for d in data])
        for name in ones:
            ones[name], expected = single.next(ones[name], data)
            close_trees(metrics["client_work"][name], expected["client_work"])
            jax.tree.map(np.testing.assert_array_equal, metrics["clients"], expected["clients"])
    assert process.get_model_weights(state)["b"].trainable["w"].sum() == 24
    named = fed.build_fed_multi_model_eval({"old": own}, client_batching=BATCHING)
    assert list(named.initialize(params={"old": params["b"]})) == ["old"]
    with pytest.raises(InputError, match="give 1 to 26 models"):
        fed.build_fed_multi_model_eval([])


def test_train_model_releases_to_callbacks(tmp_path, caplog):
    process = fed.build_weighted_fed_avg(model(), optax.sgd(LR), client_batching=BATCHING)
    memory, records = fed.MemoryReleaseManager(), []
    managers = [
        memory,
        records.append,
        fed.CSVFileReleaseManager(tmp_path / "a" / "metrics.csv"),
        fed.JSONLinesReleaseManager(tmp_path / "metrics.jsonl"),
        fed.LoggingReleaseManager(),
        fed.TensorBoardReleaseManager(tmp_path / "events"),
    ]
    with caplog.at_level(logging.INFO, "tf2jax_lite.federated"):
        _, history = fed.train_model(process, lambda number: DATA, 2, callbacks=managers)
    assert records == history == list(memory.values().values())
    rows = list(csv.DictReader((tmp_path / "a" / "metrics.csv").open()))
    assert [int(row["round"]) for row in rows] == [1, 2]
    assert float(rows[1]["client_work/train/loss"]) == history[1]["client_work/train/loss"]
    assert fed.read_history(tmp_path / "metrics.jsonl") == history
    assert json.loads(caplog.messages[0].partition(": ")[2]) == history[0]
    assert list((tmp_path / "events").iterdir())
    with pytest.raises(InputError, match="a callback has release"):
        fed.train_model(process, lambda number: DATA, 1, callbacks=["metrics.csv"])


@pytest.mark.full
def test_a_resumed_training_releases_rounds_before_it(tmp_path):
    store = fed.CheckpointFile(tmp_path, {})
    process = fed.build_weighted_fed_avg(model(), optax.sgd(LR), client_batching=BATCHING)
    for rounds in (1, 3):
        memory = fed.MemoryReleaseManager()
        fed.train_model(process, lambda number: DATA, rounds, callbacks=[memory], checkpoint_dir=store)
        assert list(memory.values()) == list(range(1, rounds + 1))
