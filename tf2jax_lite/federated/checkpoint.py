"""Training states on disk, by Orbax: what is restored has the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.errors import DataError, InputError

__all__ = ["Checkpoints"]

_SEPARATOR = "/"


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flat(state: Any) -> dict[str, np.ndarray]:
    """Returns a state's leaves by path; keys as their numbers."""
    found: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree.leaves_with_path(state):
        name = jax.tree_util.keystr(path, simple=True, separator=_SEPARATOR)
        if name in found:
            raise InputError(f"the state has two leaves named {name!r}; a checkpoint cannot tell them apart")
        # At least one axis: Orbax gives scalars back as Python numbers.
        found[name] = np.atleast_1d(np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf))
    return found


def _restored(template: Any, flat: Mapping[str, np.ndarray]) -> Any:
    leaves, treedef = jax.tree.flatten_with_path(template)
    found = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=_SEPARATOR)
        if name not in flat:
            raise DataError(f"the checkpoint lacks {name!r}: it is of another algorithm or model")
        raw = jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf)
        value = np.asarray(flat[name])
        if value.size != raw.size or value.dtype != raw.dtype:
            raise DataError(f"the checkpoint's {name!r} is {value.dtype}{value.shape}, not {raw.dtype}{raw.shape}")
        array = jnp.asarray(value.reshape(raw.shape))
        found.append(jax.random.wrap_key_data(array, impl=str(jax.random.key_impl(leaf))) if _is_key(leaf) else array)
    known = {jax.tree_util.keystr(path, simple=True, separator=_SEPARATOR) for path, _ in leaves}
    if more := sorted(set(flat) - known):
        # Dropping them silently would make a resumed run another one (SCAFFOLD's controls by client).
        raise DataError(f"the checkpoint has {more[0]!r}, which a new state of this training has not")
    return jax.tree.unflatten(treedef, found)


class Checkpoints:
    """Checkpoints of a training, numbered by rounds. Each appears whole or not at all.

    Args:
      directory: where they are; made if it is not there.
      max_to_keep: how many of the newest are kept.

    Raises:
      InputError: Orbax is not installed.
    """

    def __init__(self, directory: str | Path, max_to_keep: int = 2):
        try:
            import orbax.checkpoint as ocp
        except ImportError as error:
            raise InputError(f"checkpoints need Orbax: pip install 'tf2jax-lite[checkpoint]' ({error})") from error
        self._ocp = ocp
        options = ocp.CheckpointManagerOptions(max_to_keep=max_to_keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(Path(directory).absolute(), options=options)

    def latest(self) -> int | None:
        """Returns the newest checkpoint's round, or None."""
        return self._manager.latest_step()

    def save(self, round_number: int, state: Any) -> None:
        """Writes a state; a checkpoint of the same round is left as it is."""
        if round_number not in self._manager.all_steps():
            self._manager.save(round_number, args=self._ocp.args.StandardSave(_flat(state)))
            self._manager.wait_until_finished()

    def restore(self, template: Any) -> tuple[int, Any]:
        """Returns the newest checkpoint's round and state.

        Args:
          template: a state of the same structure (``process.initialize()``).

        Raises:
          DataError: there is none, it is damaged, or it is of another algorithm or model.
        """
        number = self.latest()
        if number is None:
            raise DataError("there is no checkpoint")
        try:
            flat = self._manager.restore(number, args=self._ocp.args.StandardRestore())
        except Exception as error:  # Orbax and TensorStore fail in many ways
            raise DataError(
                f"the checkpoint of round {number} cannot be read: {type(error).__name__}: {error}"
            ) from error
        return number, _restored(template, flat)

    def close(self) -> None:
        """Frees what the manager holds."""
        self._manager.close()
