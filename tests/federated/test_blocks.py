"""Excluded clients, padding, evaluation, parts, other libraries, new blocks."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.federated import workload
from tests.federated.workload import Logistic
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.federated.algorithms.evaluation import build_fed_eval, build_personalization_eval
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.algorithms.jax_averaging import build_jax_federated_averaging_process
from tf2jax_lite.federated.client_work import build_model_delta_client_work
from tf2jax_lite.learning.data import BatchHParams, ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.metrics import Accuracy
from tf2jax_lite.learning.model import Model, TrainOutput, evaluate_model, model_grad, model_per_example_loss
from tf2jax_lite.learning.partial import freeze, merge_lora, with_lora
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.sources import create_model_from_flax, create_model_from_fn, create_model_from_haiku

CLIENTS = workload.make_clients(4, seed=2, low=5, high=9, shape=(6,), classes=4)
BATCHING = ShuffleRepeatBatchHParams(batch_size=10, skip_shuffle=True, fill_remainder=False)
DATA = [ClientDataset(c) for c in CLIENTS]


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(size=(6, 4)).astype(np.float32), "b": rng.normal(size=4).astype(np.float32)}


@pytest.mark.full
def test_clients_that_do_not_count():
    """Dropped out, no data, NaN: the result is the two others', all counted."""
    bad = {"x": np.full((5, 6), np.nan, np.float32), "y": np.zeros(5, np.int32)}
    empty = {name: value[:0] for name, value in CLIENTS[0].items()}
    process = build_weighted_fed_avg(workload.jax_logistic(6, 4), optax.sgd(0.5), client_batching=BATCHING)
    state, metrics = process.next(
        process.initialize(), [DATA[0], None, ClientDataset(bad), DATA[1], ClientDataset(empty)]
    )
    expected = workload.fed_avg(Logistic.zeros(6, 4), [CLIENTS[:2]], lr=0.5, size=10)
    np.testing.assert_allclose(state.weights.trainable["w"], expected["w"], atol=1e-5)
    counts = {name: int(value) for name, value in metrics["clients"].items()}
    assert counts == {"participated": 2, "dropped": 1, "empty": 1, "non_finite": 1, "round_refused": 0}
    assert np.isfinite(float(metrics["client_work"]["train"]["loss"]))


@pytest.mark.full
def test_an_empty_cohort():
    process = build_weighted_fed_avg(workload.jax_logistic(6, 4), optax.sgd(0.5), client_batching=BATCHING)
    state, metrics = process.next(process.initialize(params=drawn()), [None, None])
    np.testing.assert_array_equal(state.weights.trainable["w"], drawn()["w"])
    assert int(metrics["clients"]["dropped"]) == 2


@pytest.mark.full
def test_padding_counts_for_nothing():
    """Even where its derivative is infinite: the square root of padding's zeros."""
    model = create_model_from_fn(
        drawn(),
        lambda p, b: jnp.sqrt(jnp.abs(b["x"] * p["w"][:, 0])) @ p["w"] + p["b"],
        named_loss("sparse_categorical_crossentropy", from_logits=True),
    )
    real = CLIENTS[0]
    (padded,) = ClientDataset(real).padded_batch(batch_size=16)
    assert not padded["__mask__"].all()
    found = model_grad(model)(drawn(), padded, jax.random.key(0))
    expected = model_grad(model)(drawn(), real, jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    losses = model_per_example_loss(model)(drawn(), padded, jax.random.key(0))
    assert (losses[len(real["y"]) :] == 0).all()


def test_evaluation():
    """Over clients, and over rounds, as over all examples at once."""
    model = workload.jax_logistic(6, 4, {"accuracy": Accuracy()})
    process = build_fed_eval(model, client_batching=BatchHParams(4))
    state = process.set_model_weights(process.initialize(), drawn())
    state, _ = process.next(state, DATA[:2])
    _, metrics = process.next(state, DATA[2:])
    found = metrics["client_work"]["eval"]
    for chosen, name in ((CLIENTS[2:], "current_round_metrics"), (CLIENTS, "total_rounds_metrics")):
        whole = {k: np.concatenate([c[k] for c in chosen]) for k in ("x", "y")}
        loss = Logistic.value_and_grad(drawn(), whole)[0]
        right = np.mean((whole["x"] @ drawn()["w"] + drawn()["b"]).argmax(1) == whole["y"])
        assert abs(float(found[name]["loss"]) - loss) < 1e-5
        assert abs(float(found[name]["accuracy"]) - right) < 1e-6


@pytest.mark.full
def test_personalization():
    model = workload.jax_logistic(6, 4, {"accuracy": Accuracy()})
    work = build_model_delta_client_work(model, optax.sgd(0.3))
    evaluate = build_personalization_eval(model, {"sgd": (work, BATCHING.replace(num_epochs=2))})
    found = evaluate(drawn(), [(DATA[0], DATA[1]), (DATA[2], DATA[3])])
    for i in (0, 1):
        p = workload.local_sgd(drawn(), CLIENTS[2 * i], 0.3, 10, epochs=2) if len(CLIENTS[2 * i]["y"]) == 10 else None
        assert abs(found["baseline"]["loss"][i] - Logistic.value_and_grad(drawn(), CLIENTS[2 * i + 1])[0]) < 1e-5
        assert p is None or abs(found["sgd"]["loss"][i] - Logistic.value_and_grad(p, CLIENTS[2 * i + 1])[0]) < 1e-5
    with pytest.raises(InputError, match="pair"):
        evaluate(drawn(), DATA)


@pytest.mark.full
def test_personalization_moves_statistics_too():
    """Non-trainable weights, such as running means, become local as well."""

    def apply_for_train(weights, batch, rng):
        return TrainOutput(apply_for_eval(weights, batch), {"mean": jnp.mean(batch["x"])})

    def apply_for_eval(weights, batch):
        return weights.trainable["w"] + weights.non_trainable["mean"] * jnp.ones_like(batch["y"])

    start = ModelWeights({"w": jnp.float32(1)}, {"mean": jnp.float32(0)})
    model = Model(lambda key: start, apply_for_train, apply_for_eval, named_loss("mse"))
    work = build_model_delta_client_work(model, optax.sgd(0.0))
    evaluate = build_personalization_eval(model, {"own": (work, BATCHING)})
    train = ClientDataset({"x": np.full(4, 3, np.float32), "y": np.zeros(4, np.float32)})
    test = ClientDataset({"x": np.zeros(2, np.float32), "y": np.zeros(2, np.float32)})
    found = evaluate(start, [(train, test)])
    assert (found["baseline"]["loss"].tolist(), found["own"]["loss"].tolist()) == ([1.0], [16.0])


@pytest.mark.full
def test_frozen_parameters_stay():
    model = freeze(
        create_model_from_fn(
            drawn(),
            lambda p, b: b["x"] @ p["w"] + p["b"],
            named_loss("sparse_categorical_crossentropy", from_logits=True),
        ),
        lambda name: name == "b",
    )
    process = build_weighted_fed_avg(model, optax.sgd(0.5), client_batching=BATCHING)
    state, _ = process.next(process.initialize(), DATA)
    p = drawn()
    step = [workload.tree(np.subtract, {"b": p["b"] - 0.5 * Logistic.grad(p, c)["b"]}, {"b": p["b"]}) for c in CLIENTS]
    expected = p["b"] + workload.weighted_mean(step, [len(c["y"]) for c in CLIENTS])["b"]
    assert set(state.weights.trainable) == {"b"}
    np.testing.assert_allclose(state.weights.trainable["b"], expected, atol=1e-5)
    np.testing.assert_array_equal(state.weights.non_trainable["frozen"]["w"], p["w"])


@pytest.mark.full
def test_lora_starts_unchanged_and_trains_the_product():
    base = create_model_from_fn(
        drawn(), lambda p, b: b["x"] @ p["w"] + p["b"], named_loss("sparse_categorical_crossentropy", from_logits=True)
    )
    model = with_lora(base, 2, alpha=4)
    weights = model.init(jax.random.key(1))
    np.testing.assert_array_equal(merge_lora(weights, 2.0).trainable["w"], drawn()["w"])
    grads = model_grad(model)(weights, CLIENTS[0], jax.random.key(0)).trainable
    inner = Logistic.grad(drawn(), CLIENTS[0])["w"]
    np.testing.assert_allclose(grads["w"]["b"], 2.0 * np.asarray(weights.trainable["w"]["a"]).T @ inner, atol=1e-5)
    assert set(weights.trainable) == {"w"}


@pytest.mark.full
def test_jax_federated_averaging():
    """TFF's tutorial: zeros, SGD, an unweighted mean; a shorter last batch."""
    batch = {"x": jax.ShapeDtypeStruct((None, 6), np.float32), "y": jax.ShapeDtypeStruct((None,), np.int32)}
    shapes = {"w": jax.ShapeDtypeStruct((6, 4), np.float32), "b": jax.ShapeDtypeStruct((4,), np.float32)}

    def loss(p, b):
        log = jax.nn.log_softmax(b["x"] @ p["w"] + p["b"])
        return -jnp.mean(jnp.take_along_axis(log, b["y"][:, None], 1))

    process = build_jax_federated_averaging_process(batch, shapes, loss, 0.5)
    p, output = Logistic.zeros(6, 4), process.initialize()
    np.testing.assert_allclose(loss(output, CLIENTS[0]), np.log(4), rtol=1e-6)  # the state stands for the model
    for _ in range(2):
        state, _ = output = process.next(output, [workload.batches(c, 4) for c in CLIENTS])
        updates = [workload.tree(np.subtract, workload.local_sgd(p, c, 0.5, 4), p) for c in CLIENTS]
        p = workload.tree(np.add, p, workload.weighted_mean(updates, [1] * 4))
    np.testing.assert_allclose(state.weights.trainable["w"], p["w"], atol=1e-5)
    np.testing.assert_array_equal(output["b"], process.get_model_weights(state).trainable["b"])
    restored = process.set_model_weights(state, Logistic.zeros(6, 4))
    assert not restored["w"].any() and jax.tree.map(lambda leaf: leaf, restored)[0] == 2
    with pytest.raises(DataError, match="batch_type"):
        process.next(state, [[{"x": np.zeros((4, 5), np.float32), "y": np.zeros(4, np.int32)}]])


def libraries():
    import flax.linen as nn
    import haiku as hk
    from flax import nnx

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(5)(x))
            return nn.Dense(4)(nn.Dropout(0.5, deterministic=not train)(x))

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            self.first, self.last = nnx.Linear(6, 5, rngs=rngs), nnx.Linear(5, 4, rngs=rngs)
            self.norm, self.dropout = nnx.BatchNorm(5, momentum=0.9, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.last(self.dropout(self.norm(self.first(x))))

    def forward(batch, train):
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(5)(batch["x"]), is_training=train)
        return hk.Linear(4)(hk.dropout(hk.next_rng_key(), 0.5, x) if train else x)

    on, off = {"train": True}, {"train": False}
    loss = named_loss("sparse_categorical_crossentropy", from_logits=True)
    return {
        "linen": lambda: create_model_from_flax(Linen(), CLIENTS[0], loss, train_kwargs=on, eval_kwargs=off),
        "nnx": lambda: create_model_from_flax(Nnx(nnx.Rngs(0)), CLIENTS[0], loss),
        "haiku": lambda: create_model_from_haiku(hk.transform_with_state(forward), CLIENTS[0], loss, {}, on, off),
    }


@pytest.mark.full
@pytest.mark.parametrize("name", ["linen", *(pytest.param(n, marks=pytest.mark.full) for n in ("nnx", "haiku"))])
def test_other_libraries(name):
    """FedAvg moves weights and statistics; Dropout draws in training only."""
    pytest.importorskip("haiku" if name == "haiku" else "flax")
    model = libraries()[name]()
    process = build_weighted_fed_avg(model, optax.sgd(0.1), client_batching=BATCHING)
    start = process.initialize()
    state, metrics = process.next(start, DATA)
    for part in ("trainable", "non_trainable"):
        pairs = zip(*(jax.tree.leaves(getattr(s.weights, part)) for s in (start, state)), strict=True)
        assert any(not np.array_equal(a, b) for a, b in pairs), part
    keys = [jax.random.key(i) for i in (0, 0, 1)]
    a, b, c = (model.apply_for_train(state.weights, CLIENTS[0], k).predictions for k in keys)
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert np.isfinite(float(evaluate_model(model, state.weights, [CLIENTS[0]])["loss"]))
    assert int(metrics["clients"]["participated"]) == 4


@pytest.mark.full
def test_clipping_example(capsys):
    path = Path(__file__).parents[2] / "examples" / "federated_clipping_client_work.py"
    spec = importlib.util.spec_from_file_location("clipping", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    plain, clipped = (float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().out.strip().splitlines())
    # Three steps of at most 0.5 * 0.1 each, averaged over clients.
    assert clipped <= 0.15 + 1e-6 < plain
