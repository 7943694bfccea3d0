"""All clients' examples as one dataset."""

import itertools

import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning import data

SIZES = [3, 0, 7, 1, 5]
STARTS = np.cumsum([0, *SIZES])
CLIENTS = data.InMemoryFederatedData(
    {str(i): {"y": np.arange(STARTS[i], STARTS[i + 1]), "x": np.zeros((n, 2))} for i, n in enumerate(SIZES)}
)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 16, 40])
@pytest.mark.parametrize("buckets", [1, 3])
def test_padded_batches_are_those_of_one_dataset(size, buckets):
    """The oracle joins all examples in batches, as tested against tf.data."""
    doubled = CLIENTS.preprocess_batch(lambda e: {**e, "y": e["y"] * 2})
    joined = data.ClientDataset({"y": np.arange(16) * 2, "x": np.zeros((16, 2))})
    batches = list(data.padded_batch_federated_data(doubled, batch_size=size, num_batch_size_buckets=buckets))
    expected = list(joined.padded_batch(batch_size=size, num_batch_size_buckets=buckets))
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        for name in ("x", "y", "__mask__"):
            np.testing.assert_array_equal(batch[name], other[name])


def test_no_examples_no_batches():
    assert list(data.padded_batch_federated_data(CLIENTS.slice("1", "2"), batch_size=2)) == []


@pytest.mark.parametrize(("batch_size", "buffer"), [(3, 3), (4, 10), (16, 100)])
def test_shuffled_batches(batch_size, buffer):
    def draw(seed):
        batches = data.shuffle_repeat_batch_federated_data(CLIENTS, batch_size, 2, buffer, seed)
        return np.array([batch["y"] for batch in itertools.islice(batches, 200)])

    drawn = draw(0)
    assert drawn.shape == (200, batch_size)
    # Of k consecutive examples, all but those in the buffers are from whole passes: counts nearly agree.
    counts = np.bincount(drawn.ravel(), minlength=16)
    assert counts.min() > 0 and np.ptp(counts) <= 2 * (buffer // 16 + 2)
    np.testing.assert_array_equal(draw(0), drawn)
    assert not np.array_equal(draw(1), drawn)


def test_refusals():
    with pytest.raises(DataError, match="no examples"):
        next(data.shuffle_repeat_batch_federated_data(CLIENTS.slice("1", "2"), 2, 2, 2, 0))
    with pytest.raises(DataError, match="batch_size <= example_buffer_size"):
        next(data.shuffle_repeat_batch_federated_data(CLIENTS, 3, 2, 2, 0))
    other = data.InMemoryFederatedData({"a": {"z": np.zeros(2)}})
    both = [d for c in (CLIENTS, other) for _, d in c.clients()]
    with pytest.raises(DataError, match=r"the features differ: \['x', 'y'\] and \['z'\]"):
        list(data.padded_batch_client_datasets(both, batch_size=18))
    mixed = [CLIENTS.get_client("0"), CLIENTS.preprocess_batch(dict).get_client("2")]
    with pytest.raises(DataError, match="different batch preprocessors"):
        list(data.padded_batch_client_datasets(mixed, batch_size=18))
