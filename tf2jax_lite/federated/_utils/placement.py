"""Device placement of a training's arrays: commits them to one device.

A program that calls an export of ``jax.export`` (an artifact's StableHLO) returns arrays that are *committed* to their
device; new arrays are not, and JAX compiles a program again if an argument changes from one to the other. With a
committed initial state, each program of a round is compiled once.
"""

from __future__ import annotations

from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import is_traced


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
