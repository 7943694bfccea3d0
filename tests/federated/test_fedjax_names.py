"""FedJAX's functions on pytrees, models and tokenizers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import DataError
from tf2jax_lite.federated import models, tokenizers, tree_util
from tf2jax_lite.federated.execution.cohort import Cohort
from tf2jax_lite.learning.data.client_dataset import index_table
from tf2jax_lite.learning.data.federated_data import buffered_shuffle

A = {"a": np.float32([3, 0]), "b": np.float32([[4]])}
B = {"a": np.float32([1, 1]), "b": np.float32([[-2]])}
TREES = [
    (tree_util.tree_add(A, B), {"a": [4, 1], "b": [[2]]}),
    (tree_util.tree_sum([A, B, B]), {"a": [5, 2], "b": [[0]]}),
    (tree_util.tree_weight(A, 2.0), {"a": [6, 0], "b": [[8]]}),
    (tree_util.tree_inverse_weight(A, 2.0), {"a": [1.5, 0], "b": [[2]]}),
    (tree_util.tree_inverse_weight(A, 0.0), {"a": [0, 0], "b": [[0]]}),
    (tree_util.tree_mean([(A, 1.0), (B, 3.0)]), {"a": [1.5, 0.75], "b": [[-0.5]]}),
    (tree_util.tree_zeros_like(A), {"a": [0, 0], "b": [[0]]}),
    (tree_util.tree_clip_by_global_norm(A, 2.5), {"a": [1.5, 0], "b": [[2]]}),
    (tree_util.tree_clip_by_global_norm(A, 6.0), A),
    (tree_util.tree_clip_by_global_norm({"n": np.int32([3, 4])}, 2.5), {"n": [1.5, 2]}),
    (tree_util.tree_clip_by_global_norm(tree_util.tree_zeros_like(A), 0.0), {"a": [0, 0], "b": [[0]]}),
    ([tree_util.tree_size(A), tree_util.tree_l2_norm(A), tree_util.tree_l2_squared(A)], [3, 5, 25]),
]


@pytest.mark.parametrize("case", range(len(TREES)))
def test_trees(case):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *TREES[case])


MODELS = {
    "conv": (lambda: models.create_conv_model(), (28, 28, 1), 62, 1_206_590),
    "digits": (lambda: models.create_conv_model(only_digits=True), (28, 28, 1), 10, 1_199_882),
    "dense": (lambda: models.create_dense_model(hidden_units=20), (28, 28, 1), 62, 785 * 20 + 21 * 20 + 21 * 62),
    "logistic": (lambda: models.create_logistic_model(), (28, 28, 1), 62, 785 * 62),
    "words": (lambda: models.create_lstm_model(9, 4, 5), (7,), (7, 13), 13 * 4 + 4 * 5 * 10 + 6 * 4 + 5 * 13),
    "shared": (
        lambda: models.create_lstm_model(9, 4, 5, share_input_output_embeddings=True),
        (7,),
        (7, 13),
        13 * 4 + 4 * 5 * 10 + 6 * 4 + 13,
    ),
    "characters": (lambda: models.create_char_lstm_model(9, 4, 5, 1), (7,), (7, 13), 13 * 4 + 4 * 5 * 10 + 6 * 13),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_have_fedjaxs_shapes(name):
    pytest.importorskip("flax")
    make, shape, classes, size = MODELS[name]
    model = make()
    assert sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(model.shapes.trainable)) == size
    integers = not isinstance(classes, int)
    kind = jnp.int32 if integers else jnp.float32
    batch = {
        "x": jax.ShapeDtypeStruct((2, *shape), kind),
        "y": jax.ShapeDtypeStruct((2, *(shape if integers else ())), jnp.int32),
    }
    key = jax.random.key(0)
    params = jax.eval_shape(model.init, key)
    found = jax.eval_shape(model.apply_for_train, params, batch, key)
    assert jax.tree.structure(params) == jax.tree.structure(model.shapes.trainable)
    assert found.shape == (2, *(classes if integers else (classes,)))
    assert jax.eval_shape(lambda p, b: model.train_loss(b, p), found, batch).shape == (2,)


def objects(*sentences):
    found = np.empty(len(sentences), object)
    found[:] = sentences
    return found


def test_shakespeare_is_cut_into_sequences():
    """As FedJAX documents it: BOS A B | C D EOS | BOS E PAD."""
    found = tokenizers.shakespeare_sequences(3)("id", {"snippets": objects(b"ABCD", b"E")})
    a, b, c, d, e = (3 + tokenizers.SHAKESPEARE_CHARACTERS.index(letter) for letter in b"ABCDE")
    np.testing.assert_array_equal(found["x"], [[1, a, b], [c, d, 2], [1, e, 0]])
    np.testing.assert_array_equal(found["y"], [[a, b, c], [d, 2, 1], [e, 2, 0]])
    other = tokenizers.shakespeare_sequences(2)("id", {"snippets": objects(b"~")})
    np.testing.assert_array_equal(other["y"], [[3 + len(tokenizers.SHAKESPEARE_CHARACTERS), 2]])
    assert tokenizers.shakespeare_sequences(4)("id", {"snippets": objects()})["x"].shape == (0, 4)


def test_words_are_labels():
    tokenizer = tokenizers.StackoverflowTokenizer(["the", b"cat"])
    batch = {"tokens": objects(b"the cat sat", b"cat", b""), "domain_id": np.int32([0, 1, 0])}
    found = tokenizer.as_preprocess_batch(4)(batch)
    np.testing.assert_array_equal(found["x"], [[1, 3, 4, 5], [1, 4, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(found["y"], [[3, 4, 5, 2], [4, 2, 0, 0], [2, 0, 0, 0]])
    assert found["domain_id"].tolist() == [0, 1, 0]
    short = tokenizer.as_preprocess_batch(2)(batch)
    np.testing.assert_array_equal(short["y"][0], [3, 4])


def test_examples_of_many_datasets_are_shuffled_once():
    datasets = [fed.ClientDataset({"y": np.arange(10 * i, 10 * i + i)}) for i in range(5)]
    every = np.concatenate([dataset.all_examples()["y"] for dataset in datasets])
    orders = []
    for seed in (0, 0, np.random.RandomState(3)):
        batches = list(fed.buffered_shuffle_batch_client_datasets(datasets, 4, 6, seed))
        assert [len(batch["y"]) for batch in batches] == [4, 4, 2]
        orders.append(np.concatenate([batch["y"] for batch in batches]).tolist())
        assert sorted(orders[-1]) == every.tolist()
    assert orders[0] == orders[1] != orders[2]
    other = fed.ClientDataset({"x": np.arange(3)})
    with pytest.raises(DataError, match="different features"):
        list(fed.buffered_shuffle_batch_client_datasets([*datasets, other], 13, 13, 0))


ROWS = fed.InMemoryFederatedData({i: {"x": np.arange(i + 1)} for i in range(20)})


def drawn(sampler, rounds):
    return [[client_id for client_id, _, _ in sampler.sample()] for _ in range(rounds)]


def batches(found):
    return [batch["x"].tolist() for batch in found]


def state(seed):
    return np.random.RandomState(seed)


# Read from FedJAX c57ee19 with its integer seeds.
ORDERS = {
    "batches": (
        lambda: batches(fed.ClientDataset({"x": np.arange(5)}).shuffle_repeat_batch(4, num_epochs=3, seed=state(7))),
        [[0, 3, 2, 1], [4, 2, 3, 0], [4, 1, 4, 1], [0, 3, 2, 1]],
    ),
    "table": (
        lambda: index_table(5, fed.ShuffleRepeatBatchHParams(4, num_epochs=3), state(7)).tolist(),
        [[0, 3, 2, 1], [4, 2, 3, 0], [4, 1, 4, 1], [0, 3, 2, 1]],
    ),
    "buffer": (lambda: list(buffered_shuffle(range(9), 4, state(5))), [0, 1, 2, 5, 7, 4, 8, 6, 3]),
    "clients": (
        lambda: [client_id for client_id, _ in itertools.islice(ROWS.shuffled_clients(4, state(3)), 25)],
        [3, 4, 5, 6, 7, 1, 8, 10, 0, 12, 9, 13, 11, 14, 17, 15, 19, 16, 18, 2, 2, 4, 3, 6, 5],
    ),
    "examples": (
        lambda: batches(itertools.islice(fed.shuffle_repeat_batch_federated_data(ROWS, 4, 3, 6, state(2)), 3)),
        [[2, 0, 1, 1], [0, 4, 1, 0], [1, 2, 4, 3]],
    ),
    "cohorts": (lambda: drawn(fed.UniformGetClientSampler(ROWS, 3, state(11), 2), 2), [[12, 3, 5], [12, 3, 1]]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_are_fedjaxs(name):
    found, expected = ORDERS[name]
    assert found() == expected
    assert found() == expected


def test_a_generator_is_a_seed_of_each_client_and_round():
    """What its giver draws from it later changes nothing."""
    given = state(7)
    batching = fed.ShuffleRepeatBatchHParams(4, num_epochs=3, seed=given)
    given.randint(9)
    cohort = Cohort([fed.ClientDataset({"x": np.arange(5)})] * 2, batching, 0, 1)
    assert [client.rows.tolist() for client in cohort.prepared()] == [ORDERS["table"][1]] * 2
    keys = [key for _, _, key in fed.UniformGetClientSampler(ROWS, 3, state(11), 2).sample()]
    np.testing.assert_array_equal(keys, jax.random.split(jax.random.PRNGKey(2), 3))
    with pytest.raises(DataError, match="a seed is an int"):
        fed.partition_iid({"x": np.arange(9)}, 3, seed=given)


def test_a_gradient_has_the_structure_of_the_weights():
    model = fed.create_model_from_fn(B, lambda p, b: b["x"] @ p["a"] + p["b"][0, 0], "mse")
    batch = {"x": np.ones((3, 2), np.float32), "y": np.ones(3, np.float32)}
    plain = fed.model_grad(model)(params=B, batch=batch)
    whole = fed.model_grad(model)(fed.ModelWeights(B, {"count": np.int32(3)}), batch, None)
    jax.tree.map(np.testing.assert_array_equal, whole, fed.ModelWeights(plain, {"count": np.int32(0)}))
    regularized = fed.model_grad(model, lambda p: 0.5 * jnp.sum(p["a"] ** 2))(B, batch)
    np.testing.assert_allclose(regularized["a"], plain["a"] + B["a"], rtol=1e-6)
