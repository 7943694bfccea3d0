"""FedJAX's names of data sets, samplers and batches."""

from __future__ import annotations

import functools
import types

import numpy as np

from tf2jax_lite import federated as fed
from tf2jax_lite.learning.data import examples as checks
from tf2jax_lite.learning.data.client_dataset import last_batch_size
from tf2jax_lite.learning.data.federated_data import buffered_shuffle


def seeded(function):
    """``seed=n`` is ``seed=np.random.RandomState(n)``."""

    @functools.wraps(function)
    def call(*args, **given):
        if given.get("seed") is not None:
            given["seed"] = np.random.RandomState(given["seed"])
        return function(*args, **given)

    return call


class ClientDataset(fed.ClientDataset):
    shuffle_repeat_batch = seeded(fed.ClientDataset.shuffle_repeat_batch)


def attach_mask(examples, mask):
    if fed.EXAMPLE_MASK_KEY in examples:
        raise ValueError
    return examples | {fed.EXAMPLE_MASK_KEY: mask}


client_datasets = types.SimpleNamespace(
    EXAMPLE_MASK_KEY=fed.EXAMPLE_MASK_KEY,
    BatchPreprocessor=fed.BatchPreprocessor,
    NoOpBatchPreprocessor=fed.NoOpBatchPreprocessor,
    ClientDataset=ClientDataset,
    BatchHParams=fed.BatchHParams,
    PaddedBatchHParams=fed.PaddedBatchHParams,
    ShuffleRepeatBatchHParams=seeded(fed.ShuffleRepeatBatchHParams),
    num_examples=lambda examples: len(fed.ClientDataset(examples)),
    slice_examples=lambda examples, index: fed.ClientDataset(examples)[index].raw_examples,
    attach_mask=attach_mask,
    pad_examples=checks.pad_examples,
    concat_examples=lambda parts: checks.concat_examples(list(parts)),
    padded_batch_client_datasets=fed.padded_batch_client_datasets,
    buffered_shuffle=buffered_shuffle,
    buffered_shuffle_batch_client_datasets=fed.buffered_shuffle_batch_client_datasets,
    _pick_final_batch_size=last_batch_size,
)


class _Names:
    """Attributes that FedJAX's tests read, by ours."""

    _preprocess_batch = property(lambda self: self._batch_fns)
    _preprocess_client = property(lambda self: self._client_fns)
    _connection = property(lambda self: self._file)
    _parse_examples = property(lambda self: getattr(self, "_parse", None))
    _client_ids = property(lambda self: self._members)

    @seeded
    def shuffled_clients(self, buffer_size, seed=None):
        return super().shuffled_clients(buffer_size, seed)


class InMemoryFederatedData(_Names, fed.InMemoryFederatedData):
    pass


class SubsetFederatedData(_Names, fed.SubsetFederatedData):
    pass


def named(kind):
    return type(kind.__name__, (_Names, kind), {})


class SQLiteFederatedData:
    @staticmethod
    def new(path, parse_examples=None):
        kind = type(fed.SQLiteFederatedData.new(path, parse_examples))
        own = kind is fed.SQLiteFederatedData
        return named(kind)(path) if own else named(kind)(path, parse_examples)


def intersect_slice_ranges(start1, stop1, start2, stop2):
    data = fed.InMemoryFederatedData({}).slice(start1, stop1).slice(start2, stop2)
    return data._start, data._stop


federated_data = types.SimpleNamespace(
    ClientId=bytes,
    ClientPreprocessor=fed.ClientPreprocessor,
    FederatedData=fed.FederatedData,
    RepeatableIterator=list,
    SubsetFederatedData=SubsetFederatedData,
    intersect_slice_ranges=intersect_slice_ranges,
    padded_batch_federated_data=fed.padded_batch_federated_data,
    shuffle_repeat_batch_federated_data=seeded(fed.shuffle_repeat_batch_federated_data),
)


def tff_sqlite_clients(path, parse_examples, split_name):
    for client_id, examples in fed.TFFSQLiteClientsIterator(path, parse_examples, split_name):
        yield client_id.decode(), fed.ClientDataset(examples)


in_memory_federated_data = types.SimpleNamespace(InMemoryFederatedData=InMemoryFederatedData)
sqlite_federated_data = types.SimpleNamespace(
    SQLiteFederatedData=SQLiteFederatedData,
    SQLiteFederatedDataBuilder=functools.partial(fed.SQLiteFederatedDataBuilder, overwrite=True),
    TFFSQLiteClientsIterator=tff_sqlite_clients,
)


def uniform_get_client_sampler(fd, num_clients, seed, start_round_num=0):
    return fed.UniformGetClientSampler(fd, num_clients, np.random.RandomState(seed), start_round_num)


def uniform_shuffled_client_sampler(shuffled_clients_iter, num_clients, start_round_num=0):
    seed = np.random.RandomState(0)
    return fed.UniformShuffledClientSampler(shuffled_clients_iter, num_clients, start_round_num, seed=seed)


client_samplers = types.SimpleNamespace(
    UniformGetClientSampler=uniform_get_client_sampler,
    UniformShuffledClientSampler=uniform_shuffled_client_sampler,
)
