"""Every algorithm against an independent one in numpy, float64.

The model is logistic regression, with few clients and five rounds.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorflow as tf

from tests.federated import workload
from tests.federated.workload import Logistic, batches, fed_avg, local_sgd, tree, weighted_mean
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.algorithms.agnostic import build_agnostic_fed_avg
from tf2jax_lite.federated.algorithms.cluster_init import kmeans_init
from tf2jax_lite.federated.algorithms.fed_avg import (
    build_fed_opt,
    build_fed_prox,
    build_fed_sgd,
    build_unweighted_fed_avg,
    build_weighted_fed_avg,
    server_optimizer,
)
from tf2jax_lite.federated.algorithms.hyp_cluster import build_hyp_cluster
from tf2jax_lite.federated.algorithms.kmeans import build_fed_kmeans
from tf2jax_lite.federated.algorithms.mime import build_mime, build_mime_lite
from tf2jax_lite.federated.algorithms.scaffold import build_scaffold
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams

SIZE = 10
CLIENTS = workload.make_clients(6, seed=2, low=5, high=33, shape=(6,), classes=4)
CLIENTS = [*CLIENTS[1:3], CLIENTS[0], *CLIENTS[3:]]
# As many clients in each round, the largest among them: nothing is compiled twice.
COHORTS = [[0, 1, 2, 3], [2, 3, 4, 5], [1, 2, 3, 4], [0, 1, 2, 3], [2, 3, 4, 5]]
ROUNDS = [[CLIENTS[i] for i in cohort] for cohort in COHORTS]
BATCHING = ShuffleRepeatBatchHParams(batch_size=SIZE, skip_shuffle=True, fill_remainder=False)
LR = 0.4


def model():
    return workload.jax_logistic(6, 4)


def zeros():
    return Logistic.zeros(6, 4)


def whole_grad(p, client):
    return Logistic.grad(p, client)


def sizes(clients):
    return [len(c["y"]) for c in clients]


def data(clients):
    return [ClientDataset(c) for c in clients]


def train(process, rounds=ROUNDS, wrap=data, **init):
    state = process.initialize(**init)
    metrics = None
    for clients in rounds:
        state, metrics = process.next(state, wrap(clients))
    return state, metrics


def check(process, expected, atol=1e-5, **kwargs):
    state, metrics = train(process, **kwargs)
    for name, value in expected.items():
        found = process.get_model_weights(state).trainable[name]
        np.testing.assert_allclose(found, value, rtol=0, atol=atol, err_msg=name)
    return state, metrics


@pytest.mark.full
def test_unweighted():
    p = zeros()
    for clients in ROUNDS:
        updates = [tree(np.subtract, local_sgd(p, c, LR, SIZE), p) for c in clients]
        p = tree(np.add, p, weighted_mean(updates, [1] * len(updates)))
    check(build_unweighted_fed_avg(model(), optax.sgd(LR), client_batching=BATCHING), p)


@pytest.mark.full
def test_fed_prox():
    mu, p = 0.7, zeros()
    for clients in ROUNDS:
        updates = []
        for c in clients:
            y = local_sgd(
                p, c, LR, SIZE, direction=lambda y, g, _, p=p: tree(lambda g, y, x: g + mu * (y - x), g, y, p)
            )
            updates.append(tree(np.subtract, y, p))
        p = tree(np.add, p, weighted_mean(updates, sizes(clients)))
    check(build_fed_prox(model(), mu, optax.sgd(LR), client_batching=BATCHING), p)


@pytest.mark.full
def test_fed_sgd():
    p = zeros()
    for clients in ROUNDS:
        grads = [whole_grad(p, c) for c in clients]
        p = tree(lambda a, g: a - 0.3 * g, p, weighted_mean(grads, sizes(clients)))
    _, metrics = check(build_fed_sgd(model(), optax.sgd(0.3), client_batching=BATCHING), p)
    assert int(metrics["clients"]["participated"]) == len(ROUNDS[-1])


def adaptive(name, lr, tau=1e-3, b1=0.9, b2=0.99):
    """Return the paper's server steps in numpy, with corrected Adam and Yogi."""
    p, m, v = zeros(), zeros(), tree(lambda a: a * 0, zeros())
    for t, clients in enumerate(ROUNDS, 1):
        updates = [tree(np.subtract, local_sgd(p, c, LR, SIZE), p) for c in clients]
        g = tree(np.negative, weighted_mean(updates, sizes(clients)))
        rate = lr
        if name in ("adam", "yogi"):
            m = tree(lambda m, g: b1 * m + (1 - b1) * g, m, g)
            if name == "adam":
                v = tree(lambda v, g: b2 * v + (1 - b2) * g * g, v, g)
            else:
                v = tree(lambda v, g: v - (1 - b2) * g * g * np.sign(v - g * g), v, g)
            rate = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
            step = tree(lambda m, v: m / (np.sqrt(v) + tau), m, v)
        elif name == "adagrad":
            v = tree(lambda v, g: v + g * g, v, g)
            step = tree(lambda g, v: g / (np.sqrt(v) + tau), g, v)
        else:
            m = tree(lambda m, g: b1 * m + g, m, g)
            step = m
        p = tree(lambda a, s, rate=rate: a - rate * s, p, step)
    return p


@pytest.mark.full
@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad", "momentum"])
def test_fed_opt(name):
    check(build_fed_opt(model(), optax.sgd(LR), name, 0.1, client_batching=BATCHING), adaptive(name, 0.1), atol=2e-5)


GRADIENTS = np.float32([[1e-3, -0.2, 0.0, 3.0], [2e-3, 0.1, 0.0, -1e-4], [-5e-4, 0.0, 0.0, 2.0]])


@pytest.mark.full
@pytest.mark.parametrize("start", [0.0, 0.1])
@pytest.mark.parametrize(
    ("name", "op"), [("adam", tf.raw_ops.ResourceApplyAdam), ("adagrad", tf.raw_ops.ResourceApplyAdagradV2)]
)
def test_server_steps_are_those_of_tensorflows_kernels(name, op, start):
    """Gradients are about as small as tau, which is inside or outside the root."""
    found, var = jnp.ones(4), tf.Variable(np.ones(4, np.float32))
    m, v = tf.Variable(np.zeros(4, np.float32)), tf.Variable(np.full(4, start, np.float32))
    optimizer = server_optimizer(name, 0.3, tau=1e-3, initial_accumulator_value=start)
    state = optimizer.init(found)
    for t, g in enumerate(GRADIENTS, 1):
        if name == "adam":
            op(
                var=var.handle, m=m.handle, v=v.handle, beta1_power=0.9**t, beta2_power=0.99**t, lr=0.3, beta1=0.9,
                beta2=0.99, epsilon=1e-3, grad=g,
            )  # fmt: skip
        else:
            op(var=var.handle, accum=v.handle, lr=0.3, epsilon=1e-3, grad=g)
        updates, state = optimizer.update(jnp.asarray(g), state, found)
        found = optax.apply_updates(found, updates)
        np.testing.assert_allclose(found, var.numpy(), rtol=1e-5)


@pytest.mark.full_cases("adam-0.0")
@pytest.mark.parametrize("tau", [0.0, 1e-3])
@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad"])
def test_weights_that_no_client_moves_stay(name, tau):
    optimizer = server_optimizer(name, 0.3, tau=tau)
    state = optimizer.init({"w": jnp.ones(4)})
    for g in GRADIENTS:
        updates, state = optimizer.update({"w": jnp.asarray(g)}, state)
        assert updates["w"][2] == 0 and np.isfinite(updates["w"]).all()


@pytest.mark.full
def test_adagrad_adds_up_many_rounds_in_half_precision():
    optimizer = server_optimizer("adagrad", 1.0)
    weights = jnp.zeros(1, jnp.bfloat16)
    state = optimizer.init(weights)
    step = jax.jit(lambda state: optimizer.update(jnp.ones(1, jnp.bfloat16), state))
    for _ in range(1024):
        updates, state = step(state)
    assert updates.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(updates), -1 / 32, rtol=0.01)  # 1/16 where the sum stands still at 256


@pytest.mark.full
def test_server_rates_follow_the_round():
    optimizer = server_optimizer("yogi", lambda number: 0.1 * 0.5**number)
    plain = server_optimizer("yogi", 0.1)
    states = [o.init(jnp.ones(4)) for o in (optimizer, plain)]
    for number, g in enumerate(GRADIENTS):
        (found, states[0]), (expected, states[1]) = (
            o.update(jnp.asarray(g), s) for o, s in zip((optimizer, plain), states, strict=True)
        )
        np.testing.assert_allclose(found, expected * 0.5**number, rtol=1e-6)


def test_unknown_server_optimizer():
    with pytest.raises(InputError, match="adagrad, adam"):
        server_optimizer("lion", 0.1)


@pytest.mark.full
@pytest.mark.parametrize("lite", [False, True])
def test_mime(lite):
    """With momentum: u(g, m) = g + 0.9 m, and m <- c + 0.9 m once a round."""
    p, m = zeros(), zeros()
    for clients in ROUNDS:
        c = weighted_mean([whole_grad(p, k) for k in clients], sizes(clients))

        def direction(y, g, batch, p=p, m=m, c=c):
            if not lite:
                g = tree(lambda g, g0, c: g - g0 + c, g, Logistic.grad(p, batch), c)
            return tree(lambda g, m: g + 0.9 * m, g, m)

        updates = [tree(np.subtract, local_sgd(p, k, LR, SIZE, direction=direction), p) for k in clients]
        p = tree(np.add, p, weighted_mean(updates, sizes(clients)))
        m = tree(lambda c, m: c + 0.9 * m, c, m)
    build = build_mime_lite if lite else build_mime
    check(build(model(), optax.sgd(LR, momentum=0.9), client_batching=BATCHING), p)


@pytest.mark.full
def test_dp_fed_avg():
    """Clipping at the median norm, from 0.5; the noise has its own tests."""
    p, norm = zeros(), 0.5
    for clients in ROUNDS:
        updates = [tree(np.subtract, local_sgd(p, c, LR, SIZE), p) for c in clients]
        norms = np.array([np.sqrt(sum((leaf**2).sum() for leaf in u.values())) for u in updates])
        factors = np.minimum(1, norm / norms)
        p = tree(lambda a, *u, f=factors: a + sum(k * v for k, v in zip(f, u, strict=True)) / 4, p, *updates)
        norm *= np.exp(-0.2 * ((norms <= norm).mean() - 0.5))
    aggregator = agg.DifferentiallyPrivateFactory.gaussian_adaptive(0.0, 4, initial_l2_norm_clip=0.5)
    process = build_unweighted_fed_avg(model(), optax.sgd(LR), aggregator=aggregator, client_batching=BATCHING)
    state, _ = check(process, p)
    np.testing.assert_allclose(jax.tree.leaves(state.aggregator)[0], norm, rtol=1e-5)


@pytest.mark.full
def test_scaffold():
    p, c = zeros(), zeros()
    own = [zeros() for _ in CLIENTS]
    for chosen in COHORTS:
        updates, changes = [], []
        for i in chosen:
            y = local_sgd(
                p,
                CLIENTS[i],
                LR,
                SIZE,
                direction=lambda y, g, _, i=i, c=c: tree(lambda g, a, b: g - a + b, g, own[i], c),
            )
            steps = len(batches(CLIENTS[i], SIZE))
            new = tree(lambda a, b, x, y, k=steps: a - b + (x - y) / (k * LR), own[i], c, p, y)
            updates.append(tree(np.subtract, y, p))
            changes.append(tree(np.subtract, new, own[i]))
            own[i] = new
        p = tree(np.add, p, weighted_mean(updates, [1] * len(chosen)))
        step = weighted_mean(changes, [1] * len(chosen))
        c = tree(lambda c, d: c + 4 / len(CLIENTS) * d, c, step)
    process = build_scaffold(
        model(), len(CLIENTS), LR, client_batching=BATCHING, clients_per_chunk=3, client_diagnostics=True
    )
    state, metrics = check(
        process, p, rounds=COHORTS, wrap=lambda chosen: [(f"client {i}", ClientDataset(CLIENTS[i])) for i in chosen]
    )
    np.testing.assert_allclose(state.finalizer["w"], c["w"], atol=1e-5)
    np.testing.assert_allclose(state.clients["client 5"]["w"], own[5]["w"], atol=1e-5)
    found = metrics["client_diagnostics"]
    assert list(found) == [f"client {i}" for i in COHORTS[-1]]
    for i, update in zip(COHORTS[-1], updates, strict=True):
        norm = np.sqrt(sum((leaf**2).sum() for leaf in update.values()))
        np.testing.assert_allclose(found[f"client {i}"]["delta_l2_norm"], norm, rtol=1e-5)
        assert found[f"client {i}"]["num_examples"] == len(CLIENTS[i]["y"])


@pytest.mark.full
def test_scaffold_needs_ids():
    process = build_scaffold(model(), 6, LR, client_batching=BATCHING)
    with pytest.raises(InputError, match="client id"):
        process.next(process.initialize(), data(CLIENTS))


@pytest.mark.full
def test_agnostic():
    rng = np.random.default_rng(0)
    clients = [{**c, "domain_id": rng.integers(0, 3, len(c["y"])).astype(np.int32)} for c in CLIENTS]
    p, lam, window = zeros(), np.array([0.2, 0.3, 0.5]), np.array([[5.0, 5, 5], [4, 8, 2]])
    lr = 0.5
    for _ in range(3):
        alpha = lam / window.mean(0)
        loss, count, updates, weights = np.zeros(3), np.zeros(3), [], []
        for k in clients:
            for d in range(3):
                kept = {name: v[k["domain_id"] == d] for name, v in k.items()}
                if len(kept["y"]):
                    loss[d] += Logistic.value_and_grad(p, kept)[0] * len(kept["y"])
                    count[d] += len(kept["y"])
            y, weight = p, alpha[k["domain_id"]].sum()
            for batch in batches(k, SIZE):
                a = alpha[batch["domain_id"]] / weight  # the client's, not the batch's: fedjax.create_scaled_loss
                y = tree(lambda y, g: y - LR * g, y, Logistic.value_and_grad(y, batch, a)[1])
            updates.append(tree(np.subtract, y, p))
            weights.append(weight)
        p = tree(np.add, p, weighted_mean(updates, weights))
        lam = lam * np.exp(lr * loss / count)
        lam /= lam.sum()
        window = np.concatenate([window[1:], count[None]])
    process = build_agnostic_fed_avg(
        model(),
        optax.sgd(LR),
        init_domain_weights=[0.2, 0.3, 0.5],
        init_domain_window=[[5, 5, 5], [4, 8, 2]],
        domain_learning_rate=lr,
        client_batching=BATCHING,
    )
    state, _ = check(process, p, rounds=[clients] * 3)
    np.testing.assert_allclose(state.finalizer.weights, lam, atol=1e-5)


@pytest.mark.full
def test_agnostic_weighs_a_client_by_its_examples_however_it_goes_through_them():
    """Epochs and filled batches change no weights of clients and examples."""
    clients = [{**c, "domain_id": (np.arange(len(c["y"])) % 2).astype(np.int32)} for c in CLIENTS]
    alpha = np.array([0.25, 0.75]) / 5
    batching = ShuffleRepeatBatchHParams(batch_size=SIZE, num_epochs=2, seed=3)
    updates, weights = [], []
    for i, k in enumerate(clients):
        y, weight = zeros(), alpha[k["domain_id"]].sum()
        for batch in ClientDataset(k).shuffle_repeat_batch(dataclasses.replace(batching, seed=[3, 0, i])):
            a = alpha[batch["domain_id"]] / weight
            y = tree(lambda y, g: y - LR * g, y, Logistic.value_and_grad(y, batch, a)[1])
        updates.append(y)
        weights.append(weight)
    process = build_agnostic_fed_avg(
        model(),
        optax.sgd(LR),
        init_domain_weights=[0.25, 0.75],
        init_domain_window=[[5, 5]],
        client_batching=batching,
    )
    check(process, weighted_mean(updates, weights), rounds=[clients])


@pytest.mark.full
def test_a_domain_that_was_absent_and_losses_that_overflow():
    """A round's examples replace an empty window; exp of large losses is finite."""
    clients = [{**CLIENTS[0], "domain_id": np.full(len(CLIENTS[0]["y"]), d, np.int32)} for d in (0, 1)]
    process = build_agnostic_fed_avg(
        model(),
        optax.sgd(LR),
        init_domain_weights=[0.25, 0.75],
        init_domain_window=[[5, 5]],
        domain_learning_rate=0.0,
        client_batching=BATCHING,
    )
    state, _ = train(process, rounds=[clients[:1], clients])
    # The second round's clients have the same examples, and domains weigh the same within a client: SGD twice, in which
    # each example counts as one of the client's.
    y = zeros()
    for batch in [*batches(CLIENTS[0], SIZE)] * 2:
        weights = np.full(len(batch["y"]), 1 / len(CLIENTS[0]["y"]))
        y = tree(lambda y, g: y - LR * g, y, Logistic.value_and_grad(y, batch, weights)[1])
    np.testing.assert_allclose(state.weights.trainable["w"], y["w"], atol=1e-5)
    process = build_agnostic_fed_avg(
        model(),
        optax.sgd(LR),
        init_domain_weights=[0.5, 0.5],
        init_domain_window=[[5, 5]],
        domain_learning_rate=1000.0,
        client_batching=BATCHING,
    )
    state, metrics = train(process, rounds=[clients])
    np.testing.assert_allclose(metrics["finalizer"]["domain_weights"], [0.5, 0.5], atol=1e-5)


@pytest.mark.full
def test_hyp_cluster():
    """Two clusters with known weights: clients go to the least loss."""
    rng = np.random.default_rng(3)
    start = [tree(lambda a: rng.normal(size=a.shape), zeros()) for _ in range(2)]
    p = [dict(s) for s in start]
    for clients in ROUNDS:
        chosen = [int(np.argmin([Logistic.value_and_grad(q, c)[0] for q in p])) for c in clients]
        p = [
            fed_avg(q, [[c for c, n in zip(clients, chosen, strict=True) if n == k]], LR, SIZE) if k in chosen else q
            for k, q in enumerate(p)
        ]
    process = build_hyp_cluster(model(), 2, optax.sgd(LR), client_batching=BATCHING, client_diagnostics=True)
    state, metrics = train(process, params=[tree(lambda a: a.astype(np.float32), s) for s in start])
    for q, found in zip(p, process.get_model_weights(state), strict=True):
        np.testing.assert_allclose(found.trainable["w"], q["w"], atol=1e-5)
    assert metrics["client_cluster"].tolist() == chosen
    found = metrics["client_diagnostics"]
    assert {i: own["cluster_id"] for i, own in found.items()} == dict(enumerate(chosen))
    assert {i: own["num_examples"] for i, own in found.items()} == dict(enumerate(sizes(ROUNDS[-1])))


@pytest.mark.parametrize("given", ["aggregator", "process"])
def test_clusters_have_no_differential_privacy(given):
    """A fixed divisor is a whole cohort's; how many choose a cluster is not private."""
    private = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 4, 0.5)
    options = {"aggregator": private, "client_weighting": "uniform", "client_batching": BATCHING}
    if given == "process":
        options = {"process": build_weighted_fed_avg(model(), optax.sgd(LR), **options)}
    with pytest.raises(InputError, match="Train one model with differential privacy, or clusters without"):
        build_hyp_cluster(model(), 2, optax.sgd(LR), **options)


@pytest.mark.full
def test_clusters_begin_far_apart():
    """Against numpy: one is drawn, then the client of largest loss, not NaN."""
    start = {"w": np.random.default_rng(5).normal(size=(6, 4)), "b": np.zeros(4)}
    broken = {**CLIENTS[0], "x": np.full_like(CLIENTS[0]["x"], np.nan)}
    cohort = [*data(CLIENTS[:4]), ClientDataset(broken), None, *data(CLIENTS[4:])]
    found = kmeans_init(model(), 3, cohort, optax.sgd(LR), client_batching=BATCHING, params=start)
    own = [local_sgd(start, c, LR, SIZE) for c in CLIENTS]
    loss = np.array([[Logistic.value_and_grad(p, c)[0] for c in CLIENTS] for p in own])
    chosen = [int(np.argmin([np.abs(p["w"] - found[0].trainable["w"]).max() for p in own]))]
    while len(chosen) < 3:
        regret = loss[chosen].min(0) - np.diag(loss)
        regret[chosen] = -np.inf
        chosen.append(int(regret.argmax()))
    for weights, i in zip(found, chosen, strict=True):
        np.testing.assert_allclose(weights.trainable["w"], own[i]["w"], atol=1e-5)
    with pytest.raises(InputError, match="7 clusters need as many usable clients; there are 6"):
        kmeans_init(model(), 7, cohort, optax.sgd(LR), client_batching=BATCHING)


@pytest.mark.full
def test_clusters_count_clients():
    process = build_hyp_cluster(model(), 2, optax.sgd(LR), client_batching=BATCHING)
    empty = ClientDataset({name: value[:0] for name, value in CLIENTS[0].items()})
    broken = ClientDataset({**CLIENTS[0], "x": np.full_like(CLIENTS[0]["x"], np.nan)})
    _, metrics = process.next(process.initialize(), [*data(CLIENTS[:2]), empty, None, broken])
    assert {n: int(v) for n, v in metrics["clients"].items()} == {
        "participated": 2, "non_finite": 1, "dropped": 1, "empty": 1
    }  # fmt: skip


@pytest.mark.full
def test_kmeans():
    centers = np.random.default_rng(1).random((3, 6))
    c, w = centers.copy(), np.ones(3)
    for clients in ROUNDS:
        x = np.concatenate([k["x"] for k in clients]).astype(np.float64)
        near = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1)
        hot = np.eye(3)[near]
        n = hot.sum(0)
        c = (c * w[:, None] + hot.T @ x) / (w + n)[:, None]
        w = w + n
    process = build_fed_kmeans(3, (6,), client_batching=BATCHING)
    state, _ = train(process, params=centers)
    np.testing.assert_allclose(state.weights.trainable, c, atol=1e-5)
    np.testing.assert_allclose(state.weights.non_trainable, w)


@pytest.mark.full
def test_kmeans_keeps_the_state_of_its_aggregator():
    """All exceed the norm, which grows by exp(0.25) each round, not restarted."""
    norm = agg.QuantileEstimation(1e-3, target_quantile=0.5, learning_rate=0.5)
    process = build_fed_kmeans(
        3, (6,), client_batching=BATCHING, aggregator=agg.ClippingFactory(norm, agg.SumFactory())
    )
    state, found = process.initialize(), []
    for clients in ROUNDS:
        state, metrics = process.next(state, data(clients))
        found.append(float(metrics["aggregator"]["clipping_norm"]))
    np.testing.assert_allclose(found, 1e-3 * np.exp(0.25 * np.arange(len(ROUNDS))), rtol=1e-5)


@pytest.mark.full
def test_kmeans_goes_on_from_its_weights():
    process = build_fed_kmeans(3, (6,), client_batching=BATCHING)
    state, _ = train(process)
    weights = process.get_model_weights(state)
    for again in (process.initialize(params=weights), process.set_model_weights(process.initialize(), weights)):
        for a, b in zip(process.get_model_weights(again), weights, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(process.set_model_weights(state, weights.trainable).weights.non_trainable, np.ones(3))


def agnostic(**options):
    return build_agnostic_fed_avg(
        model(),
        optax.sgd(LR),
        init_domain_weights=[1, 1],
        init_domain_window=[[1, 1]],
        client_batching=BATCHING,
        **options,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("build", "says"),
    [
        (agnostic, r"no 'domain_id' \(domain_id_key\); it has \['x', 'y'\]"),
        (lambda: agnostic(domain_id_key="x"), r"'x' holds integers \(n,\)"),
        (lambda: build_fed_kmeans(3, (6,), data_key="z", client_batching=BATCHING), r"no 'z' \(data_key\)"),
        (lambda: build_fed_kmeans(3, (2, 3), client_batching=BATCHING), r"shape \(6,\), and data_shape is \(2, 3\)"),
    ],
)
def test_batches_that_lack_what_is_needed(build, says):
    process = build()
    with pytest.raises(InputError, match=says):
        process.next(process.initialize(), data(CLIENTS[:1]))


@pytest.mark.full
def test_learning_rate_by_round():
    p = zeros()
    for r, clients in enumerate(ROUNDS):
        p = fed_avg(p, [clients], lr=LR * 0.5**r, size=SIZE)
    schedule = lambda r: optax.sgd(LR * 0.5 ** r.astype(float))  # noqa: E731
    check(build_weighted_fed_avg(model(), schedule, client_batching=BATCHING), p)
