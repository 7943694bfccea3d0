"""Weights, batches and predictions at the entry of a model's functions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.errors import InputError

BATCH = {"x": np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "y": np.array([0, 1, 1, 0], np.int32)}
PADDED = {name: np.concatenate([value, value[:1]]) for name, value in BATCH.items()} | {"__mask__": np.arange(5) < 4}


def cross_entropy(batch, logits):
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])


def plain_model():
    params = {"w": jnp.ones((3, 2)) * jnp.arange(2)}
    return fed.Model(
        lambda key: params,
        lambda p, batch, rng: batch["x"] @ p["w"],
        lambda p, batch: batch["x"] @ p["w"],
        cross_entropy,
        {"accuracy": fed.metrics.Accuracy()},
    )


def linen_model(**options):
    linen = pytest.importorskip("flax.linen")

    class Small(linen.Module):
        @linen.compact
        def __call__(self, x, train=False):
            if options.get("norm"):
                x = linen.BatchNorm(use_running_average=not train)(x)
            return linen.Dense(2)(linen.Dropout(0.5, deterministic=not train)(x))

    return fed.create_model_from_flax(Small(), BATCH, cross_entropy, train_kwargs={"train": True})


def nnx_model():
    nnx = pytest.importorskip("flax.nnx")
    return fed.create_model_from_flax(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), BATCH, cross_entropy)


def keras_model(norm=False):
    keras = pytest.importorskip("keras")
    layers = [keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = keras.Sequential([*layers[:1], keras.layers.BatchNormalization(), *layers[1:]] if norm else layers)
    return fed.create_model_from_tf(model, cross_entropy)


def frozen_model():
    """A pretrained model, part of whose weights do not train."""
    both = fed.create_model_from_fn(
        {"w": jnp.ones((3, 2)), "b": jnp.arange(2.0)}, lambda p, batch: batch["x"] @ p["w"] + p["b"], cross_entropy
    )
    return fed.freeze(both, lambda name: name == "w")


BARE = {
    "plain": plain_model,
    "linen": linen_model,
    "nnx": nnx_model,
    "keras": keras_model,
    "frozen": frozen_model,
}
KEY = jax.random.key(3)
TAKES_WEIGHTS = {
    "evaluate_model": lambda model, weights: fed.evaluate_model(model, weights, [BATCH]),
    "model_grad": lambda model, weights: fed.model_grad(model)(weights, BATCH, KEY),
    "model_per_example_loss": lambda model, weights: fed.model_per_example_loss(model)(weights, BATCH, KEY),
    "evaluate_average_loss": lambda model, weights: fed.evaluate_average_loss(
        weights, [BATCH], KEY, fed.model_per_example_loss(model)
    ),
    "global": lambda model, weights: next(fed.ModelEvaluator(model).evaluate_global_params(weights, [("a", [BATCH])]))[
        1
    ],
    "per client": lambda model, weights: next(
        fed.ModelEvaluator(model).evaluate_per_client_params([("a", [BATCH], weights)])
    )[1],
    "personalization": lambda model, weights: fed.build_personalization_eval(model, {})(
        weights, [(fed.ClientDataset(BATCH), fed.ClientDataset(BATCH))]
    ),
}


@pytest.mark.default_cases("linen", "frozen")
@pytest.mark.parametrize("name", BARE)
def test_trainable_weights_stand_for_all_where_the_others_are_constant(name):
    model = BARE[name]()
    process = fed.build_weighted_fed_avg(model, optax.sgd(0.1), client_batching=fed.BatchHParams(4))
    state, _ = process.next(process.initialize(), [fed.ClientDataset(BATCH)])
    for function in TAKES_WEIGHTS.values():
        found, of_all = function(model, state.params), function(model, state.weights)
        of_all = (
            of_all.trainable if isinstance(of_all, fed.ModelWeights) else of_all
        )  # gradients have their weights' structure
        jax.tree.map(np.testing.assert_array_equal, found, of_all)


@pytest.mark.default_cases("linen_model")
@pytest.mark.parametrize("make", [linen_model, keras_model])
def test_trainable_weights_alone_are_refused_where_others_change(make):
    model = make(norm=True)
    weights = model.init(jax.random.key(0))
    for function in TAKES_WEIGHTS.values():
        with pytest.raises(InputError, match=r"Give a training's state.weights instead of its state.params"):
            function(model, weights.trainable)


def test_frozen_weights_that_a_key_draws_are_not_guessed():
    both = fed.create_model_from_fn(
        lambda key: {"w": jax.random.normal(key, (3, 2)), "b": jax.random.normal(key, (2,))},
        lambda p, batch: batch["x"] @ p["w"] + p["b"],
        cross_entropy,
    )
    model = fed.freeze(both, lambda name: name == "w")
    with pytest.raises(InputError, match=r"frozen/b"):
        fed.evaluate_model(model, model.init(KEY).trainable, [BATCH])


def assigning(weights, batch, rng=None):
    params = weights.trainable if isinstance(weights, fed.ModelWeights) else weights
    batch["x"] = batch["x"] * 2
    params["w"] = params["w"] + batch.pop("y").sum() * 0
    return {"logits": batch["x"] @ params["w"]}


def assigning_loss(batch, predictions):
    predictions["logits"] = predictions["logits"] / 2
    batch["x"] = None
    return cross_entropy(batch, predictions.pop("logits"))


@pytest.mark.default_cases("scan")
@pytest.mark.parametrize("execution", ["scan", "vmap", "loop", "debug"])
def test_functions_that_assign_to_their_arguments(execution):
    """A model's functions get dicts of their own, as do losses and metrics."""
    own = plain_model().replace(
        apply_for_train=assigning,
        apply_for_eval=assigning,
        train_loss=assigning_loss,
        eval_metrics={"accuracy": fed.metrics.Accuracy(pred_key="logits")},
    )
    results = []
    for model in (plain_model(), own):
        process = fed.build_weighted_fed_avg(
            model, optax.sgd(0.1), client_batching=fed.BatchHParams(2), client_execution=execution
        )
        state = process.initialize()
        for _ in range(2):
            state, metrics = process.next(state, [fed.ClientDataset(BATCH)])
        with jax.disable_jit(execution == "debug"):
            evaluated = fed.evaluate_model(model, state.weights, [BATCH, PADDED])
        results.append((metrics["client_work"], state.weights, evaluated))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *results)
