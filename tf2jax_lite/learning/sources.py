"""Models from plain functions, converted functions, and artifacts."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import is_seed_state, is_trainable, merge_params
from tf2jax_lite.calling.structures import map_structure
from tf2jax_lite.export.artifact import converted_function
from tf2jax_lite.export.load import load
from tf2jax_lite.export.loaded_function import LoadedFunction
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.predictions import Kind, prediction_kinds
from tf2jax_lite.export.symbolic_dims import stage_symbolic
from tf2jax_lite.jaxprs.compat import used_inputs
from tf2jax_lite.learning.losses import TrainLoss, as_train_loss
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, TrainOutput, as_model_weights, warn_of_logits
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.pipeline.converted_function import AnnotatedFunction
from tf2jax_lite.pipeline.keras_training import TrainingFacts
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import InputError, UnsupportedError

Metrics = Mapping[str, Metric]
# Where a model's input comes from: a key of the batch, several (positional arguments), names to keys (one argument
# that is a dict), or a function of the batch.
InputSource = str | Sequence[str] | Mapping[str, str] | Callable[[Mapping[str, Any]], Any]


def create_model_from_fn(
    init: Callable[[Any], Any] | ModelWeights | PyTree,
    apply: Callable[..., Any],
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    *,
    apply_eval: Callable[[Any, Mapping[str, Any]], Any] | None = None,
) -> Model:
    """Make a model of plain functions.

    Args:
      init: ``(key) -> params``, or the params themselves: any pytree, all of which trains, or `ModelWeights`.
      apply: ``(params, batch)`` or ``(params, batch, rng)``, for training; it returns predictions, or a `TrainOutput`.
      train_loss: ``(batch, predictions) -> (n,)``, or a name (see `named_loss`).
      eval_metrics: name to metric.
      apply_eval: ``(params, batch) -> predictions``; ``apply`` by default, which then takes no key.

    Returns:
      The model. Functions get params in the form in which ``init`` gives them: bare, or `ModelWeights`.

    Raises:
      InputError: ``apply`` takes a key and ``apply_eval`` is missing.
    """
    takes_key = _positional(apply) > 2
    if takes_key and apply_eval is None:
        raise InputError("create_model_from_fn: apply takes a key; give apply_eval, which takes none")
    evaluate = apply_eval or apply
    make = init if callable(init) else lambda key: jax.tree.map(native, init)
    bare = not isinstance(jax.eval_shape(make, jax.random.key(0)), ModelWeights)

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        params = weights.trainable if bare else weights
        found = apply(params, batch, rng) if takes_key else apply(params, batch)
        return found if isinstance(found, TrainOutput) else TrainOutput(found, weights.non_trainable)

    def apply_for_eval(weights: ModelWeights, batch: Mapping[str, Any]) -> Any:
        found = evaluate(weights.trainable if bare else weights, batch)
        return found.predictions if isinstance(found, TrainOutput) else found

    for function, given in ((apply_for_train, apply), (apply_for_eval, evaluate)):
        function.given = given  # type: ignore[attr-defined]  # for error messages
    return Model(
        lambda key: as_model_weights(make(key)),
        apply_for_train,
        apply_for_eval,
        as_train_loss(train_loss),
        check_metrics("create_model_from_fn", "eval_metrics", eval_metrics),
    )


def _positional(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


def create_model_from_converted(
    train: tuple[Callable[..., Any], Mapping[str, Any]],
    evaluate: tuple[Callable[..., Any], Mapping[str, Any]] | None,
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    *,
    inputs: InputSource = "x",
    written: Sequence[str] | None = None,
    has_regularization: bool = False,
) -> Model:
    """Make a model of converted functions that share their variables by name.

    Args:
      train: the function in training mode and its params, as `tf2jax_lite.convert` or `tf2jax_lite.load` return them.
      evaluate: the same in evaluation mode; ``train`` if None.
      train_loss: as for `create_model_from_fn`.
      eval_metrics: name to metric.
      inputs: which parts of a batch the functions get.
      written: names of the variables that ``train`` may write; all non-trainable ones if None.
      has_regularization: ``train`` returns ``(predictions, scalar to add to the mean loss)``. Functions of Keras models
        say it themselves.

    Returns:
      The model; ``init`` returns the converted values. Seeds of Keras 3 (Dropout) get the key of each step.

    Raises:
      InputError: the two functions disagree about a variable, or are of a Keras model whose training has parts that are
        not supported.
    """
    train_fn, train_params = train
    eval_fn, eval_params = evaluate or train
    weights = _shared(train_params, eval_params)
    loss = as_train_loss(train_loss)
    facts = train_fn.training if isinstance(train_fn, LoadedFunction | AnnotatedFunction) else None
    if facts is not None:
        _check_facts(facts, loss, weights)
        has_regularization = facts.returns_losses
    arguments = argument_reader(inputs)
    seeds = [name for name in weights.non_trainable if is_seed_state(name)]
    changing = set(weights.non_trainable if written is None else written) - set(seeds)
    takes_key = {fn: _takes_key(fn) for fn in (train_fn, eval_fn)}

    def apply_for_train(weights: ModelWeights, batch: Mapping[str, Any], rng: Any) -> TrainOutput:
        params = merge_params(weights.trainable, weights.non_trainable)
        for i, name in enumerate(seeds):
            params[name] = _seed(jax.random.fold_in(rng, i), params[name])
        key = {"rng": rng} if takes_key[train_fn] else {}
        found, updated = train_fn(params, *arguments(batch), **key)
        predictions, regularization = found if has_regularization else (found, 0.0)
        kept = {name: updated[name] if name in changing else value for name, value in weights.non_trainable.items()}
        return TrainOutput(predictions, kept, regularization)

    def apply_for_eval(weights: ModelWeights, batch: Mapping[str, Any]) -> Any:
        params = merge_params(weights.trainable, weights.non_trainable)
        # Evaluation depends only on the weights: random numbers are the same each time.
        key = {"rng": jax.random.key(0)} if takes_key[eval_fn] else {}
        return eval_fn(params, *arguments(batch), **key)[0]

    model = Model(
        lambda key: weights,
        apply_for_train,
        apply_for_eval,
        loss,
        check_metrics("create_model_from_converted", "eval_metrics", eval_metrics),
        {name: name in changing for name in weights.non_trainable},
        {
            mode: fn.independent  # of an artifact, whose operations are not seen here
            for mode, fn in (("train", train_fn), ("eval", eval_fn))
            if isinstance(fn, LoadedFunction)
        },
    )
    if getattr(loss, "takes_probabilities", False) and (kinds := _prediction_kinds(eval_fn, eval_params)):
        warn_of_logits(model, kinds)
    return model


def _check_facts(facts: TrainingFacts, loss: Any, weights: ModelWeights) -> None:
    """Refuse parts of a Keras model's training that a step here would leave out."""
    for name, reason in facts.refused.items():
        if name not in weights.non_trainable:
            raise InputError(
                f"the variable {name!r} has {reason}, which training here does not apply. Remove it from the model, or "
                "freeze the variable (trainable=False in Keras, freeze=)."
            )
    if facts.adds_losses and not facts.returns_losses:
        raise InputError(
            "the model adds losses (regularizers, add_loss), which its function in evaluation mode does not return. "
            "Train the function in training mode: tf2jax-lite convert --train."
        )
    if facts.masks_losses and getattr(loss, "ignores_masks", False):
        raise InputError(
            "the model masks steps (mask_zero, Masking), which Keras leaves out of the loss, and the artifact's "
            "functions do not return the mask. Name the target of padded steps (ignore_label=), give a "
            "loss of your own, (batch, predictions) -> (n,), or train by create_model_from_tf."
        )


def _prediction_kinds(fn: Any, params: Mapping[str, Any]) -> list[Kind]:
    """Return the kinds of a function's results; none if unknown."""
    if isinstance(fn, LoadedFunction):  # whose operations are not seen here
        return jax.tree.leaves(fn.kinds)
    if not isinstance(fn, AnnotatedFunction):
        return []
    with contextlib.suppress(Exception):  # shapes that are found with data only
        staged = stage_symbolic(converted_function(fn), None, params)
        return prediction_kinds(staged.jaxpr)[: len(staged.results)]
    return []


def create_model_from_artifact(
    path: str | Path,
    train_loss: str | TrainLoss,
    eval_metrics: Metrics | None = None,
    *,
    inputs: InputSource = "x",
    train_signature: str = "train",
    eval_signature: str | None = None,
    backend: str = "stablehlo",
) -> Model:
    """Make a model of an artifact that ``tf2jax-lite convert --train`` wrote.

    TensorFlow is not imported.

    Args:
      path: the artifact's directory.
      train_loss: as for `create_model_from_fn`.
      eval_metrics: name to metric.
      inputs: which parts of a batch the functions get.
      train_signature: the function in training mode. An artifact without it trains in evaluation mode.
      eval_signature: the function in evaluation mode; as `tf2jax_lite.load` chooses by default.
      backend: ``"stablehlo"`` or ``"source"``; see `tf2jax_lite.load`.

    Raises:
      ExportError: the artifact is damaged.
      InputError: a function of it has no derivative.
    """
    metadata = read_metadata(Path(path))
    names = [n for n in metadata["signatures"] if n != train_signature]
    if eval_signature is None:
        eval_signature = names[0] if len(names) == 1 else "serving_default"
    trained = train_signature if train_signature in metadata["signatures"] else eval_signature
    evaluate = load(path, eval_signature, backend=backend, stack_layers=False)
    train = evaluate if trained == eval_signature else load(path, trained, backend=backend, stack_layers=False)
    entry = metadata["signatures"][trained]
    if backend == "stablehlo" and not entry.get("differentiable", True):
        raise InputError(f"{path}: the function {trained!r} has no derivative in StableHLO; try backend='source'")
    return create_model_from_converted(
        train, evaluate, train_loss, eval_metrics, inputs=inputs, written=list(entry.get("updates", ()))
    )


def create_model_from_tf(
    model: Any,
    train_loss: Any = None,
    eval_metrics: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    specs: Any = None,
    inputs: InputSource = "x",
    input_spec: Any = None,
) -> Model:
    """Make a model of TensorFlow code, converted once.

    TensorFlow is imported here, and not needed afterwards.

    Args:
      model: a Keras model (Keras 3 or tf_keras), or functions: a pair ``(training mode, evaluation mode)`` of
        ``tf.function``s or callables of the model's inputs, or one for both.
      train_loss: ``(batch, predictions) -> (n,)`` of JAX or TensorFlow ops; a name (see `named_loss`), or another name
        that Keras has; a Keras loss or function ``(y_true, y_pred)``, which takes the batch's ``"y"``; or None for the
        loss that a Keras model is compiled with.
      eval_metrics: name to metric, or to a Keras metric whose state is a sum over examples; or a list of Keras metrics
        and names, as ``compile`` takes it.
      specs: the model's input as a structure of ``tf.TensorSpec``; for functions a tuple of arguments. A Keras model
        that was called, or has an Input, knows its own.
      inputs: which parts of a batch the model gets.
      input_spec: TFF's: the specs of a batch, a pair (x, y) or a dict with ``x`` and ``y``, in place of ``specs``.

    Returns:
      The model; ``init`` returns the variables' values. Dropout draws with the key of each step, batch statistics are
      non-trainable weights, and a Keras model's regularization losses are added to the mean loss.

    Raises:
      InputError: ``specs`` is missing for functions, or the model is not compiled with one loss.
      UnsupportedError: the code cannot be converted.
    """
    from tf2jax_lite.learning.keras_functions import as_jax_loss, as_jax_metrics
    from tf2jax_lite.pipeline import convert
    from tf2jax_lite.pipeline.model_files import convert_keras_mask, convert_keras_model

    loss: Any = as_jax_loss(train_loss, model)
    metrics = as_jax_metrics(eval_metrics, model)
    is_keras = hasattr(model, "trainable_variables") and hasattr(model, "losses") and callable(model)
    if input_spec is not None:
        if specs is not None:
            raise InputError("create_model_from_tf: input_spec is TFF's name of specs; give one of them")
        specs = _input_of(input_spec)
        specs = specs if is_keras else (specs,)
    if is_keras:
        functions = convert_keras_model(model, specs=specs)
        train, evaluate = functions["train"], functions["serving_default"]
        if train[0].training.masks_losses and hasattr(loss, "mask"):
            loss = dataclasses.replace(loss, mask=_mask_reader(convert_keras_mask(model, specs), inputs))
    else:
        if specs is None:
            raise InputError("create_model_from_tf: functions need specs, a tuple of tf.TensorSpec, one an argument")
        pair = tuple(model) if isinstance(model, (tuple, list)) else (model, model)
        arguments = specs if isinstance(specs, tuple) else (specs,)
        train, evaluate = convert.convert(pair[0], *arguments), convert.convert(pair[-1], *arguments)
    return create_model_from_converted(
        train,
        evaluate,
        loss,
        metrics,
        inputs=inputs,
        written=_written(train[0]),
    )


def _input_of(input_spec: Any) -> Any:
    """Return the spec of a model's input in TFF's spec of a batch, for any size."""

    def any_size(spec: Any) -> Any:
        sized = type(spec).__name__ == "TensorSpec" and spec.shape.rank
        return type(spec)([None, *spec.shape[1:]], spec.dtype, spec.name) if sized else spec

    if isinstance(input_spec, Mapping) and input_spec.keys() == {"x", "y"}:
        return map_structure(any_size, input_spec["x"])
    if isinstance(input_spec, tuple | list) and len(input_spec) == 2:
        return map_structure(any_size, input_spec[0])
    raise InputError(
        f"create_model_from_tf: input_spec has the specs of a batch, as a pair (x, y) or a dict with 'x' and 'y'; not "
        f"{input_spec!r:.200}"
    )


def from_keras_model(
    keras_model: Any, loss: Any, input_spec: Any, loss_weights: Any = None, metrics: Sequence[Any] | None = None
) -> Model:
    """Make a model of a Keras model, with TFF's arguments.

    See tff.learning.models.from_keras_model and `create_model_from_tf`.

    Args:
      keras_model: the model.
      loss: a Keras loss.
      input_spec: the specs of a batch, a pair (x, y) or a dict with ``x`` and ``y``.
      loss_weights: of several losses, which is not supported.
      metrics: Keras metrics.

    Raises:
      InputError: there are several losses.
    """
    if loss_weights is not None or isinstance(loss, list | tuple | Mapping):
        raise InputError(
            "from_keras_model takes one loss, without loss_weights. Give several as one function (batch, predictions) "
            "that returns their weighted sum for each example: create_model_from_tf(keras_model, function)."
        )
    return create_model_from_tf(keras_model, loss, metrics, input_spec=input_spec)


def _mask_reader(
    converted: tuple[AnnotatedFunction, Mapping[str, Any]], inputs: InputSource
) -> Callable[[Mapping[str, Any]], Any]:
    """Return ``(batch) -> masks`` of a Keras model's results.

    Raises:
      UnsupportedError: the masks depend on weights or random numbers, which a loss does not have.
    """
    fn, params = converted
    staged = stage_symbolic(converted_function(fn), None, params)
    used = used_inputs(staged.jaxpr)
    if any(used[: len(staged.variables)]) or (staged.rng and used[-1]):
        raise UnsupportedError(
            "the mask of the model's results depends on its weights, as of Masking behind a trained layer. Give "
            "a loss of your own, (batch, predictions) -> (n,)."
        )
    arguments, key = argument_reader(inputs), {"rng": jax.random.key(0)} if staged.rng else {}
    return lambda batch: fn(params, *arguments(batch), **key)[0]


def _written(fn: Any) -> list[str]:
    """Return the variables that a converted function may write."""
    converted = fn.converted
    graph = converted.program.graph
    writes = converted.program.effects(graph.main).writes
    captures = [getattr(capture.value, "name", "") for capture in graph.captures]
    positions = [which - converted.interface.count for kind, which in writes if kind == "arg"]
    named = [str(which) for kind, which in writes if kind == "name"]
    return [*named, *(captures[i] for i in positions if 0 <= i < len(captures))]


def _shared(train_params: Mapping[str, Any], eval_params: Mapping[str, Any]) -> ModelWeights:
    """Return the variables of both functions, each once."""
    merged: dict[str, Any] = dict(train_params)
    for name, value in eval_params.items():
        if name not in merged:
            merged[name] = value
        elif np.shape(merged[name]) != np.shape(value):
            raise InputError(
                f"variable {name!r} has shape {np.shape(merged[name])} in training and {np.shape(value)} in evaluation"
            )
    trains = {name: is_trainable(name, value) for name, value in merged.items()}
    arrays = {name: jnp.asarray(native(np.asarray(value))) for name, value in merged.items()}
    return ModelWeights(
        {name: value for name, value in arrays.items() if trains[name] is not False},
        {name: value for name, value in arrays.items() if trains[name] is False},
    )


def argument_reader(inputs: InputSource) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return ``(batch) -> arguments`` of a model."""

    def value(batch: Mapping[str, Any], key: str) -> Any:
        if key not in batch:
            raise InputError(f"the batch has no {key!r} for the model; it has {', '.join(batch)}. See inputs=...")
        return batch[key]

    if isinstance(inputs, str):
        return lambda batch: (value(batch, inputs),)
    if callable(inputs):
        return lambda batch: (inputs(batch),)
    if isinstance(inputs, Mapping):
        return lambda batch: ({name: value(batch, key) for name, key in inputs.items()},)
    return lambda batch: tuple(value(batch, key) for key in inputs)


def _takes_key(fn: Any) -> bool:
    if isinstance(fn, LoadedFunction):
        return fn.needs_key
    return isinstance(fn, AnnotatedFunction) and bool(fn.converted.program.random_nodes)


def _seed(key: Any, old: Any) -> Any:
    dtype = jnp.asarray(old).dtype
    return jax.random.bits(key, jnp.shape(old), jnp.uint32).astype(dtype) & jnp.asarray(0x7FFFFFFF, dtype)


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
