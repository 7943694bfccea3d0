"""Functions of users do not reach stored examples, however they write to them."""

import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.learning import data


def assigned(examples):
    examples["x"] = examples["x"] / 2
    return examples


def in_place(examples):
    examples["x"] *= 0.5
    return examples


def in_place_of_a_copy_of_the_dict(examples):
    found = dict(examples)
    found["x"] /= 2
    return found


def removed(examples):
    examples["x"] = 0.5 * examples.pop("x")
    return examples


FUNCTIONS = [assigned, in_place, in_place_of_a_copy_of_the_dict, removed]


def stored():
    return {"x": np.full((5, 2), 2.0, np.float32), "y": np.zeros(5, np.float32)}


def of_client(fn, tmp_path):
    return fed.InMemoryFederatedData({"a": stored()}).preprocess_client(lambda client_id, examples: fn(examples))


def of_batch(fn, tmp_path):
    return fed.InMemoryFederatedData({"a": stored()}).preprocess_batch(fn)


def of_subset(fn, tmp_path):
    """A subset of a subset reads through the functions of both."""
    once = fed.SubsetFederatedData(of_batch(fn, tmp_path), ["a"])
    return fed.SubsetFederatedData(once, ["a"])


def of_own_storage(fn, tmp_path):
    """Examples that a kind of storage keeps as they are, and gives to each reader."""
    kept = stored()

    class Own(fed.FederatedData):
        def _ids(self):
            return iter("a")

        def _size(self, client_id):
            return 5

        def _read(self, client_id):
            return kept

    return Own().preprocess_client(lambda client_id, examples: fn(examples))


def of_file(fn, tmp_path):
    with data.SQLiteFederatedDataBuilder(tmp_path / "clients.sqlite") as builder:
        builder.add("a", stored())
    found = data.SQLiteFederatedData(tmp_path / "clients.sqlite")
    return found.preprocess_client(lambda client_id, examples: fn(examples))


READS = {
    "all": lambda dataset: [dataset.all_examples()],
    "batch": lambda dataset: dataset.batch(2),
    "padded": lambda dataset: dataset.padded_batch(2),
    "shuffled": lambda dataset: dataset.shuffle_repeat_batch(2, fill_remainder=False, seed=0),
    "slice": lambda dataset: dataset[:5].batch(5),
    "pooled": lambda dataset: data.padded_batch_client_datasets([dataset], batch_size=2),
}


def read(dataset, how):
    batches = list(READS[how](dataset))
    return np.concatenate([batch["x"][batch.get("__mask__", slice(None))] for batch in batches])


@pytest.mark.parametrize("make", [of_client, of_batch, of_subset, of_own_storage, of_file])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_read_applies_a_function_once(make, fn, tmp_path):
    clients = make(fn, tmp_path)
    kept = clients.get_client("a")
    for how in [*READS, *READS]:
        np.testing.assert_array_equal(read(kept, how), np.ones((5, 2)), err_msg=how)
        np.testing.assert_array_equal(read(clients.get_client("a"), how), np.ones((5, 2)), err_msg=how)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_function_does_not_reach_the_result_of_another(fn):
    """Such as one that a function keeps for the next read."""
    kept = stored()
    for chain in (
        data.BatchPreprocessor([lambda examples: kept, fn]),
        lambda _: data.ClientPreprocessor([lambda i, examples: kept, lambda i, examples: fn(examples)])("a", {}),
    ):
        for _ in range(2):
            np.testing.assert_array_equal(chain({})["x"], np.ones((5, 2)))
    given = stored()
    data.BatchPreprocessor([fn])(given)
    np.testing.assert_array_equal(given["x"], stored()["x"])


@pytest.mark.parametrize("how", READS)
def test_a_batch_may_be_written_to(how):
    """Batches without a preprocessor are copies."""
    given = stored()
    dataset = fed.ClientDataset(given)
    for _ in range(2):
        for batch in READS[how](dataset):
            np.testing.assert_array_equal(batch["x"][batch.get("__mask__", slice(None))], 2)
            batch["x"] *= 0.5
    np.testing.assert_array_equal(given["x"], stored()["x"])
    with pytest.raises(ValueError, match="read-only"):
        dataset.raw_examples["x"] *= 0.5


def test_lists_of_different_lengths_are_copied():
    ragged = np.empty(2, object)
    ragged[:] = [[1], [2, 3]]

    def append(examples):
        examples["x"][0].append(9)
        return {"n": np.array([len(row) for row in examples["x"]])}

    clients = fed.InMemoryFederatedData({"a": {"x": ragged}}).preprocess_client(lambda i, examples: append(examples))
    for _ in range(2):
        np.testing.assert_array_equal(clients.get_client("a").raw_examples["n"], [2, 2])


@pytest.mark.default_cases("auto-build_weighted_fed_avg", "debug-build_mime")
@pytest.mark.parametrize("build", [fed.build_weighted_fed_avg, fed.build_mime])
@pytest.mark.parametrize("execution", ["auto", "debug"])
def test_rounds_see_the_same_examples(build, execution):
    model = fed.create_model_from_fn(
        {"w": np.zeros(2, np.float32)}, lambda p, batch: batch["x"] @ p["w"] + batch["x"][:, 0], lambda batch, out: out
    )
    datasets = [fed.ClientDataset(stored(), data.BatchPreprocessor([in_place]))]
    process = build(model, optax.sgd(0.0), client_batching=fed.BatchHParams(2), client_execution=execution)
    state = process.initialize()
    for _ in range(3):
        state, metrics = process.next(state, datasets)
        assert float(metrics["client_work"]["train"]["loss"]) == 1


def test_datasets_with_equal_functions_are_pooled():
    clients = fed.InMemoryFederatedData({"a": stored(), "b": stored()}).preprocess_batch(assigned)
    subset = fed.SubsetFederatedData(clients, ["a", "b"])
    assert len(list(data.padded_batch_federated_data(subset, batch_size=4))) == 3
