"""Batches of a client's examples, against tf.data."""

import itertools

import jax
import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning import data

SIZES = [(0, 3), (1, 3), (3, 3), (7, 3), (8, 4), (5, 8)]


def _examples(n):
    return {"x": np.arange(2 * n, dtype=np.float32).reshape(n, 2), "y": np.arange(n, dtype=np.int64)}


def _tf_batches(examples, epochs, size, drop_remainder=False):
    dataset = tf.data.Dataset.from_tensor_slices(examples).repeat(epochs).batch(size, drop_remainder=drop_remainder)
    return [{name: value.numpy() for name, value in batch.items()} for batch in dataset]


def _assert_same(batches, expected):
    batches = list(batches)
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert list(batch) == list(other)
        for name in other:
            np.testing.assert_array_equal(batch[name], other[name])
            assert batch[name].dtype == other[name].dtype


@pytest.mark.parametrize(("n", "size"), SIZES)
@pytest.mark.parametrize("drop", [False, True])
def test_batch_is_tf_data_batch(n, size, drop):
    batches = data.ClientDataset(_examples(n)).batch(size, drop_remainder=drop)
    expected = _tf_batches(_examples(n), 1, size, drop)
    assert len(batches) == len(expected)
    for _ in range(2):  # a one-shot iterable would be empty the second time
        _assert_same(batches, expected)


@pytest.mark.parametrize(("n", "size"), SIZES)
@pytest.mark.parametrize("epochs", [0, 1, 3])
@pytest.mark.parametrize("drop", [False, True])
def test_short_last_batches_are_tff_pipelines(n, size, epochs, drop):
    """TFF uses repeat(epochs).shuffle(..).batch(size): batches cross epochs."""
    batches = data.ClientDataset(_examples(n)).shuffle_repeat_batch(
        batch_size=size, num_epochs=epochs, skip_shuffle=True, drop_remainder=drop, fill_remainder=False
    )
    expected = _tf_batches(_examples(n), epochs, size, drop)
    assert len(batches) == len(expected)
    _assert_same(batches, expected)


@pytest.mark.parametrize(("n", "size"), SIZES[1:])
@pytest.mark.parametrize("epochs", [1, 2])
def test_filled_last_batches_go_on_with_the_next_epoch(n, size, epochs):
    batches = data.ClientDataset(_examples(n)).shuffle_repeat_batch(
        batch_size=size, num_epochs=epochs, skip_shuffle=True
    )
    steps = -(-n * epochs // size)
    _assert_same(batches, _tf_batches(_examples(n), epochs + size, size)[:steps])


@pytest.mark.parametrize(
    ("epochs", "steps", "drop", "expected"),
    [
        (2, None, False, 5),
        (2, None, True, 4),
        (2, 3, False, 3),
        (2, 9, False, 5),
        (None, 7, False, 7),
        (None, 0, True, 0),
    ],
)
def test_epochs_and_steps_end_whichever_is_first(epochs, steps, drop, expected):
    batches = data.ClientDataset(_examples(7)).shuffle_repeat_batch(
        batch_size=3, num_epochs=epochs, num_steps=steps, drop_remainder=drop
    )
    assert len(batches) == len(list(batches)) == expected


@pytest.mark.parametrize("size", [2, 3, 16])
def test_every_epoch_has_every_example_once(size):
    n, epochs = 7, 4
    batches = data.ClientDataset(_examples(n)).shuffle_repeat_batch(
        batch_size=size, num_epochs=epochs, seed=3, fill_remainder=False
    )
    drawn = np.concatenate([batch["y"] for batch in batches]).reshape(epochs, n)
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(n), (epochs, 1)))
    assert len({tuple(epoch) for epoch in drawn}) > 1, "each epoch has an order of its own"


def test_features_stay_together_when_shuffled():
    for batch in data.ClientDataset(_examples(9)).shuffle_repeat_batch(batch_size=4, num_epochs=3, seed=0):
        np.testing.assert_array_equal(batch["x"][:, 0], 2 * batch["y"])


@pytest.mark.parametrize("seed", [7, [1, 2], jax.random.key(4), jax.random.PRNGKey(4)])
def test_a_seed_fixes_the_order(seed):
    dataset = data.ClientDataset(_examples(20))
    batches = dataset.shuffle_repeat_batch(batch_size=6, num_epochs=2, seed=seed)
    first = [batch["y"] for batch in batches]
    np.testing.assert_array_equal(first, [batch["y"] for batch in batches])
    other = [batch["y"] for batch in dataset.shuffle_repeat_batch(batch_size=6, num_epochs=2, seed=12345)]
    assert not np.array_equal(first, other)


def test_without_a_seed_each_iteration_differs():
    batches = data.ClientDataset(_examples(50)).shuffle_repeat_batch(batch_size=50)
    assert not np.array_equal(next(iter(batches))["y"], next(iter(batches))["y"])


def test_endless_batches():
    batches = data.ClientDataset(_examples(3)).shuffle_repeat_batch(batch_size=2, num_epochs=None, skip_shuffle=True)
    assert [list(batch["y"]) for batch in itertools.islice(batches, 4)] == [[0, 1], [2, 0], [1, 2], [0, 1]]
    with pytest.raises(TypeError, match="no end"):
        len(batches)


@pytest.mark.full
@pytest.mark.parametrize("n", range(0, 18))
@pytest.mark.parametrize("buckets", [1, 2, 3, 9])
def test_padded_batch(n, buckets):
    size = 8
    batches = list(data.ClientDataset(_examples(n)).padded_batch(batch_size=size, num_batch_size_buckets=buckets))
    expected = _tf_batches(_examples(n), 1, size)
    assert len(batches) == len(expected)
    allowed = (8, 4, 2, 1)[:buckets]
    for batch, other in zip(batches, expected, strict=True):
        present = len(other["y"])
        padded = min(s for s in allowed if s >= present)
        assert batch["x"].shape == (padded, 2)
        assert batch["__mask__"].dtype == bool
        np.testing.assert_array_equal(batch["__mask__"], [True] * present + [False] * (padded - present))
        np.testing.assert_array_equal(batch["x"][:present], other["x"])
        assert not batch["x"][present:].any() and not batch["y"][present:].any()
        assert batch["y"].dtype == np.int64


def test_strings_are_padded_with_empty_strings():
    words = {"w": np.array([b"ab", b"c", b"d"]), "o": np.array([b"ab", b"c", b"d"], object)}
    last = list(data.ClientDataset(words).padded_batch(batch_size=2))[-1]
    assert list(last["w"]) == [b"d", b""] and list(last["o"]) == [b"d", b""]


def test_preprocessors_run_in_order_on_each_batch():
    seen = []
    chain = data.BatchPreprocessor([lambda e: {**e, "z": e["y"] + 1}]).append(lambda e: {**e, "z": e["z"] * 10})
    chain = chain.append(lambda e: seen.append(len(e["y"])) or e)
    dataset = data.ClientDataset(_examples(5), chain)
    np.testing.assert_array_equal(dataset.all_examples()["z"], (np.arange(5) + 1) * 10)
    batches = list(dataset.padded_batch(batch_size=4))
    np.testing.assert_array_equal(batches[1]["z"], [50, 0, 0, 0])  # padding comes after: functions never see it
    assert seen == [5, 4, 1]


def test_a_preprocessor_may_drop_examples_of_a_padded_batch():
    chain = data.BatchPreprocessor([lambda e: {k: v[e["y"] % 2 == 0] for k, v in e.items()}])
    batches = list(data.ClientDataset(_examples(6), chain).padded_batch(batch_size=4))
    assert [list(b["y"][b["__mask__"]]) for b in batches] == [[0, 2], [4]]
    assert all(b["y"].shape == (4,) for b in batches)


def test_slices():
    dataset = data.ClientDataset(_examples(6))
    assert len(dataset[1:4]) == 3
    np.testing.assert_array_equal(dataset[::2].all_examples()["y"], [0, 2, 4])
    assert np.shares_memory(dataset[1:4].raw_examples["x"], dataset.raw_examples["x"])


def test_hparams_objects_and_overrides():
    hparams = data.ShuffleRepeatBatchHParams(batch_size=2, num_epochs=3, skip_shuffle=True)
    dataset = data.ClientDataset(_examples(4))
    assert len(dataset.shuffle_repeat_batch(hparams)) == 6
    assert len(dataset.shuffle_repeat_batch(hparams, num_epochs=1)) == 2
    assert hparams.replace(batch_size=4).batch_size == 4 and hparams.batch_size == 2


@pytest.mark.full_cases("<lambda>-'x' is no array: .*key_data", "<lambda>-__mask__")
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d: d.batch(), "batch_size is missing"),
        (lambda d: d.batch(batch_size=0), "batch_size"),
        (lambda d: d.batch(batch_size=2.5), "batch_size"),
        (lambda d: d.batch(batch_size=True), "batch_size"),
        (lambda d: d.batch(batch_size=2, epochs=1), "has no epochs; it has batch_size, drop_remainder"),
        (lambda d: d.batch(data.PaddedBatchHParams(2)), "BatchHParams"),
        (lambda d: d.padded_batch(batch_size=2, num_batch_size_buckets=0), "num_batch_size_buckets"),
        (lambda d: d.shuffle_repeat_batch(batch_size=2, num_epochs=-1), "num_epochs"),
        (lambda d: d.shuffle_repeat_batch(batch_size=2, seed="a"), "seed"),
        (lambda d: d[0], "slice"),
        (lambda d: data.ClientDataset({}), "no features"),
        (lambda d: data.ClientDataset({"x": np.float32(1)}), "scalar"),
        (lambda d: data.ClientDataset({1: np.zeros(2)}), "string"),
        (lambda d: data.ClientDataset({"x": np.zeros(2), "y": np.zeros(3)}), "'x': 2, 'y': 3"),
        (lambda d: data.ClientDataset({"x": [[1, 2], [3]]}), "'x' is no array"),
        (lambda d: data.ClientDataset({"x": jax.random.split(jax.random.key(0))}), "'x' is no array: .*key_data"),
        (lambda d: list(data.ClientDataset({"__mask__": np.zeros(2)}).padded_batch(batch_size=4)), "__mask__"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(DataError, match=match):
        call(data.ClientDataset(_examples(3)))
