"""Classes of exported source as functions of params."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tf2jax_lite.calling.params import flatten_params, nest_params


def as_function(
    module: type, to_variables: Callable[[Any], Any], updates: Collection[str]
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a class of exported source as a function.

    Args:
      to_variables: the source's function that makes `nnx.Variable` of arrays.

    Returns:
      ``function(params, *arguments, rng=key)``, which returns the results and the updated nested params.
    """

    def function(params: Mapping[str, Any], *arguments: Any, **key: Any) -> tuple[Any, dict[str, Any]]:
        variables = to_variables(params)
        results = module(variables)(*arguments, **({"rngs": key["rng"]} if key else {}))
        held = flatten_params(variables)
        after = {name: held[name][...] if name in updates else value for name, value in flatten_params(params).items()}
        return results, nest_params(after)

    return function
