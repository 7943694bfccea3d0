"""The form of a value: its structure, shapes and dtypes; and how values of different forms meet.

Arrays meet only in one form. Handles that are pytrees may do more: tensor lists of different lengths meet in one of
the larger capacity. Such a class has two methods, ``common_form(other)`` and ``fitted(form)``, in which forms are
instances of the class itself with `jax.ShapeDtypeStruct`s for arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.support.errors import OpError

__all__ = ["aligned", "common_form", "fitted", "form_of", "joint_form", "same_form", "shown"]


def form_of(value: Any) -> Any:
    """Returns a value with each array replaced by its `jax.ShapeDtypeStruct`."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), value)


def same_form(a: Any, b: Any) -> bool:
    """Whether structure, shapes and dtypes agree."""
    return _signature(a) == _signature(b)


def _signature(value: Any) -> Any:
    leaves, treedef = jax.tree.flatten(value)
    return treedef, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def common_form(a: Any, b: Any) -> Any:
    """Returns the form in which values of forms ``a`` and ``b`` can meet; None, for no value, meets any.

    What a value meets in is not always its own form: a list loses the marks that say something of its elements.

    Raises:
      OpError: there is no such form.
    """
    a, b = (b, b) if a is None else (a, a) if b is None else (a, b)
    if type(a) is type(b) and hasattr(a, "common_form"):
        return a.common_form(b)
    if not same_form(a, b):
        raise OpError(f"values of different forms ({shown(a)} and {shown(b)}) where JAX needs one")
    return a


def fitted(value: Any, form: Any) -> Any:
    """Returns ``value`` in a form that `common_form` gave; zeros for None."""
    if value is None:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
    return value.fitted(form) if hasattr(value, "fitted") else value


def aligned(items: Sequence[Any]) -> list[Any]:
    """Returns values in their common form.

    Raises:
      OpError: there is none.
    """
    form = joint_form([None if v is None else form_of(v) for v in items])
    return [fitted(v, form) for v in items]


def joint_form(forms: Sequence[Any]) -> Any:
    """Returns the form in which values of all these forms can meet.

    Raises:
      OpError: there is none.
    """
    present = [form for form in forms if form is not None]
    return functools.reduce(common_form, present, present[0]) if present else None


def shown(form: Any) -> str:
    """Returns a form the way messages show it."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(form)) or "nothing"
