"""Scalars in TensorBoard's event files, by tensorboardX (extra: tensorboard)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tf2jax_lite.support.errors import MissingLibraryError


class EventWriter:
    """Appends scalars to a new event file.

    Args:
      directory: where the file is made; TensorBoard's ``--logdir``.

    Raises:
      MissingLibraryError: tensorboardX is not installed.
      OSError: the file cannot be made.
    """

    def __init__(self, directory: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise MissingLibraryError(
                f"event files need tensorboardX: pip install 'tf2jax-lite[tensorboard]' ({error})"
            ) from error
        self._writer = SummaryWriter(str(directory))

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write scalars by tag, float32, of one step (0 or more)."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # a training may be killed

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
