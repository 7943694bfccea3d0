"""Training a part of a model: frozen parameters, and low-rank adapters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.model import Model, TrainOutput, check_model
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError

Filter = Callable[[str], bool]


def _named(tree: PyTree) -> tuple[dict[str, Any], Any]:
    pairs, treedef = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in pairs}, treedef


def _check_filter(who: str, name: str, value: Any) -> None:
    if not callable(value):
        raise InputError(f"{who}: {name} is a function from a parameter's name to a bool, not {value!r}")


def freeze(model: Model, trains: Filter) -> Model:
    """Return a model that trains only some parameters.

    Clients send changes of those alone.

    Args:
      model: the model.
      trains: ``(name) -> bool``; names are paths in the pytree of trainable weights, with slashes.

    Returns:
      A model whose trainable weights are a dict from name to array, and whose non-trainable ones are
      ``{"frozen": dict, "state": the model's own}``.

    Raises:
      InputError: nothing trains, or it is not a model.
    """
    _check_filter("freeze", "trains", trains)
    model = check_model(model)
    names, treedef = _named(model.shapes.trainable)
    kept = [name for name in names if trains(name)]
    if not kept:
        raise InputError(f"freeze: no parameter trains; there are {', '.join(list(names)[:10])}")

    def split(weights: ModelWeights) -> ModelWeights:
        found, _ = _named(weights.trainable)
        frozen = {name: value for name, value in found.items() if name not in kept}
        return ModelWeights({name: found[name] for name in kept}, {"frozen": frozen, "state": weights.non_trainable})

    def whole(weights: ModelWeights) -> ModelWeights:
        found = {**weights.non_trainable["frozen"], **weights.trainable}
        return ModelWeights(
            jax.tree.unflatten(treedef, [found[name] for name in names]), weights.non_trainable["state"]
        )

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        output = model.apply_for_train(whole(weights), batch, rng)
        return output._replace(non_trainable={**weights.non_trainable, "state": output.non_trainable})

    return dataclasses.replace(
        model,
        init=lambda key: split(model.init(key)),
        apply_for_train=apply_for_train,
        apply_for_eval=lambda weights, batch: model.apply_for_eval(whole(weights), batch),
        changes={"frozen": False, "state": model.changes},
    )


def with_lora(
    model: Model,
    rank: int,
    *,
    alpha: float | None = None,
    adapts: Filter = lambda name: True,
    trains: Filter = lambda name: False,
) -> Model:
    """Return a model in which low-rank adapters train: W + alpha / rank * A B.

    Source: Hu et al. 2021.

    Args:
      model: the model.
      rank: columns of A and rows of B, at least 1.
      alpha: the scale; ``rank`` by default.
      adapts: which parameters get adapters, by name; only those of two or more axes can. Those of more than two are
        matrices from the first axes to the last, split where A and B have fewest elements: kernels of convolutions go
        from patches to channels, those of attention from the model's width to all heads, and back.
      trains: which parameters train fully beside the adapters, by name, and get none: a new last layer.

    Returns:
      A model whose trainable weights are ``{name: {"a": (rows, rank), "b": (rank, columns)}}``, and arrays for those
      that train fully; b starts at 0, so that the model starts unchanged. `merge_lora` gives plain weights back.

    Raises:
      InputError: no parameter gets an adapter, the rank is below 1, or it is not a model.
    """
    check_number("with_lora", "rank", rank, least=1, whole=True)
    if alpha is not None:
        check_number("with_lora", "alpha", alpha)
    _check_filter("with_lora", "adapts", adapts)
    _check_filter("with_lora", "trains", trains)
    model = check_model(model)
    names, _ = _named(model.shapes.trainable)
    whole_ones = [name for name in names if trains(name)]
    chosen = [name for name, leaf in names.items() if leaf.ndim >= 2 and adapts(name) and name not in whole_ones]
    if not chosen:
        raise InputError(
            f"with_lora: no parameter of two or more axes is adapted; there are {', '.join(list(names)[:10])}"
        )
    scale = (rank if alpha is None else alpha) / rank

    def init(key: Any) -> ModelWeights:
        base = model.init(key)
        found, _ = _named(base.trainable)
        adapters: dict[str, Any] = {name: found[name] for name in whole_ones}
        for i, name in enumerate(chosen):
            leaf = names[name]
            rows, columns = _matrix(leaf.shape)
            draw = jax.random.normal(jax.random.fold_in(key, i), (rows, rank), leaf.dtype)
            adapters[name] = {
                "a": draw / jnp.sqrt(jnp.asarray(rows, leaf.dtype)),
                "b": jnp.zeros((rank, columns), leaf.dtype),
            }
        return ModelWeights(adapters, {"frozen": base.trainable, "state": base.non_trainable})

    def whole(weights: ModelWeights) -> ModelWeights:
        return merge_lora(weights, scale)

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        output = model.apply_for_train(whole(weights), batch, rng)
        return output._replace(non_trainable={**weights.non_trainable, "state": output.non_trainable})

    return dataclasses.replace(
        model,
        init=init,
        apply_for_train=apply_for_train,
        apply_for_eval=lambda weights, batch: model.apply_for_eval(whole(weights), batch),
        changes={"frozen": False, "state": model.changes},
    )


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a kernel's rows and columns as a matrix; of equal splits, the later one."""
    splits = [(math.prod(shape[:axis]), math.prod(shape[axis:])) for axis in range(len(shape) - 1, 0, -1)]
    return min(splits, key=sum)


def merge_lora(weights: ModelWeights, scale: float = 1.0) -> ModelWeights:
    """Return the adapted model's weights, with the adapters' products added.

    Parameters that trained fully have their trained values.

    Args:
      weights: of a model that `with_lora` returned.
      scale: alpha / rank.
    """
    found, treedef = _named(weights.non_trainable["frozen"])
    for name, adapter in weights.trainable.items():
        if not isinstance(adapter, Mapping):
            found[name] = adapter
            continue
        product = (adapter["a"] @ adapter["b"]).reshape(found[name].shape)
        found[name] = found[name] + jnp.asarray(scale, product.dtype) * product
    return ModelWeights(jax.tree.unflatten(treedef, list(found.values())), weights.non_trainable["state"])
