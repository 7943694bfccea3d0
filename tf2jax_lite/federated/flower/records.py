"""Arrays and replies of Flower's clients, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flwr.app import Array, ArrayRecord, Message

from tf2jax_lite.federated.aggregators.base import MAX_WEIGHT
from tf2jax_lite.federated.client_work import ClientResult, non_trainable_delta
from tf2jax_lite.federated.compose import Server
from tf2jax_lite.learning.model import Model, changing_values
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.npz import read_npy

# Names of the records in a message; those of Flower's own strategies.
WEIGHTS, CONFIG, METRICS = "arrays", "config", "metrics"
NON_TRAINABLE = "non-trainable"
# Values of a training message's "reply". The first names the sign: a server and a client of other signs raise an error.
UPDATE, NEW_WEIGHTS = "initial-minus-final", "new-weights"


def array_names(tree: PyTree) -> list[str]:
    """Return the names of a pytree's arrays in a record, in order."""
    return [_name(path) for path, _ in jax.tree.leaves_with_path(tree)]


def to_arrays(tree: PyTree) -> ArrayRecord:
    """Return a pytree's leaves as a record, each named by its path.

    Dtypes that numpy lacks (bfloat16) become float32, which holds them exactly; typed JAX keys become their words.
    """
    named = zip(array_names(tree), jax.tree.leaves(tree), strict=True)
    return ArrayRecord({name: Array(_encode(leaf)) for name, leaf in named})


def from_arrays(record: Any, template: PyTree, where: str = "the record") -> PyTree:
    """Return a record's arrays as a pytree.

    Args:
      record: the result of `to_arrays` for a pytree of the template's form, or a Flower strategy's aggregate of them.
      template: pytree of arrays or jax.ShapeDtypeStruct: structure, shapes and dtypes of the result.
      where: the location in error messages.

    Raises:
      InputError: names or shapes differ.
    """
    (leaves, treedef), names = jax.tree.flatten(template), array_names(template)
    if set(names) != set(record):
        missing, extra = sorted(set(names) - set(record)), sorted(set(record) - set(names))
        raise InputError(f"{where} is not of this model: arrays {missing[:5]} are missing, {extra[:5]} are unknown")
    decoded = [
        _decode(record[name].numpy(), leaf, f"{where}, array {name}") for name, leaf in zip(names, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, decoded)


def scalars(tree: PyTree) -> dict[str, Any]:
    """Return a pytree's numbers by path (``aggregator/clipped``), without arrays."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if jnp.ndim(leaf) == 0 and jnp.issubdtype(jnp.result_type(leaf), jnp.number):
            found["/".join(str(_key(part)) for part in path)] = float(leaf)
    return found


def _key(part: Any) -> Any:
    for name in ("key", "name", "idx"):
        if hasattr(part, name):
            return getattr(part, name)
    return part


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path) or "value"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) if hasattr(leaf, "dtype") else False


def _encode(leaf: Any) -> np.ndarray:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return array.astype(np.float32) if array.dtype.kind == "V" else np.array(array)


def _decode(array: np.ndarray, leaf: Any, where: str) -> Any:
    if _is_key(leaf):
        # A strategy's mean of keys would be no key; the words themselves are.
        return jax.random.wrap_key_data(jnp.asarray(array.astype(np.uint32)))
    if array.shape != jnp.shape(leaf):
        raise InputError(f"{where} has shape {list(array.shape)} where the model has {list(jnp.shape(leaf))}")
    with np.errstate(over="ignore"):  # wider numbers become infinite, and are refused as such
        return jnp.asarray(array.astype(jnp.result_type(leaf)))


def content_of(record: Mapping[str, Any], kind: str, name: str, where: str) -> Any:
    """Return a message's record: the one of that name, or the only one of its kind.

    Raises:
      InputError: it is not there.
    """
    records = getattr(record, kind)
    if name in records:
        return records[name]
    if name == WEIGHTS and len(records) == 1:
        return next(iter(records.values()))
    raise InputError(f"{where} has no record {name!r}; it has {sorted(records)}")


def composed(process: LearningProcess) -> Server:
    """Return the server's part of a process whose clients may be real ones.

    Raises:
      InputError: the process is not composed of blocks, or its clients work twice in a round.
    """
    if not isinstance(process.server, Server) or process.server.blocks.survey is not None:
        raise InputError(
            "Flower trains processes whose clients work once in a round, and all with the same weights: fed_avg, "
            "scaffold, apfl and others, or compose_learning_process without a survey."
        )
    return process.server


def message_form(server: Server) -> PyTree:
    """Return the shapes of the message to clients."""

    def message(weights: ModelWeights) -> PyTree:
        return server.begin(server.first_state(jax.random.key(0), weights)._replace(clients=()))[1].message

    return jax.eval_shape(message, server.blocks.model.shapes)


def weights_of(message: PyTree) -> ModelWeights:
    """Return the weights in a message to clients."""
    leaves = jax.tree.leaves(message, is_leaf=lambda part: isinstance(part, ModelWeights))
    return next(part for part in leaves if isinstance(part, ModelWeights))


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


def train_reply(message: Message, model: Model, form: PyTree, reply: str, sent: ModelWeights) -> Reply:
    """Return a client's reply to a training message.

    Args:
      message: the reply.
      model: the model.
      form: the shapes of an update.
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
        update = _arrays(message, WEIGHTS, form, where)
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
