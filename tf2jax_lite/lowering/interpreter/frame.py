"""An evaluation's position in the call tree, and the context of its ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.ops import traits
from tf2jax_lite.support.errors import LoweringError

if TYPE_CHECKING:
    from .trace import Trace


@dataclasses.dataclass(frozen=True)
class Frame:
    """The position of an evaluation in the call tree.

    Attributes:
      path: the names of the nodes whose functions are being evaluated, outermost first.
      key: returns the PRNG key that nodes fold their ids into. A function, so that graphs without random nodes need no
        key.
      unconditional: whether nodes here run whatever the data are. A branch that data choose is traced although it may
        not run.
    """

    path: tuple[str, ...]
    key: Callable[[], Any]
    unconditional: bool = True

    def enter(self, step: Step, counter: Any = None, *, unconditional: bool = True) -> Frame:
        """Return the frame of a function that a step calls.

        Args:
          counter: the number of the iteration, if the function is a loop's.
          unconditional: whether the function runs whenever the step does.
        """
        outer = self.key

        def key() -> Any:
            inner = jax.random.fold_in(outer(), step.stable_id)
            return inner if counter is None else jax.random.fold_in(inner, counter)

        return Frame((*self.path, step.node.name), key, self.unconditional and unconditional)


def _no_key() -> Any:
    raise LoweringError("random numbers are never drawn where constants are folded")


FOLDING_FRAME = Frame((), _no_key)
"""The frame of nodes that are folded to constants."""


@dataclasses.dataclass(frozen=True)
class Context(traits.Context):
    """The first argument of ops that need the lowering.

    Attributes:
      frame: the node's position.
    """

    trace: Trace
    frame: Frame
    step: Step
