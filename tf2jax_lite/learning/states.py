"""Training states: values by client, named arrays, placement on a device.

A program that calls an export of ``jax.export`` (an artifact's StableHLO) returns arrays that are *committed* to their
device; new arrays are not, and JAX compiles a program again if an argument changes from one to the other. With a
committed initial state, each program of a round is compiled once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.export.plain_dtypes import to_plain
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.support.errors import CheckpointError, InputError
from tf2jax_lite.support.limits import reading


@jax.tree_util.register_pytree_node_class
class ByClient(Mapping[Hashable, PyTree]):
    """State per client on the server.

    An immutable mapping from client ids, in order of insertion.

    Args:
      like: the state of a client without an entry; entries have its structure, shapes and dtypes.
      entries: id to entry.
    """

    def __init__(self, like: PyTree, entries: Mapping[Hashable, PyTree] | None = None):
        self.like = like
        self._entries = dict(entries or {})

    def __getitem__(self, client_id: Hashable) -> PyTree:
        return self._entries[client_id]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"ByClient({len(self)} clients)"

    def of(self, client_id: Hashable) -> PyTree:
        """Return a client's entry, or the default for clients without one."""
        return self._entries.get(client_id, self.like)

    def updated(self, entries: Mapping[Hashable, PyTree]) -> ByClient:
        """Return a mapping with these entries added or replaced."""
        return ByClient(self.like, {**self._entries, **entries})

    def tree_flatten(self) -> tuple[Any, tuple[Hashable, ...]]:
        """Return children and ids, for JAX."""
        return (self.like, *self._entries.values()), tuple(self._entries)

    @classmethod
    def tree_unflatten(cls, ids: tuple[Hashable, ...], children: Any) -> ByClient:
        """Put children and ids together again, for JAX."""
        like, *entries = children
        return cls(like, dict(zip(ids, entries, strict=True)))


def commit_to_device(state: Any) -> Any:
    """Return a state whose arrays are committed to a device.

    Args:
      state: a pytree. If some of its arrays are committed to one device, the others are moved there; if none is, all
        are committed to the device of the first. Arrays on several devices and tracers are unchanged.

    Returns:
      The state; arrays that are already on the device are not copied.
    """
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    if any(is_traced(leaf) for leaf in arrays):
        return state
    loose = [leaf for leaf in arrays if not leaf.committed]
    fixed = {device for leaf in arrays if leaf.committed for device in leaf.devices()}
    devices = fixed or (loose[0].devices() if loose else set())
    if not loose or len(devices) != 1:
        return state
    (device,) = devices
    return jax.tree.map(
        lambda leaf: jax.device_put(leaf, device) if isinstance(leaf, jax.Array) and not leaf.committed else leaf, state
    )


def beside(tree: Any, others: Any) -> Any:
    """Return a tree whose arrays are on the device of others, if that is one."""
    devices = {device for leaf in jax.tree.leaves(others) if isinstance(leaf, jax.Array) for device in leaf.devices()}
    return jax.device_put(tree, *devices) if len(devices) == 1 else tree


def placed(tree: PyTree, shardings: PyTree) -> PyTree:
    """Return arrays with shardings.

    Args:
      tree: arrays that this process holds; of several processes, all hold the same.
      shardings: of each array.
    """

    def place(leaf: Any, sharding: jax.sharding.Sharding) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, tree, shardings)


SEPARATOR = "/"
_IDS = "ids"


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _named_leaves(state: PyTree) -> list[tuple[str, Any]]:
    """Return leaves by path; a `ByClient` counts as one."""
    found = jax.tree.leaves_with_path(state, is_leaf=lambda leaf: isinstance(leaf, ByClient))
    named = [(jax.tree_util.keystr(path, simple=True, separator=SEPARATOR), leaf) for path, leaf in found]
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the state has two leaves named {twice!r}; a checkpoint cannot tell them apart")
    return named


def state_arrays(state: PyTree) -> dict[str, np.ndarray]:
    """Return a state's arrays by path, without those across processes.

    JAX keys become their numbers, a `ByClient` stacked arrays and its ids.

    Raises:
      InputError: two leaves have one path, or a client's id cannot be stored; see `id_json`.
    """
    found: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(state):
        if _is_across_processes(leaf):
            continue
        if not isinstance(leaf, ByClient):
            found[name] = _numbers(leaf)
            continue
        found[f"{name}/{_IDS}"] = np.frombuffer(json.dumps([id_json(i) for i in leaf]).encode(), np.uint8)
        entries = [state_arrays(entry) for entry in leaf.values()]
        for part in entries[0] if entries else ():
            found[f"{name}/of/{part}"] = np.stack([entry[part] for entry in entries])
    return found


class StoredShard(NamedTuple):
    """A shard of an array across processes.

    Attributes:
      leaf: the array's name.
      shape: the array's.
      dtype: the array's, by name.
      begin: where the shard begins, by dimension.
      end: where it ends.
      value: its elements.
    """

    leaf: str
    shape: tuple[int, ...]
    dtype: str
    begin: list[int]
    end: list[int]
    value: np.ndarray


def _is_across_processes(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def stored_shards(state: PyTree) -> dict[str, StoredShard]:
    """Return the shards of a state's arrays across processes that this process stores."""
    found = dict[str, StoredShard]()
    for name, leaf in _named_leaves(state):
        if _is_across_processes(leaf):
            for shard in leaf.addressable_shards:
                if shard.replica_id == 0:
                    bounds = [part.indices(size)[:2] for part, size in zip(shard.index, leaf.shape, strict=True)]
                    begin, end = [low for low, _ in bounds], [high for _, high in bounds]
                    value = np.asarray(shard.data)
                    found[f"__shard__/{len(found)}"] = StoredShard(name, leaf.shape, leaf.dtype.name, begin, end, value)
    return found


def state_names(state: PyTree) -> list[str]:
    """Return the names of `state_arrays`, of a state whose `ByClient`s have entries.

    Raises:
      InputError: two leaves have one path, or one cannot be stored.
    """
    found = []
    for name, leaf in _named_leaves(state):
        if isinstance(leaf, ByClient):
            found += [f"{name}/{_IDS}", *(f"{name}/of/{part}" for part in state_names(leaf.like))]
            continue
        found.append(name)
        if not isinstance(leaf, jax.Array):
            try:
                to_plain(np.asarray(leaf))
            except ValueError as error:
                raise InputError(f"a checkpoint cannot store the state's {name!r}: {error}") from error
    return found


def id_json(client_id: Hashable) -> Any:
    """Return a client's id as JSON; `_id_of` returns an equal id.

    Raises:
      InputError: it is not text, bytes, a number, or a tuple of these.
    """
    plain = client_id.item() if isinstance(client_id, np.generic) else client_id
    if isinstance(plain, bytes):
        return {"bytes": plain.hex()}
    if isinstance(plain, tuple):
        return [id_json(part) for part in plain]
    if isinstance(plain, str | int) or (isinstance(plain, float) and math.isfinite(plain)):
        return plain
    raise InputError(f"a checkpoint keeps client ids that are text, bytes, numbers or tuples of these, not {plain!r}")


def _id_of(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return tuple(map(_id_of, value)) if isinstance(value, list) else value


def restored_state(template: PyTree, arrays: Mapping[str, Any]) -> PyTree:
    """Put a state together again.

    Args:
      template: a new state of the same training; its structure, shapes, dtypes and kinds of keys.
      arrays: the result of `state_arrays`; arrays across processes have shape, dtype, and their parts by index.

    Raises:
      CheckpointError: an array is missing, has another shape or dtype, or is not of such a state.
    """
    rest = dict(arrays)
    leaves = []
    for name, leaf in _named_leaves(template):
        if isinstance(leaf, ByClient):
            leaves.append(_restored_clients(name, leaf, rest))
        else:
            leaves.append(_restored_leaf(name, leaf, rest.pop(name, None)))
    if rest:
        # Dropping them silently would make a resumed run another one.
        raise CheckpointError(f"the checkpoint has {min(rest)!r}, which a new state of this training has not")
    form = jax.tree.structure(template, is_leaf=lambda leaf: isinstance(leaf, ByClient))
    return jax.tree.unflatten(form, leaves)


def _restored_leaf(name: str, leaf: Any, value: Any) -> Any:
    if value is None:
        raise CheckpointError(f"the checkpoint lacks {name!r}: it is of another algorithm or model")
    raw = jax.random.key_data(leaf) if _is_key(leaf) else leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    if value.dtype != raw.dtype or value.shape != raw.shape:
        raise CheckpointError(f"the checkpoint's {name!r} is {value.dtype}{value.shape}, not {raw.dtype}{raw.shape}")
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, jax.sharding.NamedSharding) and not _is_key(leaf):
        return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)
    array = jnp.asarray(value[(slice(None),) * len(value.shape)])
    return jax.random.wrap_key_data(array, impl=str(jax.random.key_impl(leaf))) if _is_key(leaf) else array


def _restored_clients(name: str, leaf: ByClient, arrays: dict[str, np.ndarray]) -> ByClient:
    ids = arrays.pop(f"{name}/{_IDS}", None)
    if ids is None:
        raise CheckpointError(f"the checkpoint lacks {name + '/' + _IDS!r}: it is of another algorithm")
    with reading(f"the checkpoint's {name!r}", CheckpointError):
        known = [_id_of(value) for value in json.loads(ids.tobytes())]
    prefix = f"{name}/of/"
    stacked = {key.removeprefix(prefix): arrays.pop(key) for key in list(arrays) if key.startswith(prefix)}
    if any(len(value) != len(known) for value in stacked.values()):
        raise CheckpointError(
            f"the checkpoint's {name!r} contradicts itself: it has {len(known)} ids and other numbers of entries"
        )
    entries = {
        client_id: jax.device_get(restored_state(leaf.like, {part: value[row] for part, value in stacked.items()}))
        for row, client_id in enumerate(known)
    }
    return ByClient(leaf.like, entries)
