"""Code written for FedJAX: plain params, sampled cohorts, results by client."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.example_libraries import stax

import tf2jax_lite.federated as fed
from tests.federated import workload
from tests.federated.workload import Logistic, local_sgd
from tf2jax_lite.errors import ForEachClientError, InputError

CLIENTS = workload.make_clients(4, seed=4, low=5, high=9, shape=(6,), classes=4)
DATA = {f"c{i}": fed.ClientDataset(c) for i, c in enumerate(CLIENTS)}
BATCHING = fed.BatchHParams(batch_size=4)
LR = 0.3


def apply_for_eval(params, batch):
    return batch["x"] @ params["w"] + params["b"]


def apply_for_train(params, batch, rng=None):
    return apply_for_eval(params, batch)


def cross_entropy(batch, predictions):
    return optax.softmax_cross_entropy_with_integer_labels(predictions, batch["y"])


def plain_model(**changes):
    given = {
        "init": lambda key: {"w": 0.1 * jax.random.normal(key, (6, 4)), "b": jnp.zeros(4)},
        "apply_for_train": apply_for_train,
        "apply_for_eval": apply_for_eval,
        "train_loss": cross_entropy,
        "eval_metrics": {"accuracy": fed.metrics.Accuracy()},
    }
    return fed.Model(**{**given, **changes})


def zeros():
    return jax.tree.map(jnp.float32, Logistic.zeros(6, 4))


def build(model=None, **options):
    return fed.build_weighted_fed_avg(model or plain_model(), optax.sgd(LR), **{"client_batching": BATCHING, **options})


@pytest.mark.full
def test_functions_of_plain_params():
    model, params = plain_model(), zeros()
    assert set(model.init(jax.random.PRNGKey(0))) == {"w", "b"}
    grads = fed.model_grad(model)(params, CLIENTS[0], None)
    np.testing.assert_allclose(grads["w"], Logistic.grad(Logistic.zeros(6, 4), CLIENTS[0])["w"], atol=1e-6)
    (padded,) = DATA["c0"].padded_batch(batch_size=16)
    losses = fed.model_per_example_loss(model)(params, padded, None)
    np.testing.assert_allclose(losses[: len(CLIENTS[0]["y"])], np.log(4), rtol=1e-6)
    assert padded[fed.EXAMPLE_MASK_KEY].sum() == np.count_nonzero(losses)
    found = fed.evaluate_model(model, params, [CLIENTS[0]])
    np.testing.assert_allclose(found["loss"], np.log(4), rtol=1e-6)
    hinge = model.replace(train_loss=lambda batch, out: out[:, 0])
    assert fed.model_per_example_loss(hinge)(params, CLIENTS[0], None).sum() == 0
    optimizer = fed.optimizers.sgd(LR)
    _, stepped = optimizer.apply(grads, optimizer.init(params), params)
    np.testing.assert_allclose(stepped["b"], -LR * grads["b"], rtol=1e-6)


@pytest.mark.full
def test_federated_averaging_of_plain_params():
    process = build()
    state, _ = process.next(process.initialize(params=zeros()), list(DATA.values()))
    expected = workload.fed_avg(Logistic.zeros(6, 4), [CLIENTS], lr=LR, size=4)
    np.testing.assert_allclose(process.get_model_weights(state).trainable["w"], expected["w"], atol=1e-5)


def libraries():
    def forward(batch):
        import haiku as hk

        return hk.Linear(4)(batch["x"])

    def haiku():
        hk = pytest.importorskip("haiku")
        return fed.create_model_from_haiku(hk.transform(forward), CLIENTS[0], cross_entropy)

    def of_stax():
        return fed.create_model_from_stax(*stax.serial(stax.Dense(4)), (-1, 6), cross_entropy)

    return {"haiku": haiku, "stax": of_stax}


@pytest.mark.full
@pytest.mark.parametrize("name", ["stax", "haiku"])
def test_models_of_libraries_have_plain_params(name):
    model = libraries()[name]()
    params = model.init(jax.random.PRNGKey(0))
    assert jax.tree.structure(fed.model_grad(model)(params, CLIENTS[0], None)) == jax.tree.structure(params)
    process = build(model)
    state, _ = process.next(process.initialize(params=params), list(DATA.values()))
    assert jax.tree.structure(state.weights.trainable) == jax.tree.structure(params)
    before, after = (fed.evaluate_model(model, p, CLIENTS)["loss"] for p in (params, state.weights))
    assert after < before


def test_parts_of_a_plain_model_train():
    model = fed.freeze(plain_model(), lambda name: name == "b")
    assert set(model.shapes.trainable) == {"b"}
    work, states = fed.with_local_weights(
        plain_model(), fed.build_model_delta_client_work(plain_model(), optax.sgd(LR)), lambda name: name == "b"
    )
    assert set(states.of("new")["trainable"]) == {"b"}
    assert work.pads_batches


@pytest.mark.full
def test_a_samplers_cohort_goes_into_next():
    """Order of examples and random numbers come from its keys, not from the state's."""
    clients = fed.InMemoryFederatedData(dict(zip(DATA, CLIENTS, strict=True)))
    drawn = []

    def train(params, batch, rng):
        return apply_for_eval(params, batch) + jax.random.normal(rng, (4,))

    model = plain_model(apply_for_train=train)
    batching = fed.ShuffleRepeatBatchHParams(batch_size=3)
    process = build(model, client_batching=batching, client_diagnostics=True)
    for key in (1, 2):
        sampler = fed.UniformGetClientSampler(clients, num_clients=3, seed=0)
        cohort = sampler.sample()
        output = process.next(process.initialize(jax.random.key(key), params=zeros()), cohort)
        assert set(output.metrics["client_diagnostics"]) == {client_id for client_id, _, _ in cohort}
        drawn.append(output.state.weights.trainable["w"])
        other = process.next(process.initialize(params=zeros()), sampler.sample()).state.weights.trainable["w"]
        assert not np.array_equal(drawn[-1], other)
    np.testing.assert_array_equal(*drawn)


@pytest.mark.default_cases("vmap")
@pytest.mark.parametrize("execution", ["debug", "loop", "vmap"])
def test_every_backend_uses_the_given_keys(execution):
    keys = jax.random.split(jax.random.key(7), 2)
    params = zeros()

    def train(params, batch, rng):
        return apply_for_eval(params, batch) + jax.random.normal(rng, (4,))

    model = plain_model(apply_for_train=train)
    clients = [(0, [CLIENTS[0]], keys[0]), (1, [CLIENTS[1]], keys[1])]
    process = build(model, client_execution=execution)
    state, _ = process.next(process.initialize(params=params), clients)
    grads = [fed.model_grad(model)(params, c[0], jax.random.fold_in(key, 0)) for _, c, key in clients]
    sizes = [len(c["y"]) for c in CLIENTS[:2]]
    expected = sum(s * -LR * np.asarray(g["w"]) for s, g in zip(sizes, grads, strict=True)) / sum(sizes)
    np.testing.assert_allclose(state.weights.trainable["w"], expected, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("execution", ["scan", pytest.param("debug", marks=pytest.mark.full)])
def test_client_diagnostics(execution):
    process = build(client_diagnostics=True, client_execution=execution)
    _, metrics = process.next(process.initialize(params=zeros()), list(DATA.items()))
    found = metrics["client_diagnostics"]
    assert list(found) == list(DATA)
    for name, client in zip(DATA, CLIENTS, strict=True):
        final = local_sgd(Logistic.zeros(6, 4), client, LR, 4)
        norm = np.sqrt(sum((leaf**2).sum() for leaf in final.values()))
        np.testing.assert_allclose(found[name]["delta_l2_norm"], norm, rtol=1e-5)
        assert found[name]["update_weight"] == found[name]["num_examples"] == len(client["y"])


def test_debug_names_client_and_stage():
    def train(params, batch, rng):
        if float(batch["x"].max()) > 90:  # a value, as batches are not traced
            raise ValueError("too large")
        return apply_for_eval(params, batch)

    process = build(plain_model(apply_for_train=train), client_execution="debug")
    bad = {"x": np.full((2, 6), 99, np.float32), "y": np.zeros(2, np.int32)}
    with pytest.raises(ForEachClientError, match=r"client 'bad', client_step 1: .*too large") as found:
        process.next(process.initialize(params=zeros()), [("good", [CLIENTS[0]]), ("bad", [CLIENTS[1], bad])])
    assert found.value.stage == "client_step 1" and found.value.context["client_id"] == "bad"
    with pytest.raises(InputError, match="a mesh shares chunks"):
        build(client_execution="debug", mesh=jax.make_mesh((1,), ("clients",)))


@pytest.mark.full
def test_cohorts_with_some_keys_are_refused():
    process = build()
    with pytest.raises(InputError, match="give all clients a key"):
        process.next(process.initialize(), [("a", DATA["c0"], jax.random.key(0)), ("b", DATA["c1"])])


@pytest.mark.full
def test_batches_may_be_pairs_and_clients_tuples():
    process = build()
    plain = [[c, c] for c in CLIENTS]
    others = (
        [[(c["x"], c["y"])] * 2 for c in CLIENTS],
        [((c["x"], c["y"]), (c["x"], c["y"])) for c in CLIENTS],
        [(c, c) for c in CLIENTS],
        [(name, (c, c)) for name, c in zip(DATA, CLIENTS, strict=True)],
        [(name, [c, c], None) for name, c in zip(DATA, CLIENTS, strict=True)],
    )
    expected = process.next(process.initialize(), plain).state.params["w"]
    for given in others:
        np.testing.assert_array_equal(process.next(process.initialize(), given).state.params["w"], expected)


def test_callers_may_have_the_weights():
    model = plain_model(init=lambda key: None)
    expected = fed.evaluate_model(plain_model(), zeros(), [CLIENTS[0]])
    assert fed.evaluate_model(model, zeros(), [CLIENTS[0]]) == expected
    found = fed.ModelEvaluator(model).evaluate_global_params(zeros(), [("a", [CLIENTS[0]])])
    np.testing.assert_allclose(dict(found)["a"]["loss"], expected["loss"], rtol=1e-6)
    assert set(fed.model_grad(model)(zeros(), CLIENTS[0], None)) == {"w", "b"}


def test_each_client_is_evaluated_alone():
    model, params = plain_model(), zeros()
    evaluator = fed.ModelEvaluator(model)
    found = dict(evaluator.evaluate_global_params(params, [(i, d.batch(batch_size=4)) for i, d in DATA.items()]))
    own = [jax.tree.map(lambda w, k=k: w + k * jnp.arange(4.0), params) for k in range(4)]
    given = [(i, [c], p) for i, c, p in zip(DATA, CLIENTS, own, strict=True)]
    each = dict(evaluator.evaluate_per_client_params(given))
    key = jax.random.key(0)
    losses = fed.AverageLossEvaluator(fed.model_per_example_loss(model), lambda p: jnp.sum(p["b"]))
    regularized = dict(losses.evaluate_per_client_params((i, c, key, p) for i, c, p in given))
    for name, client, p in zip(DATA, CLIENTS, own, strict=True):
        np.testing.assert_allclose(found[name]["loss"], np.log(4), rtol=1e-6)
        expected = fed.evaluate_model(model, p, [client])
        for metric, value in expected.items():
            np.testing.assert_allclose(each[name][metric], value, rtol=1e-6)
        np.testing.assert_allclose(regularized[name], expected["loss"] + p["b"].sum(), rtol=1e-6)
