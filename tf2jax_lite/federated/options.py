"""Checks of the numbers and keys that users give as options."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import InputError, Tf2JaxError

__all__ = ["check_key", "check_number", "check_seed"]


def check_key(key: Any, name: str = "key") -> None:
    """Refuses what is no JAX key, of either kind.

    Raises:
      InputError: it is something else.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or (dtype == jnp.uint32 and key.ndim)):
        raise InputError(f"{name} is a JAX key, as jax.random.key(0) makes it; got {key!r:.80}")


def check_seed(who: str, seed: Any) -> None:
    """Refuses what is no seed of `jax.random.key`: an integer from 0 to 2**63 - 1.

    Raises:
      InputError: the seed is something else.
    """
    if not (isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**63):
        raise InputError(f"{who}: seed is a whole number from 0 to 2**63 - 1, not {seed!r}.")


def check_number(
    who: str,
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    whole: bool = False,
    infinite: bool = False,
    error: type[Tf2JaxError] = InputError,
) -> None:
    """Refuses an option that is no number, NaN, or out of range.

    Args:
      who: whose option it is.
      name: the option.
      value: what was given.
      above: the value is greater than this.
      least: the value is this or greater.
      below: the value is less than this.
      most: the value is this or less.
      whole: only integers.
      infinite: infinity is in range, too.
      error: what is raised.

    Raises:
      InputError: the value does not fit; the message says what does. Another error, if ``error`` says so.
    """
    number = value.item() if isinstance(value, np.ndarray | np.generic | jax.Array) and value.ndim == 0 else value
    if isinstance(number, int if whole else int | float) and not isinstance(number, bool):
        fits = [
            math.isfinite(number) or (infinite and not math.isnan(number)),
            above is None or number > above,
            least is None or number >= least,
            below is None or number < below,
            most is None or number <= most,
        ]
        if all(fits):
            return
    limits = [
        f"{word} {bound:g}"
        for word, bound in (("above", above), ("at least", least), ("below", below), ("at most", most))
        if bound is not None
    ]
    noun = "a whole number" if whole else "a number" if infinite else "a finite number"
    raise error(f"{who}: {name} is {noun}{' ' if limits else ''}{' and '.join(limits)}, not {value!r}.")
