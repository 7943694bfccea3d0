"""Federated averaging of a plain JAX loss.

Source: TFF, build_jax_federated_averaging_process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import UnweightedMeanFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.compose import LearningState, build_add_finalizer, compose_learning_process
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import MeanStat
from tf2jax_lite.learning.model import Model, TrainOutput
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights, PyTree
from tf2jax_lite.support.errors import DataError, InputError


def _has_form(kind: Any) -> bool:
    return not isinstance(kind, type) and hasattr(kind, "shape") and hasattr(kind, "dtype")


def _is_pair(kind: Any) -> bool:
    """Return whether ``kind`` is ``(dtype, shape)``, not a pair of types."""
    if not (isinstance(kind, tuple) and len(kind) == 2 and isinstance(kind[1], tuple | list)):
        return False
    return all(size is None or isinstance(size, int) for size in kind[1]) and not isinstance(kind[0], tuple | list)


class _State(LearningState):
    """The server's state, whose items by name are those of the params.

    It may stand for the model, which is the only state in TFF.
    """

    __slots__ = ()

    def __getitem__(self, name: Any) -> Any:
        return self.params[name] if isinstance(name, str) else super().__getitem__(name)


class _Output(LearningProcessOutput):
    """A round's result. Its items by name are those of its state."""

    __slots__ = ()

    def __getitem__(self, name: Any) -> Any:
        return self.state[name] if isinstance(name, str) else super().__getitem__(name)


@dataclasses.dataclass(frozen=True)
class _Form:
    """A type of arrays with sizes of None, which JAX's struct rejects since 0.11."""

    shape: tuple[int | None, ...]
    dtype: Any


def _form(kind: Any) -> _Form:
    try:
        if _has_form(kind):
            return _Form(tuple(kind.shape), kind.dtype)
        dtype, shape = kind if _is_pair(kind) else (kind, ())
        return _Form(tuple(shape), np.dtype(dtype))
    except TypeError as error:
        raise InputError(
            f"a type is a dtype, a pair (dtype, shape), or has shape and dtype (jax.ShapeDtypeStruct); got {kind!r}"
        ) from error


def build_jax_federated_averaging_process(
    batch_type: Mapping[str, Any],
    model_type: PyTree,
    loss_fn: Callable[[PyTree, Mapping[str, Any]], Any],
    step_size: float,
) -> LearningProcess[LearningState]:
    """Build federated averaging of a plain JAX loss.

    Weights start at zero, clients do a step of SGD per batch, the mean is unweighted.

    Args:
      batch_type: feature to the type of a batch's array: anything with shape and dtype, or a pair (dtype, shape); None
        for a size left open.
      model_type: pytree of types: the same, or a dtype for a scalar.
      loss_fn: ``(model, batch) -> scalar``.
      step_size: learning rate of the clients' SGD.

    Returns:
      The process. Clients in ``client_data`` are iterables of ready batches. As in TFF, its state and its output may
      stand for a model that is a dict: ``loss_fn(state, batch)``, ``process.next(output, client_data)``.

    Raises:
      InputError: a type that is none; when a round runs, DataError: a batch that is not of ``batch_type``.
    """
    check_number("build_jax_federated_averaging_process", "step_size", step_size)
    if not isinstance(batch_type, Mapping):
        raise InputError(f"batch_type is a dict from feature to type, not {type(batch_type).__name__}")
    shapes = jax.tree.map(_form, model_type, is_leaf=lambda leaf: _has_form(leaf) or _is_pair(leaf))
    features = {name: _form(kind) for name, kind in batch_type.items()}

    def check(batch: Mapping[str, Any]) -> None:
        for name, kind in features.items():
            value = batch.get(name)
            found = None if value is None else (tuple(value.shape), np.dtype(value.dtype))
            wanted = tuple(kind.shape)
            fits = found is not None and len(found[0]) == len(wanted)
            fits = fits and all(w is None or w == f for w, f in zip(wanted, found[0], strict=True))  # type: ignore[index]
            if not fits or found[1] != jax.dtypes.canonicalize_dtype(kind.dtype):  # type: ignore[index]
                raise DataError(f"a batch's {name!r} is {found}; batch_type says {wanted}, {kind.dtype}")

    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> Any:
        return message.trainable, MeanStat(jnp.float32(0), jnp.int32(0))

    def client_step(state: Any, message: ModelWeights, carry: Any, batch: Mapping[str, Any]) -> Any:
        check(batch)
        loss, grads = jax.value_and_grad(loss_fn)(carry[0], batch)
        stat = MeanStat(carry[1].accum + loss.astype(jnp.float32), carry[1].weight + 1)
        return jax.tree.map(lambda w, g: w - jnp.asarray(step_size, w.dtype) * g, carry[0], grads), stat

    def client_final(state: Any, message: ModelWeights, carry: Any) -> ClientResult:
        return ClientResult(optax.tree.sub(message.trainable, carry[0]), jnp.float32(1), [], {"loss": carry[1]})

    # The loss is one number a batch: which of its examples are padding could not be said, so batches are not padded.
    work = ClientWork(lambda: (), client_init, client_step, client_final, pads_batches=False)

    def zeros(key: Any) -> ModelWeights:
        return ModelWeights(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), ())

    def refuse(*args: Any) -> TrainOutput:
        raise InputError("a process of build_jax_federated_averaging_process has a loss, and no predictions")

    model = Model(zeros, refuse, refuse, refuse)  # type: ignore[arg-type]
    process = compose_learning_process(
        model, client_work=work, aggregator=UnweightedMeanFactory(), finalizer=build_add_finalizer()
    )

    def initialize(key: Any = None, *, params: Any = None) -> _State:
        return _State(*process.initialize(key, params=params))

    def next_fn(state: Any, client_data: Sequence[Any]) -> _Output:
        found = process.next(state.state if isinstance(state, _Output) else state, client_data)
        return _Output(_State(*found.state), found.metrics)

    return dataclasses.replace(process, initialize=initialize, next=next_fn)
