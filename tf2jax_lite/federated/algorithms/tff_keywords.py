"""TFF's names of the builders' keywords."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tf2jax_lite.support.errors import InputError

R = TypeVar("R")
_NAMES = {
    "client_optimizer_fn": "client_optimizer",
    "model_aggregator": "aggregator",
    "model_distributor": "distributor",
    "model_fn": "model",
    "reconstruction_optimizer_fn": "reconstruction_optimizer",
    "server_optimizer_fn": "server_optimizer",
}


def takes_tff_keywords(builder: Callable[..., R]) -> Callable[..., R]:
    """Return a builder that takes TFF's keywords, too.

    They are ``model_fn``, ``client_optimizer_fn``, ``server_optimizer_fn``, ``reconstruction_optimizer_fn``,
    ``model_aggregator`` and ``model_distributor``; their values are those of this library's keywords.
    """

    @functools.wraps(builder)
    def build(*args: Any, **kwargs: Any) -> R:
        for theirs in _NAMES.keys() & kwargs.keys():
            if _NAMES[theirs] in kwargs:
                raise InputError(f"{builder.__name__}: {theirs} is TFF's name of {_NAMES[theirs]}; give one of them")
            kwargs[_NAMES[theirs]] = kwargs.pop(theirs)
        return builder(*args, **kwargs)

    return build
