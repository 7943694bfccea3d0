"""Errors of users' functions: the function's name, and if data is at fault."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import InputError, Tf2JaxError

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
