"""Weights that stay with clients: personal layers, batch norm in FedBN.

Sources: Li et al. 2021 (FedBN), Arivazhagan et al. 2019 (FedPer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.models.model import Model, changing_leaves, check_model
from tf2jax_lite.federated.templates.by_client import ByClient
from tf2jax_lite.federated.templates.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.templates.process import ModelWeights
from tf2jax_lite.support.errors import InputError

PyTree = Any


class _Carry(NamedTuple):
    inner: PyTree
    own: PyTree


def _names(tree: PyTree) -> list[str]:
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]


def _chosen(tree: PyTree, is_local: Callable[[str], bool]) -> dict[str, Any]:
    return {name: leaf for name, leaf in zip(_names(tree), jax.tree.leaves(tree), strict=True) if is_local(name)}


def _replaced(tree: PyTree, own: Mapping[str, Any]) -> PyTree:
    leaves = [own.get(name, leaf) for name, leaf in zip(_names(tree), jax.tree.leaves(tree), strict=True)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def with_local_weights(
    model: Model, work: ClientWork, is_local: Callable[[str], bool], key: Any = None
) -> tuple[ClientWork, ByClient]:
    """Return client work with local weights, and the clients' first ones.

    Local weights stay with each client. The server's local weights are unchanged. Pass both results to
    `compose_learning_process`, the second as ``client_states``.

    Args:
      model: the model.
      work: client work on that model, such as `build_model_delta_client_work` returns.
      is_local: ``(name) -> bool``; names are paths in the pytrees of trainable and of non-trainable weights, with
        slashes.
      key: a JAX key for the first weights; key 0 by default.

    Raises:
      InputError: no weight is local, or it is not a model.
    """
    model = check_model(model)
    shapes = model.shapes
    if not any(is_local(name) for part in shapes for name in _names(part)):
        names = [name for part in shapes for name in _names(part)]
        raise InputError(f"with_local_weights: no weight is local; there are {', '.join(names[:10])}")
    first = model.init(jax.random.key(0) if key is None else key)
    start = {kind: _chosen(part, is_local) for kind, part in zip(ModelWeights._fields, first, strict=True)}
    flags = changing_leaves(model, shapes.non_trainable)
    changing = [name for name, flag in zip(_names(shapes.non_trainable), flags, strict=True) if flag]

    def client_init(state: Any, message: ModelWeights, key: Any, own: Any) -> _Carry:
        own = jax.tree.map(jnp.asarray, start if own is None else own)
        return _Carry(work.client_init(state, _merged(message, own), key, None), own)

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        return carry._replace(inner=work.client_step(state, _merged(message, carry.own), carry.inner, batch))

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        found = work.client_final(state, _merged(message, carry.own), carry.inner)
        moved = _chosen(found.update, is_local)
        changes = {n: c for n, c in zip(changing, found.non_trainable, strict=True) if is_local(n)}
        own = {kind: dict(part) for kind, part in carry.own.items()}
        for kind, more in (("trainable", moved), ("non_trainable", changes)):
            own[kind] |= {
                name: (own[kind][name] - change).astype(own[kind][name].dtype) for name, change in more.items()
            }
        return found._replace(
            update=_replaced(found.update, jax.tree.map(jnp.zeros_like, moved)),
            non_trainable=[
                jnp.zeros_like(change) if name in changes else change
                for name, change in zip(changing, found.non_trainable, strict=True)
            ],
            output=own,
        )

    local = dataclasses.replace(work, client_init=client_init, client_step=client_step, client_final=client_final)
    return local, ByClient(start)


def _merged(weights: ModelWeights, own: Mapping[str, Any]) -> ModelWeights:
    return ModelWeights(*(_replaced(getattr(weights, kind), own[kind]) for kind in ModelWeights._fields))


def local_model_weights(state: Any, client_id: Any) -> ModelWeights:
    """Return a client's model: the server's weights with the client's local ones.

    Args:
      state: the state of a process with `with_local_weights`.
      client_id: the client; one that never took part has the first weights.
    """
    return _merged(state.weights, state.clients.of(client_id))
