"""An example counts once where all are counted, however batches are cut.

Padding never counts. Examples that fill a last batch train, as in FedJAX, and count nowhere else.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tests.federated import workload
from tests.federated.workload import Logistic
from tf2jax_lite.federated.execution.cohort import Cohort
from tf2jax_lite.learning.data import BatchHParams, ClientDataset, ShuffleRepeatBatchHParams

SGD = optax.sgd(0.3)


def clients_of(seed, count=4):
    rng = np.random.default_rng(seed)
    found = workload.make_clients(count, seed=seed, low=1, high=11, shape=(3,), classes=4)
    return [{**c, "domain_id": rng.integers(0, 2, len(c["y"])).astype(np.int32)} for c in found]


def model():
    return workload.jax_logistic(3, 4, {"accuracy": fed.metrics.Accuracy()})


def is_local(name):
    return name == "b"


def local_bias(**options):
    work = fed.build_model_delta_client_work(model(), SGD)
    local, states = fed.with_local_weights(model(), work, is_local)
    return fed.compose_learning_process(
        model(),
        client_work=local,
        client_states=states,
        aggregator=fed.aggregators.MeanFactory(),
        finalizer=fed.build_apply_optimizer_finalizer(optax.sgd(1.0)),
        **options,
    )


# Results that are sums or means over a client's examples.
COUNTING = {
    "fed_sgd": lambda **o: fed.build_fed_sgd(model(), SGD, train_metrics={"accuracy": fed.metrics.Accuracy()}, **o),
    "uniform fed_sgd": lambda **o: fed.build_fed_sgd(model(), SGD, client_weighting="uniform", **o),
    "fed_eval": lambda **o: fed.build_fed_eval(model(), **o),
    "fed_recon_eval": lambda **o: fed.build_fed_recon_eval(
        model(), is_local, SGD, split_dataset=False, reconstruction_batching=BatchHParams(3), **o
    ),
    "kmeans": lambda **o: fed.build_fed_kmeans(2, (3,), **o),
}
# Steps along the gradients of batches.
STEPPING = {
    "fed_avg": lambda **o: fed.build_weighted_fed_avg(model(), SGD, **o),
    "unweighted": lambda **o: fed.build_unweighted_fed_avg(model(), SGD, **o),
    "fed_prox": lambda **o: fed.build_fed_prox(model(), 0.5, SGD, **o),
    "fed_opt": lambda **o: fed.build_fed_opt(model(), SGD, "adam", 0.1, **o),
    "mime": lambda **o: fed.build_mime(model(), optax.sgd(0.3, momentum=0.9), **o),
    "mime_lite": lambda **o: fed.build_mime_lite(model(), optax.sgd(0.3, momentum=0.9), **o),
    "scaffold": lambda **o: fed.build_scaffold(model(), 4, 0.3, **o),
    "apfl": lambda **o: fed.build_apfl(model(), SGD, **o),
    "per_fed_avg": lambda **o: fed.build_per_fed_avg(model(), 0.1, SGD, **o),
    "fed_buff": lambda **o: fed.build_fed_buff(model(), SGD, buffer_size=3, **o),
    "agnostic": lambda **o: fed.build_agnostic_fed_avg(
        model(), SGD, init_domain_weights=[0.3, 0.7], init_domain_window=[[4.0, 4.0]], **o
    ),
    "hyp_cluster": lambda **o: fed.build_hyp_cluster(model(), 2, SGD, **o),
    "fed_recon": lambda **o: fed.build_fed_recon(model(), is_local, SGD, **o),
    "split fed_recon": lambda **o: fed.build_fed_recon(model(), is_local, SGD, split_dataset=True, **o),
    "local weights": local_bias,
}


def rounds(process, data, number=2):
    """Return weights, and the metrics of the last round."""
    params = [{"w": s * np.eye(3, 4, dtype=np.float32), "b": np.zeros(4, np.float32)} for s in (1, -1)]
    clusters = process.initialize(params=params) if "hyp_cluster" in repr(process.next) else None
    state = process.initialize(jax.random.key(1)) if clusters is None else clusters
    for _ in range(number):
        state, metrics = process.next(state, list(enumerate(data)))
    return process.get_model_weights(state), metrics


def close(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        if not jnp.issubdtype(getattr(a, "dtype", float), jax.dtypes.prng_key):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=jax.tree_util.keystr(path))


@pytest.mark.default_cases("kmeans-1")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", COUNTING)
def test_filled_batches_count_as_short_ones(name, seed):
    data = [ClientDataset(c) for c in clients_of(seed)]
    size, epochs = [(4, 1), (3, 2), (7, 1), (16, 3)][seed]
    filled = ShuffleRepeatBatchHParams(size, num_epochs=epochs, seed=seed)
    exact = filled.replace(fill_remainder=False)
    found, expected = (rounds(COUNTING[name](client_batching=batching), data) for batching in (filled, exact))
    close(found, expected)
    once = rounds(COUNTING[name](client_batching=BatchHParams(5)), data)
    if name not in ("kmeans", "fed_recon_eval") and epochs == 1:
        close(found, once)


@pytest.mark.default_cases("batching0")
@pytest.mark.parametrize("batching", [ShuffleRepeatBatchHParams(4), BatchHParams(3), ShuffleRepeatBatchHParams(50)])
def test_fed_sgd_sends_the_gradient_of_the_mean_loss(batching):
    clients = clients_of(7)
    start = {"w": np.full((3, 4), 0.1), "b": np.arange(4.0)}
    grads = [Logistic.grad(start, c) for c in clients]
    sizes = [len(c["y"]) for c in clients]
    process = fed.build_fed_sgd(model(), optax.sgd(1.0), client_batching=batching)
    state = process.initialize(params=jax.tree.map(np.float32, start))
    state, metrics = process.next(state, [ClientDataset(c) for c in clients])
    for name, value in workload.weighted_mean(grads, sizes).items():
        np.testing.assert_allclose(state.params[name], start[name] - value, rtol=1e-4, atol=1e-6)
    assert int(metrics["client_work"]["train"]["num_examples"]) == sum(sizes)


@pytest.mark.default_cases("fed_sgd-vmap")
@pytest.mark.parametrize("execution", ["vmap", "scan", "loop"])
@pytest.mark.parametrize("name", [*COUNTING, *STEPPING])
def test_padded_batches_are_those_of_their_size(name, execution):
    """The debug backend runs short batches as they are."""
    seed = len(name)
    data = [ClientDataset(c) for c in clients_of(seed)]
    batching = ShuffleRepeatBatchHParams(4, num_epochs=2, seed=seed, fill_remainder=False)
    build = (COUNTING | STEPPING)[name]
    found, expected = (rounds(build(client_batching=batching, client_execution=e), data) for e in (execution, "debug"))
    close(found, expected)


def centered():
    """Return a model that subtracts the batch's mean: examples act on each other."""
    loss = fed.named_loss("sparse_categorical_crossentropy", from_logits=True)

    def apply(params, batch):
        return (batch["x"] - jnp.mean(batch["x"], axis=0)) @ params["w"] + params["b"]

    start = {"w": jnp.eye(3, 4), "b": jnp.zeros(4)}
    return fed.create_model_from_fn(start, apply, loss, {"accuracy": fed.metrics.Accuracy()})


@pytest.mark.default_cases("fed_eval-vmap")
@pytest.mark.parametrize("execution", ["vmap", "scan"])
@pytest.mark.parametrize("name", sorted((COUNTING.keys() | STEPPING.keys()) - {"kmeans"}))
def test_batches_whose_examples_interact_are_not_padded(name, execution, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "model", centered)
    test_padded_batches_are_those_of_their_size(name, execution)


@pytest.mark.default_cases("fed_avg")
@pytest.mark.parametrize("name", ["fed_avg", "unweighted", "fed_prox", "fed_opt", "scaffold", "apfl"])
def test_filled_batches_train_as_they_are(name):
    """As FedJAX's: a client with the same batches of its own gets the same update."""
    clients = clients_of(3)
    sizes = [4 * -(-len(c["y"]) // 4) for c in clients]
    batching = ShuffleRepeatBatchHParams(4, seed=0, skip_shuffle=True)
    whole = [
        {n: np.resize(v, (size, *v.shape[1:])) for n, v in c.items()} for c, size in zip(clients, sizes, strict=True)
    ]
    options = {"client_diagnostics": True}
    results = [
        rounds(STEPPING[name](client_batching=cut, **options), [ClientDataset(c) for c in data], 1)[1]
        for cut, data in ((batching, clients), (BatchHParams(4), whole))
    ]
    for index in range(len(clients)):
        one, other = (found["client_diagnostics"][index]["delta_l2_norm"] for found in results)
        np.testing.assert_allclose(one, other, rtol=1e-5)


def memorizing():
    """It stores targets by id: the loss of an example that it has not seen is 0.5."""
    params = {"shared": jnp.zeros(()), "local": jnp.zeros(64)}

    def apply(p, batch):
        return p["local"][batch["id"]] + 0 * p["shared"]

    return fed.create_model_from_fn(params, apply, lambda batch, out: 0.5 * jnp.square(out - 1))


CUTS = {
    "one epoch": BatchHParams(4),
    "filled": ShuffleRepeatBatchHParams(4),
    "two epochs": ShuffleRepeatBatchHParams(4, num_epochs=2, seed=1),
    "other size": ShuffleRepeatBatchHParams(3, num_epochs=5),
    "steps": ShuffleRepeatBatchHParams(5, num_epochs=None, num_steps=9),
    "one batch": BatchHParams(32),
    "dropped": BatchHParams(2, drop_remainder=True),
}


@pytest.mark.default_cases("filled-other size")
@pytest.mark.parametrize("first", CUTS)
@pytest.mark.parametrize("second", CUTS)
def test_reconstruction_does_not_see_the_other_half(first, second):
    sizes = (2, 5, 8, 23)
    data = [ClientDataset({"id": np.arange(n, dtype=np.int32)}) for n in sizes]
    options = {
        "reconstruction_batching": CUTS[first],
        "client_batching": CUTS[second],
        "split_dataset": True,
        "reconstruction_optimizer": optax.sgd(1.0),
    }
    evaluation = fed.build_fed_recon_eval(memorizing(), lambda name: name == "local", **options)
    _, metrics = evaluation.next(evaluation.initialize(), data)
    found = metrics["client_work"]["eval"]["current_round_metrics"]
    assert abs(float(found["loss"]) - 0.5) < 1e-6
    training = fed.build_fed_recon(
        memorizing(), lambda name: name == "local", optax.sgd(0.0), client_diagnostics=True, **options
    )
    _, metrics = training.next(training.initialize(), data)
    assert abs(float(metrics["client_work"]["train"]["loss"]) - 0.5) < 1e-6
    whole = fed.build_fed_recon_eval(memorizing(), lambda name: name == "local", **{**options, "split_dataset": False})
    _, metrics = whole.next(whole.initialize(), data)
    assert float(metrics["client_work"]["eval"]["current_round_metrics"]["loss"]) < 0.45


@pytest.mark.parametrize("size", [1, 2, 4, 7, 50])
@pytest.mark.parametrize("total", [1, 2, 5, 8, 23])
def test_halves_share_nothing_and_leave_nothing_out(size, total):
    data = {"id": np.arange(total)}
    for item in (ClientDataset(data), list(ClientDataset(data).batch(size))):
        cohort = Cohort([item], BatchHParams(size))
        halves = [[b["id"] for c in cohort.half(number).prepared() for b in c.batches()] for number in (0, 1)]
        seen = np.concatenate([np.zeros(0, int), *halves[0], *halves[1]])
        assert sorted(seen) == list(range(total))
        if total > size:  # as in TFF: the even and the odd batches
            batches = [b["id"] for b in ClientDataset(data).batch(size)]
            for half, expected in zip(halves, (batches[::2], batches[1::2]), strict=True):
                np.testing.assert_array_equal(np.concatenate(half), np.concatenate(expected))
        assert len(halves[1]) > 0 or total == 1


def test_a_half_weighs_its_own_examples():
    data = [ClientDataset({"id": np.arange(n, dtype=np.int32)}) for n in (5, 8, 23)]
    process = fed.build_fed_recon(
        memorizing(),
        lambda name: name == "local",
        split_dataset=True,
        client_batching=ShuffleRepeatBatchHParams(4, num_epochs=2),
        client_diagnostics=True,
    )
    _, metrics = process.next(process.initialize(), data)
    weights = [float(metrics["client_diagnostics"][i]["update_weight"]) for i in range(3)]
    np.testing.assert_allclose(weights, [2 * 1, 2 * 4, 2 * 11], rtol=1e-6)


@pytest.mark.default_cases("fed_avg-scan-True")
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("execution", ["vmap", "scan", "loop", "debug"])
@pytest.mark.parametrize("name", ["fed_avg", "fed_prox"])
def test_filled_examples_are_in_no_metric(name, execution, norm):
    """With a rate of 0 the metrics of training are those of the examples."""
    clients = [{**c, "y": c["y"] % 2} for c in clients_of(5)]
    frozen = optax.sgd(0.0)

    def apply(weights, batch):
        out = batch["x"] @ weights.trainable["w"] + weights.trainable["b"]
        # Statistics of batches: they are not padded.
        return fed.TrainOutput(out, {"mean": jnp.mean(batch["x"])} if norm else {})

    start = {"w": jnp.eye(3, 4), "b": jnp.arange(4.0)}
    own = fed.create_model_from_fn(
        fed.ModelWeights(start, {"mean": jnp.zeros(())} if norm else {}),
        apply,
        fed.named_loss("sparse_categorical_crossentropy", from_logits=True),
    )
    options = {
        "client_batching": ShuffleRepeatBatchHParams(4, num_epochs=2, seed=2),
        "client_execution": execution,
        "train_metrics": {"accuracy": fed.metrics.Accuracy()},
        "client_diagnostics": True,
    }
    if name == "fed_avg":
        process = fed.build_weighted_fed_avg(own, frozen, **options)
    else:
        process = fed.build_fed_prox(own, 0.1, frozen, **options)
    _, metrics = process.next(process.initialize(), [ClientDataset(c) for c in clients])
    found, each = metrics["client_work"]["train"], metrics["client_diagnostics"]
    everything = {n: np.concatenate([c[n] for c in clients]) for n in ("x", "y")}
    expected = Logistic.value_and_grad({"w": np.eye(3, 4), "b": np.arange(4.0)}, everything)[0]
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    right = np.argmax(everything["x"] @ np.eye(3, 4) + np.arange(4.0), 1) == everything["y"]
    np.testing.assert_allclose(found["accuracy"], right.mean(), rtol=1e-6)
    sizes = [len(c["y"]) for c in clients]
    assert int(found["num_examples"]) == 2 * sum(sizes)
    for index, size in enumerate(sizes):
        assert int(each[index]["num_examples"]) == 2 * size
        np.testing.assert_allclose(each[index]["update_weight"], 2 * size, rtol=1e-6)
