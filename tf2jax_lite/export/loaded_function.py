"""A function of an artifact, with the facts that the artifact records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.pipeline.keras_training import TrainingFacts


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedFunction:
    """A function as `load` returns it: ``fn(params, *args, rng=key, **kwargs)``.

    Attributes:
      needs_key: whether it draws random numbers, and takes ``rng``.
      taken: dtypes in which its StableHLO takes the arrays; None where it takes those of the interface.
      kinds: the kinds of its results (`prediction_kinds`), in their structure; None if they are not recorded.
      independent: whether each result belongs to one example.
      training: of a Keras model's function, facts that its training needs.
    """

    call: Callable[..., Any]
    interface: Interface
    needs_key: bool
    taken: Sequence[np.dtype] | None = None
    kinds: Any = None
    independent: bool = False
    training: TrainingFacts | None = None
    moving_statistics: frozenset[str] = frozenset()
    doc: str = ""

    def __post_init__(self) -> None:
        """Describe the function to `help` and `inspect`."""
        signature = self.interface.call_signature(rng=self.needs_key)
        described = {"__name__": self.interface.name, "__qualname__": self.interface.name, "__doc__": self.doc}
        for name, value in {**described, "__signature__": signature}.items():
            object.__setattr__(self, name, value)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.call(*args, **kwargs)
