"""Check options, and name a user's function in errors."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
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


_MODEL = "_tf2jax_lite_model"


@contextlib.contextmanager
def of_model(function: Any) -> Iterator[None]:
    """Mark errors as those of a model's function, for callers with its data."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(AttributeError):  # errors with slots
            setattr(error, _MODEL, function)
        raise


def immutable(tree: Any) -> Any:
    """Return own containers, and JAX's arrays for NumPy's, for an eager function."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OSU" else leaf, tree
    )


def model_function(error: Exception) -> Any:
    """Return the function of a model that raised an error; None if it was another one."""
    return getattr(error, _MODEL, None)


@contextlib.contextmanager
def raised_by(role: str, function: Any) -> Iterator[None]:
    """Name the user's function in errors that it raises.

    Args:
      role: the function's role, such as ``train_loss``.
      function: the function.

    Raises:
      InputError: for any error but ours, the runtime's (too little memory), and those of a model.
    """
    try:
        yield
    except (Tf2JaxError, RuntimeError):
        raise
    except Exception as error:  # users' functions raise anything
        if model_function(error) is not None:
            raise
        raise InputError(f"{role} ({described(function)}) raised {first_line(error)}") from error


def named_function(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose errors say which function raised them; see `raised_by`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with raised_by(role, function):
            return function(*args, **kwargs)

    return call


def described(function: Any) -> str:
    """Return a function's name and location; of one around a user's, the user's."""
    function = getattr(function, "given", function)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    return f"{name}, {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code is not None else name


def first_line(error: Exception) -> str:
    """Return an error's type and the first line of its text."""
    line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line:.300}"
