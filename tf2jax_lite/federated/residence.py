"""Where a training's arrays are: on one device, and known to be.

A program that calls what ``jax.export`` wrote, an artifact's StableHLO, gives arrays that are *committed* to their
device; arrays that were just made are not, and JAX compiles a program anew where one takes the other's place. A state
that is committed from the start has each program of a round compiled once.
"""

from __future__ import annotations

from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import is_traced

__all__ = ["resident"]


def resident(state: Any) -> Any:
    """Returns a state whose arrays are committed to a device.

    Args:
      state: a pytree. Where some of its arrays are committed, to one device, the others go there; where none is, all
        stay where the first one is. Arrays on several devices are left as they are, and so is what is traced.

    Returns:
      The state; arrays that are where they should be are not copied.
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
