"""Replies that hostile clients send: each is refused, and the round goes on."""

import io
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated import flower

from . import apps
from .test_flower import Grid, _in_a_run, _in_order_of_nodes, _run, _same_round  # noqa: F401

HOSTILE = 1000 - 7


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def announcing(shape, data=b""):
    """Return an array's bytes whose header announces a shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def raw(data, shape=(6, 3), dtype="float32"):
    return Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)


def with_array(name, array):
    def change(content):
        record = content.array_records["arrays"]
        arrays = {**record, name: array} if array is not None else {k: v for k, v in record.items() if k != name}
        content["arrays"] = ArrayRecord(arrays)

    return change


def with_metric(name, value):
    def change(content):
        metrics = dict(content.metric_records["metrics"])
        metrics.pop(name, None)
        content["metrics"] = MetricRecord({**metrics, **({} if value is None else {name: value})})

    return change


def without(record):
    def change(content):
        del content[record]

    return change


W = "['w']"
FINE = np.zeros((6, 3), np.float32)
REPLIES = {
    "no arrays": without("arrays"),
    "no metrics": without("metrics"),
    "no statistics": without("non-trainable"),
    "an array less": with_array(W, None),
    "an array more": with_array("v", Array(FINE)),
    "another shape": with_array(W, Array(np.zeros((3, 6), np.float32))),
    "more dimensions": with_array(W, Array(np.zeros((1,) * 32, np.float32))),
    "integers": with_array(W, Array(np.zeros((6, 3), np.int32))),
    "complex": with_array(W, Array(np.zeros((6, 3), np.complex64))),
    "text": with_array(W, raw(npy(np.full((6, 3), "abc")))),
    "a pickle": with_array(W, raw(npy(np.full((6, 3), None)))),
    "4 TiB": with_array(W, raw(announcing((1 << 40,)), (1 << 40,))),
    "4 TiB of the model's": with_array(W, raw(announcing((6, 3)) + b"\0" * 100)),
    "truncated": with_array(W, raw(npy(FINE)[:-1])),
    "no array": with_array(W, raw(b"PK\x03\x04")),
    "nothing": with_array(W, raw(b"")),
    "a header of code": with_array(W, raw(announcing("__import__('os')"))),
    "NaN": with_array(W, Array(FINE * np.nan)),
    "infinity": with_array(W, Array(FINE + np.float32(np.inf))),
    "3e38": with_array(W, Array(FINE + np.float32(3e38))),
    "1e300": with_array(W, Array(FINE.astype(np.float64) + 1e300)),
    "no examples": with_metric("num-examples", None),
    "a list of examples": with_metric("num-examples", [1.0, 2.0]),
    "negative examples": with_metric("num-examples", -19.999),
    "1e38 examples": with_metric("num-examples", 1e38),
    "infinite examples": with_metric("num-examples", float("inf")),
    "NaN examples": with_metric("num-examples", float("nan")),
    "a list as a metric": with_metric("loss", [0.1, 0.2]),
    "NaN as a metric": with_metric("loss", float("nan")),
    "a list of steps": with_metric("steps", [1]),
}


class HostileGrid(Grid):
    """One node's replies are changed."""

    def __init__(self, datasets, change, kind="train"):
        super().__init__(datasets)
        self._change, self._kind = change, kind

    def send_and_receive(self, messages, *, timeout=None):
        replies = super().send_and_receive(messages, timeout=timeout)
        for message in replies:
            if message.metadata.src_node_id == HOSTILE and message.metadata.message_type == self._kind:
                self._change(message.content)
        return replies


@pytest.mark.parametrize("name", REPLIES)
def test_a_hostile_reply_is_refused(name):
    """The others' round is that without the client, which is counted and named."""
    datasets = apps.clients(3)
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), evaluate=False)
    weights, result = _run(strategy, HostileGrid(datasets, REPLIES[name]), num_rounds=1)
    ordered = _in_order_of_nodes(datasets)
    ordered[1] = None
    _same_round(weights, ordered)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["clients/refused"] == 1 and metrics["clients/refused_nodes"] == [HOSTILE]
    assert metrics["clients/participated"] == 2


def test_a_second_reply_of_a_node_is_none_of_the_round():
    class Twice(Grid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            return [*replies, *replies]

    datasets = apps.clients(2)
    weights, result = _run(flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator()), Twice(datasets), 1)
    _same_round(weights, _in_order_of_nodes(datasets))
    assert result.train_metrics_clientapp[1]["clients/failed"] == 2


def test_a_round_of_refused_clients_changes_nothing():
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), min_available_nodes=1)
    weights, _ = _run(strategy, HostileGrid(apps.clients(2)[:2], REPLIES["NaN"]), num_rounds=1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights))


@pytest.mark.parametrize("name", ["no metrics", "a list as a metric", "no examples", "NaN as a metric"])
def test_a_hostile_evaluation_is_left_out(name):
    datasets = apps.clients(2)
    strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator())
    _, result = _run(strategy, HostileGrid(datasets, REPLIES[name], "evaluate"), num_rounds=1)
    assert np.isfinite(result.evaluate_metrics_clientapp[1]["loss"])


PLAIN = fed.create_model_from_fn({"w": np.zeros((6, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], apps.LOSS)


def replied(strategy, grid, change=lambda content: None):
    """Return the strategy's result for replies of zeros."""
    content = flower.to_arrays(PLAIN.init(jax.random.key(0)))
    messages = list(strategy.configure_train(1, content, apps.empty_config(), grid))
    replies = []
    for message in messages:
        records = RecordDict({"arrays": flower.to_arrays({"w": jnp.zeros((6, 3))}), "non-trainable": ArrayRecord()})
        records["metrics"] = MetricRecord({"num-examples": 1.0, "steps": 1, "loss": 0.25})
        change(records)
        replies.append(Message(records, reply_to=message))
    arrays, metrics = strategy.aggregate_train(1, replies)
    return arrays[next(iter(arrays))].numpy(), dict(metrics), messages


def private(key):
    factory = agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, 1.0)
    return flower.BlocksStrategy(PLAIN, aggregator=factory, key=key)


def test_noise_is_independent_of_the_key_and_metrics_are_covered():
    """Equal keys, equal messages: other noise."""
    key = jax.random.key(271828)
    (first, metrics, sent), (second, _, again) = (replied(private(key), Grid(apps.clients(3))) for _ in range(2))
    assert [list(m.content["config"]["key"]) for m in sent] == [list(m.content["config"]["key"]) for m in again]
    assert np.abs(first - second).min() > 0
    assert set(metrics) == {"aggregator/clipping_norm", "aggregator/noise_stddev"}
    strategy = private(key)
    replied(strategy, Grid(apps.clients(3)))
    assert strategy.not_private["loss"] == 0.25 and strategy.not_private["clients"]["participated"] == 3


def test_statistics_under_privacy_raise():
    with pytest.raises(InputError, match=r"statistics .* leave the clients without it"):
        flower.BlocksStrategy(apps.MODEL, aggregator=agg.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 3, 1.0))
