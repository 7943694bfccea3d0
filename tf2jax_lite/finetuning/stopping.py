"""The best epoch of a training by a metric, and early stopping."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf2jax_lite.support.errors import InputError

# Last parts of the names of metrics of which less is better.
_LESS_IS_BETTER = ("loss", "mae", "mse", "perplexity", "error")


@dataclasses.dataclass(frozen=True)
class Monitor:
    """Watches one metric of the history.

    Attributes:
      metric: its name in the records, as in ``eval/loss``. Less is better of losses, errors and perplexity; more is
        better of other metrics.
      patience: training ends after this many epochs without a better value; None for never.

    Raises:
      InputError: ``patience`` is below 1.
    """

    metric: str
    patience: int | None = None

    def __post_init__(self) -> None:
        """Check the patience."""
        if self.patience is not None and (type(self.patience) is not int or self.patience < 1):
            raise InputError(f"patience is an integer of at least 1, not {self.patience}.")

    def _best(self, records: Sequence[Mapping[str, Any]]) -> int | None:
        """Return the index of the first record with the best value.

        None if none has a finite one.
        """
        less = self.metric.rsplit("/", 1)[-1].endswith(_LESS_IS_BETTER)
        values = [(record[self.metric], i) for i, record in enumerate(records) if record.get(self.metric) is not None]
        if not values:
            return None
        best = (min if less else max)(value for value, _ in values)
        return next(i for value, i in values if value == best)

    def improved(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the last record is better than all before."""
        return self._best(records) == len(records) - 1

    def exhausted(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the patience is over."""
        best = self._best(records)
        return self.patience is not None and best is not None and len(records) - 1 - best >= self.patience
