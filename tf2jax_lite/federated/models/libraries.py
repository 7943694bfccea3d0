"""Models from Flax, Haiku and stax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from tf2jax_lite.federated.metrics import Metric, check_metrics
from tf2jax_lite.federated.models.losses import TrainLoss, as_train_loss
from tf2jax_lite.federated.models.model import Model, TrainOutput
from tf2jax_lite.federated.models.sources import InputSource, argument_reader
from tf2jax_lite.federated.templates.process import ModelWeights

Metrics = Mapping[str, Metric]


def create_model_from_haiku(
    transformed_forward_pass: Any,
    sample_batch: Mapping[str, Any],
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    train_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
) -> Model:
    """Make a model of a Haiku function. See fedjax.create_model_from_haiku.

    Args:
      transformed_forward_pass: the result of ``hk.transform`` for a function of a batch, whose model has plain params,
        as in FedJAX; or of ``hk.transform_with_state``, whose state becomes non-trainable weights.
      sample_batch: a batch, for the parameters' shapes.
      train_loss: ``(batch, predictions) -> (n,)``, or a name (see `named_loss`).
      eval_metrics: name to metric.
      train_kwargs: more arguments of the function in training, such as ``{"is_train": True}``.
      eval_kwargs: more arguments of it in evaluation.
    """
    metrics = check_metrics("create_model_from_haiku", "eval_metrics", eval_metrics)
    stateful = type(transformed_forward_pass).__name__ == "TransformedWithState"
    train, evaluate = dict(train_kwargs or {}), dict(eval_kwargs or {})
    forward = transformed_forward_pass.apply

    def init(key: Any) -> Any:
        found = transformed_forward_pass.init(key, dict(sample_batch), **train)
        return ModelWeights(*found) if stateful else found

    def apply_for_train(weights: Any, batch: Mapping[str, Any], rng: Any = None) -> Any:
        if stateful:
            return TrainOutput(*forward(weights.trainable, weights.non_trainable, rng, batch, **train))
        return forward(weights, rng, batch, **train)

    def apply_for_eval(weights: Any, batch: Mapping[str, Any]) -> Any:
        if stateful:
            return forward(weights.trainable, weights.non_trainable, None, batch, **evaluate)[0]
        return forward(weights, None, batch, **evaluate)

    return Model(init, apply_for_train, apply_for_eval, as_train_loss(train_loss), metrics)


def create_model_from_stax(
    stax_init: Callable[..., Any],
    stax_apply: Callable[..., Any],
    sample_shape: tuple[int, ...],
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    train_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
    input_key: str = "x",
) -> Model:
    """Make a model of a pair of stax functions. See fedjax.create_model_from_stax.

    Args:
      stax_init: ``(key, shape) -> (shape, params)``, as ``jax.example_libraries.stax.serial`` returns it.
      stax_apply: ``(params, inputs, **kwargs) -> predictions``.
      sample_shape: the shape of the inputs; the first size may be -1.
      train_loss: ``(batch, predictions) -> (n,)``, or a name (see `named_loss`).
      eval_metrics: name to metric.
      train_kwargs: more arguments in training.
      eval_kwargs: more arguments in evaluation.
      input_key: the batch's key of the inputs.

    Returns:
      The model; its params are stax's plain pytree.
    """
    metrics = check_metrics("create_model_from_stax", "eval_metrics", eval_metrics)
    train, evaluate = dict(train_kwargs or {}), dict(eval_kwargs or {})

    def apply_for_train(params: Any, batch: Mapping[str, Any], rng: Any = None) -> Any:
        return stax_apply(params, batch[input_key], rng=rng, **train)

    def apply_for_eval(params: Any, batch: Mapping[str, Any]) -> Any:
        return stax_apply(params, batch[input_key], **evaluate)

    return Model(
        lambda key: stax_init(key, sample_shape)[1], apply_for_train, apply_for_eval, as_train_loss(train_loss), metrics
    )


def create_model_from_flax(
    module: Any,
    sample_batch: Mapping[str, Any],
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    *,
    inputs: InputSource = "x",
    train_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
    rng_names: tuple[str, ...] = ("dropout",),
) -> Model:
    """Make a model of a Flax module: linen, or an ``nnx.Module``.

    The latter's values are the initial weights.

    Args:
      module: the module. An ``nnx`` module is split once; its ``train()`` and ``eval()`` give the two modes.
      sample_batch: a batch, for the parameters' shapes; an ``nnx`` module does not need it.
      train_loss: ``(batch, predictions) -> (n,)``, or a name (see `named_loss`).
      eval_metrics: name to metric.
      inputs: which parts of a batch the module gets.
      train_kwargs: more arguments in training, such as ``{"train": True}``.
      eval_kwargs: more arguments in evaluation.
      rng_names: the streams of random numbers that get the step's key.

    Returns:
      The model. Collections other than ``params`` (``nnx``: variables other than ``nnx.Param``) are non-trainable.
    """
    metrics = check_metrics("create_model_from_flax", "eval_metrics", eval_metrics)
    arguments = argument_reader(inputs)
    train, evaluate = dict(train_kwargs or {}), dict(eval_kwargs or {})
    if hasattr(module, "apply") and hasattr(module, "init"):
        functions = _linen(module, sample_batch, arguments, train, evaluate, rng_names)
    else:
        functions = _nnx(module, arguments, train, evaluate)
    return Model(*functions, as_train_loss(train_loss), metrics)


def _streams(names: tuple[str, ...], key: Any) -> dict[str, Any]:
    return {name: jax.random.fold_in(key, i) for i, name in enumerate(names)}


def _linen(
    module: Any,
    sample_batch: Mapping[str, Any],
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    train: dict[str, Any],
    evaluate: dict[str, Any],
    names: tuple[str, ...],
) -> tuple[Any, Any, Any]:
    def init(key: Any) -> ModelWeights:
        variables = dict(module.init({"params": key, **_streams(names, key)}, *arguments(sample_batch), **evaluate))
        return ModelWeights(variables.pop("params", {}), variables)

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        variables = {"params": weights.trainable, **weights.non_trainable}
        mutable = list(weights.non_trainable)
        found = module.apply(variables, *arguments(batch), **train, rngs=_streams(names, rng), mutable=mutable or False)
        predictions, changed = found if mutable else (found, {})
        return TrainOutput(predictions, {**weights.non_trainable, **changed})

    def apply_for_eval(weights: ModelWeights, batch: Mapping[str, Any]) -> Any:
        return module.apply({"params": weights.trainable, **weights.non_trainable}, *arguments(batch), **evaluate)

    return init, apply_for_train, apply_for_eval


def _nnx(
    module: Any,
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    train: dict[str, Any],
    evaluate: dict[str, Any],
) -> tuple[Any, Any, Any]:
    from flax import nnx

    module.eval()
    in_eval = nnx.split(module, nnx.Param, nnx.RngState, ...)[0]
    module.train()
    in_train, params, random, rest = nnx.split(module, nnx.Param, nnx.RngState, ...)
    counts, treedef = jax.tree.flatten(random)

    def streams(key: Any) -> Any:
        """Return the module's random state with other keys; counts stay."""
        leaves = [
            jax.random.fold_in(key, i) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            for i, leaf in enumerate(counts)
        ]
        return jax.tree.unflatten(treedef, leaves)

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        parts = (weights.trainable, streams(rng), weights.non_trainable)
        live = nnx.merge(in_train, *parts, copy=True)  # its variables belong to this trace
        predictions = live(*arguments(batch), **train)
        return TrainOutput(predictions, nnx.split(live, nnx.Param, nnx.RngState, ...)[3])

    def apply_for_eval(weights: ModelWeights, batch: Mapping[str, Any]) -> Any:
        live = nnx.merge(in_eval, weights.trainable, random, weights.non_trainable, copy=True)
        return live(*arguments(batch), **evaluate)

    return lambda key: ModelWeights(params, rest), apply_for_train, apply_for_eval
