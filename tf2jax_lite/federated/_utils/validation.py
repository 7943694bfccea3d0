"""Check of the numbers and keys that users give as options."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import InputError, Tf2JaxError


def check_key(key: Any, name: str = "key") -> None:
    """Check that a value is a JAX PRNG key, typed or raw.

    Raises:
      InputError: it is not.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or (dtype == jnp.uint32 and key.ndim)):
        raise InputError(f"{name} is a JAX key, as jax.random.key(0) makes it; got {key!r:.80}")


def check_seed(who: str, seed: Any) -> None:
    """Check a seed of `jax.random.key`: an integer from 0 to 2**63 - 1.

    Raises:
      InputError: it is not.
    """
    if not (isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**63):
        raise InputError(f"{who}: seed is an integer from 0 to 2**63 - 1, not {seed!r}.")


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
    """Check that an option is a number in range, and not NaN.

    Args:
      who: the function that has the option.
      name: the option.
      value: its value.
      above: the value is greater than this.
      least: the value is this or greater.
      below: the value is less than this.
      most: the value is this or less.
      whole: only integers.
      infinite: infinity is in range, too.
      error: the type of the error.

    Raises:
      InputError: the value is invalid; the message gives the range. Another type, if ``error`` is given.
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
    noun = "an integer" if whole else "a number" if infinite else "a finite number"
    raise error(f"{who}: {name} is {noun}{' ' if limits else ''}{' and '.join(limits)}, not {value!r}.")
