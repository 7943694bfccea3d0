"""Clients that download and update rows, against whole models and NumPy.

TFF's tutorial on federated_select and sparse aggregation is here with its clients, whose words are integers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.federated import aggregators as agg

ROWS, TAGS, LENGTH = 13, 4, 5
BATCHING = fed.BatchHParams(batch_size=2)
# TFF's clients, as numbers of words (12 is any other) and tags: with 4 words, with 6, and with all.
WORDS = [
    [([0, 1], [0]), ([4, 8], [1, 2]), ([1, 0], [0]), ([1], [3])],
    [([2, 10], [0, 2]), ([6, 7], [1]), ([3, 2], [0]), ([12], [2]), ([12], [2])],
    [([*range(13)], [0, 1, 2]), ([11, 12], [2, 3])],
]


def example(words, tags):
    tokens = np.full(ROWS, -1, np.int32)
    tokens[: len(words)] = words
    return tokens, np.isin(np.arange(TAGS), tags).astype(np.float32)


def client(entries):
    tokens, tags = zip(*(example(*entry) for entry in entries), strict=True)
    return {"tokens": np.stack(tokens), "y": np.stack(tags)}


CLIENTS = [client(entries) for entries in WORDS]
DATA = [fed.ClientDataset(c) for c in CLIENTS]


def predict(params, batch):
    rows = params["words"][jnp.maximum(batch["tokens"], 0)]
    return jnp.sum(jnp.where((batch["tokens"] >= 0)[..., None], rows, 0), axis=1)


def loss(batch, logits):
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch["y"]), axis=-1)


MODEL = fed.create_model_from_fn({"words": np.zeros((ROWS, TAGS), np.float32)}, predict, loss)


def selected(max_keys=6, missing=-1, **options):
    return fed.select_rows(MODEL, lambda name: name == "words", "tokens", max_keys, missing=missing, **options)


def build(model, **options):
    options = {"client_batching": BATCHING, **options}
    return fed.build_unweighted_fed_avg(model, optax.sgd(0.1), **options)


def keys_of(examples, most):
    """The most frequent words by examples, those of smaller numbers first."""
    hot = np.zeros((len(examples["tokens"]), ROWS))
    for row, tokens in zip(hot, examples["tokens"], strict=True):
        row[tokens[tokens >= 0]] = 1
    counts = hot.sum(0)
    order = np.argsort(-counts, kind="stable")
    return np.sort(order[: min(most, np.count_nonzero(counts))]), hot


def tutorial(weights, rounds, most, rate=0.1, size=2):
    """Compute TFF's algorithm in NumPy: the sum of clients' rows over their number."""
    for _ in range(rounds):
        total = np.zeros_like(weights)
        for examples in CLIENTS:
            keys, hot = keys_of(examples, most)
            part, local = weights[keys].copy(), hot[:, keys]
            for start in range(0, len(local), size):
                x, y = local[start : start + size], examples["y"][start : start + size]
                part -= rate * x.T @ (1 / (1 + np.exp(-x @ part)) - y) / (len(x) * TAGS)
            total[keys] += part - weights[keys]
        weights = weights + total / len(CLIENTS)
    return weights


@pytest.mark.default_cases("6-cpu_pool")
@pytest.mark.parametrize("execution", ["cpu_pool", "scan", "vmap", "loop", "debug"])
@pytest.mark.parametrize("most", [1, 6, 13])
def test_tutorial_of_tff(most, execution):
    process = build(selected(most), client_execution=execution)
    state = process.initialize()
    for _ in range(3):
        state, metrics = process.next(state, DATA)
    np.testing.assert_allclose(state.params["words"], tutorial(np.zeros((ROWS, TAGS)), 3, most), atol=1e-6)
    counts = [len(keys_of(c, most)[0]) for c in CLIENTS]
    found = metrics["client_work"]["train"]
    np.testing.assert_allclose(found["downloaded_bytes"], np.mean(counts) * 4 * TAGS)
    np.testing.assert_allclose(found["uploaded_bytes"], np.mean(counts) * (4 * TAGS + 4))


ALGORITHMS = {
    "fed_avg": lambda m, **o: fed.build_weighted_fed_avg(m, optax.sgd(0.5), **o),
    "fed_prox": lambda m, **o: fed.build_weighted_fed_prox(m, 0.3, optax.sgd(0.5), **o),
    "fed_opt": lambda m, **o: fed.build_fed_opt(m, optax.sgd(0.5), "adam", **o),
    "fed_sgd": lambda m, **o: fed.build_fed_sgd(m, **o),
    "fed_nova": lambda m, **o: fed.build_fed_nova(m, 0.5, momentum=0.9, **o),
}
AGGREGATORS = {
    "median": agg.CoordinateMedianFactory(),
    "clipping": agg.ClippingFactory(0.1, agg.UnweightedMeanFactory()),
    "private": agg.DifferentiallyPrivateFactory(0.5, 3, 0.1, noise_seed=0),
    "compressed": agg.CompressionFactory(agg.TopK(0.5)),
}


def trained(process, data, rounds=2):
    state = process.initialize()
    for _ in range(rounds):
        state, metrics = process.next(state, data)
    return process.get_model_weights(state).trainable, metrics


@pytest.mark.default_cases("fed_nova")
@pytest.mark.parametrize("name", [*ALGORITHMS, *AGGREGATORS])
def test_rows_of_all_a_clients_words_are_the_whole_model(name):
    """Whole models have gradients of zero in the other rows."""
    options = {"client_batching": BATCHING}
    if name in ALGORITHMS:
        make = ALGORITHMS[name]
    else:
        make = lambda m, **o: build(m, aggregator=AGGREGATORS[name], **o)  # noqa: E731
    whole, _ = trained(make(MODEL, **options), DATA)
    part, _ = trained(make(selected(13), **options), DATA)
    assert np.abs(whole["words"]).max() > 1e-3
    np.testing.assert_allclose(part["words"], whole["words"], atol=1e-6)


def test_other_weights_are_whole_and_numberings_are_apart():
    """Tables of users and items, and a bias."""
    params = {
        "users": np.ones((6, 2), np.float32),
        "items": {"table": np.full((9, 2), 0.5, np.float32)},
        "bias": np.zeros(3, np.float32),
    }

    def apply(p, batch):
        return jnp.sum(p["users"][batch["user"]] * p["items"]["table"][batch["item"]], axis=-1) + p["bias"][0]

    model = fed.create_model_from_fn(params, apply, "mse")
    rng = np.random.default_rng(0)
    data = [
        (i, fed.ClientDataset({"user": np.full(4, i), "item": rng.integers(0, 9, 4), "y": rng.normal(size=4)}))
        for i in range(6)
    ]
    rows = fed.select_rows(model, lambda name: name == "users", "user", 1)
    rows = fed.select_rows(rows, lambda name: name.startswith("items"), ["item"], 4)
    whole, _ = trained(build(model), data)
    part, metrics = trained(build(rows, client_diagnostics=True), data)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), part, whole)
    for i, dataset in data:
        own = metrics["client_diagnostics"][i]
        count = 1 + len(set(dataset.raw_examples["item"].tolist()))
        assert own["downloaded_bytes"] == 8 * count + 12 and own["uploaded_bytes"] == 12 * count + 12


def bag(examples):
    rows = np.flatnonzero(examples["x"].any(axis=0))
    local = np.zeros((len(examples["x"]), 6), np.float32)
    local[:, : len(rows)] = examples["x"][:, rows]
    return rows, {**examples, "x": local}


def test_own_functions_choose_rows():
    model = fed.create_model_from_fn({"w": np.zeros((40, 2), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    rng = np.random.default_rng(0)
    data = []
    for start in range(0, 40, 5):
        x = np.zeros((3, 40), np.float32)
        x[:, start : start + 5] = rng.normal(size=(3, 5))
        data.append(fed.ClientDataset({"x": x, "y": np.ones((3, 2), np.float32)}))
    whole, _ = trained(build(model), data)
    part, _ = trained(build(fed.select_rows(model, lambda name: True, bag, 6)), data)
    np.testing.assert_allclose(part["w"], whole["w"], atol=1e-6)
    for wrong in ([0, 0], [40], [-1], [0.5], [*range(7)]):
        process = build(fed.select_rows(model, lambda name: True, lambda e, r=wrong: (r, e), 6))
        with pytest.raises(DataError, match=r"client 0 of the round: keys returned .* at most 6 different rows"):
            process.next(process.initialize(), data)


def test_frozen_rows_are_downloaded_alone():
    frozen = fed.freeze(
        fed.create_model_from_fn(
            {"table": np.ones((50, 8), np.float32), "w": np.zeros((8, 1), np.float32)},
            lambda p, b: (p["table"][b["x"]] @ p["w"])[:, 0],
            "mse",
        ),
        lambda name: name == "w",
    )
    data = [fed.ClientDataset({"x": np.array([3, 7, 3]), "y": np.ones(3, np.float32)})]
    rows = fed.select_rows(frozen, lambda name: name == "frozen/table", "x", 4)
    part, metrics = trained(build(rows), data)
    np.testing.assert_allclose(part["w"], trained(build(frozen), data)[0]["w"], atol=1e-6)
    assert metrics["client_work"]["train"]["downloaded_bytes"] == 2 * 32 + 32
    assert metrics["client_work"]["train"]["uploaded_bytes"] == 2 * 4 + 32


def test_models_that_read_more_than_their_rows_raise():
    def masked(params, batch):
        """As Keras does with ``mask_zero``."""
        return jnp.sum(jnp.where((batch["tokens"] > 0)[..., None], params["words"][batch["tokens"]], 0), axis=1)

    def all_rows(params, batch):
        return predict(params, batch) + jnp.sum(params["words"])

    start = {"words": np.random.default_rng(0).normal(size=(ROWS, TAGS)).astype(np.float32)}
    data = [fed.ClientDataset({"tokens": np.maximum(c["tokens"], 0), "y": c["y"]}) for c in CLIENTS]
    for function in (masked, all_rows):
        model = fed.create_model_from_fn(start, function, loss)
        process = build(fed.select_rows(model, lambda name: True, "tokens", 13))
        with pytest.raises(InputError, match="client 0 of the round alone the model is another one"):
            process.next(process.initialize(), data)
    model = fed.create_model_from_fn(start, masked, loss)
    part, _ = trained(build(fed.select_rows(model, lambda name: True, "tokens", 13, fixed=1)), data)
    np.testing.assert_allclose(part["words"], trained(build(model), data)[0]["words"], atol=1e-6)


def test_unknown_words_take_the_place_of_those_without_room():
    process = build(selected(4, missing=12))
    many = {"tokens": np.int32([[0, 1, 2], [0, 1, 3], [0, 4, 12]]), "y": CLIENTS[0]["y"][:3]}
    few = {**many, "tokens": np.int32([[0, 1, 2], [0, 1, 12], [0, 12, 12]])}
    found, same = (trained(process, [fed.ClientDataset(e)])[0]["words"] for e in (many, few))
    np.testing.assert_array_equal(found, same)


REFUSED = {
    "no weight": (lambda: fed.select_rows(MODEL, lambda name: False, "tokens", 4), "none of: words"),
    "rows": (lambda: selected(0), "max_keys"),
    "fixed": (lambda: selected(4, fixed=5), "fixed"),
    "missing": (lambda: selected(4, missing=13), "missing"),
    "twice": (lambda: fed.select_rows(selected(), lambda name: True, "tokens", 4), "has a selection already"),
    "state": (lambda: fed.build_scaffold(selected(), 3, 0.1), "clients get weights alone"),
    "first pass": (lambda: fed.build_mime(selected(), optax.sgd(0.1)), "clients get weights alone"),
    "order": (lambda: build(fed.with_lora(selected(), 2)), "select_rows comes last"),
    "secure": (lambda: build(selected(), aggregator=agg.UnweightedMeanFactory(agg.SecureSumFactory(1.0))), "secure"),
    "local": (lambda: build(selected(), aggregator=agg.LocalDpFactory(1.0, 1.0)), "local differential privacy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, text = REFUSED[name]
    with pytest.raises(InputError, match=text):
        make()


BAD = {
    "room": ({"tokens": np.int32([[0, 1, 2]])}, "name 3 rows, and max_keys is 2"),
    "row": ({"tokens": np.int32([[13]])}, "has 13; there are rows 0 to 12"),
    "dtype": ({"tokens": np.float32([[1]])}, "it is float32"),
    "feature": ({"x": np.int32([[1]])}, "there are x, y"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_select_no_rows_raise(name):
    examples, text = BAD[name]
    process = build(selected(2, missing=None))
    with pytest.raises(DataError, match=f"client 0 of the round: .*{text}"):
        process.next(process.initialize(), [fed.ClientDataset({**examples, "y": CLIENTS[0]["y"][:1]})])


def keras_embedding(mask_zero):
    keras = pytest.importorskip("tensorflow").keras
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Input((5,), dtype="int32"),
        keras.layers.Embedding(50, 4, mask_zero=mask_zero),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
    ]
    return fed.create_model_from_tf(keras.Sequential(layers), "mse")


@pytest.mark.full
@pytest.mark.parametrize("mask_zero", [False, True])
def test_embeddings_of_keras(mask_zero):
    model = keras_embedding(mask_zero)
    rng = np.random.default_rng(0)
    data = []
    for start in (1, 20, 40):
        x = rng.integers(start, start + 9, (6, 5)).astype(np.int32)
        x[:, 4] = 0
        data.append(fed.ClientDataset({"x": x, "y": rng.normal(size=(6, 1)).astype(np.float32)}))
    whole, _ = trained(build(model), data)

    def is_table(name):
        return "embedding" in name

    if mask_zero:
        process = build(fed.select_rows(model, is_table, "x", 12))
        with pytest.raises(InputError, match="compares the numbers of rows"):
            process.next(process.initialize(), data)
    rows = fed.select_rows(model, is_table, "x", 12, fixed=int(mask_zero))
    part, metrics = trained(build(rows), data)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), part, whole)
    counts = [len(np.unique(d.raw_examples["x"])) for d in data]
    np.testing.assert_allclose(
        metrics["client_work"]["train"]["downloaded_bytes"], 16 * np.mean(counts) + 20, rtol=1e-6
    )
