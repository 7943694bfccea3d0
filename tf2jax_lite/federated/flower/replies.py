"""Replies of clients, checked so that none can end or ruin a training."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flwr.app import Message

from tf2jax_lite.federated._utils.screening import MAX_WEIGHT
from tf2jax_lite.federated.flower.records import (
    METRICS,
    NON_TRAINABLE,
    UPDATE,
    WEIGHTS,
    array_names,
    content_of,
    from_arrays,
)
from tf2jax_lite.federated.models.model import Model, changing_values
from tf2jax_lite.federated.templates.client_work import ClientResult, non_trainable_delta
from tf2jax_lite.federated.templates.process import ModelWeights
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.npz import read_npy

PyTree = Any


class Reply(NamedTuple):
    """A client's reply to a message of training or evaluation.

    Attributes:
      weight: the client's weight in means, from 0 to `MAX_WEIGHT`.
      metrics: finite numbers by name.
      result: the client's result; None of an evaluation.
    """

    weight: float
    metrics: dict[str, float]
    result: ClientResult | None


def train_reply(message: Message, model: Model, reply: str, sent: ModelWeights) -> Reply:
    """Return a client's reply to a training message.

    Args:
      message: the reply.
      model: the model.
      reply: the kind that was asked for, `UPDATE` or `NEW_WEIGHTS`.
      sent: the weights that the client got.

    Raises:
      InputError: the reply is not of this model, or not usable.
    """
    where = _where(message)
    weight, metrics = _numbers(message, where)
    template = model.shapes
    changing = changing_values(model, template.non_trainable)
    if reply == UPDATE:
        update = _arrays(message, WEIGHTS, template.trainable, where)
        moved = _arrays(message, NON_TRAINABLE, changing, where)
    else:
        new = _arrays(message, WEIGHTS, template, where)
        update = optax.tree.sub(sent.trainable, new.trainable)
        moved = non_trainable_delta(model, sent, changing_values(model, new.non_trainable))
    return Reply(weight, metrics, ClientResult(update, jnp.float32(weight), moved, {}))


def evaluate_reply(message: Message) -> Reply:
    """Return a client's reply to an evaluation message.

    Raises:
      InputError: a metric is not a finite number, or its weight is none or out of range.
    """
    return Reply(*_numbers(message, _where(message)), None)


def _where(message: Message) -> str:
    return f"the reply of node {message.metadata.src_node_id}"


def _numbers(message: Message, where: str) -> tuple[float, dict[str, float]]:
    """Return the client's weight and its metrics."""
    found = dict(content_of(message.content, "metric_records", METRICS, where))
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{where}: the metric {name!r:.80} is {value!r:.80}, not a finite number")
    if "num-examples" not in found:
        raise InputError(f"{where} has no metric 'num-examples'")
    weight = float(found.pop("num-examples"))
    if not 0 <= weight <= MAX_WEIGHT:
        raise InputError(f"{where}: 'num-examples' is {weight:g}, not from 0 to {MAX_WEIGHT:g}")
    return weight, {name: float(value) for name, value in found.items()}


def _arrays(message: Message, name: str, template: PyTree, where: str) -> PyTree:
    """Return a record's arrays; each must be the template's before it is read."""
    record = content_of(message.content, "array_records", name, where)
    expected = dict(zip(array_names(template), jax.tree.leaves(template), strict=True))
    found = {}
    for key in expected.keys() & record.keys():
        kind = np.dtype(jnp.result_type(expected[key])).kind.replace("V", "f")  # bfloat16 travels as float32
        found[key] = _Decoded(read_npy(record[key].data, jnp.shape(expected[key]), kind, f"{where}, array {key}"))
    return from_arrays({**dict.fromkeys(record.keys() - found.keys()), **found}, template, where)


class _Decoded(NamedTuple):
    """An array as records hold them."""

    value: np.ndarray

    def numpy(self) -> np.ndarray:
        return self.value
