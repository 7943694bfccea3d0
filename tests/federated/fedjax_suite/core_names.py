"""FedJAX's names of models, metrics, optimizers, aggregators and backends."""

from __future__ import annotations

import contextlib
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import ForEachClientError
from tf2jax_lite.learning.process import ClientUpdates


class PerDomainMetric:
    """FedJAX's statistic is ours without its check of domains."""

    def __init__(self, *args, **options):
        self._inner = fed.metrics.PerDomainMetric(*args, **options)

    def zero(self):
        return self._inner.zero().stat

    def evaluate_example(self, example, prediction):
        return self._inner.evaluate_example(example, prediction).stat


metrics = types.SimpleNamespace(
    **{name: getattr(fed.metrics, name) for name in fed.metrics.__all__} | {"PerDomainMetric": PerDomainMetric},
    unreduced_cross_entropy_loss=fed.metrics.sparse_categorical_crossentropy,
)


def model_of_loss(per_example_loss, params=None, regularizer=None):
    """A model whose predictions are its losses."""

    def apply_for_train(weights, batch, rng):
        losses = per_example_loss(weights, batch, rng)
        if regularizer is None:
            return losses
        return fed.TrainOutput(losses, (), regularizer(weights))

    def apply_for_eval(weights, batch):
        losses = per_example_loss(weights, batch, jax.random.PRNGKey(0))
        return losses if regularizer is None else losses + regularizer(weights)

    return fed.Model(lambda key: params, apply_for_train, apply_for_eval, lambda batch, losses: losses)


def grad(per_example_loss, regularizer=None):
    return fed.model_grad(model_of_loss(per_example_loss), regularizer)


def evaluate_average_loss(params, batches, rng, per_example_loss, regularizer=None):
    evaluator = fed.AverageLossEvaluator(per_example_loss, regularizer)
    ((_, loss),) = evaluator.evaluate_global_params(params, [(None, batches, rng)])
    return loss


class ModelEvaluator(fed.ModelEvaluator):
    """FedJAX has no metric ``loss`` of its own."""

    def __init__(self, model):
        super().__init__(model.replace(train_loss=lambda batch, out: jnp.zeros(len(batch["y"]))))
        self._names = list(model.eval_metrics)

    def evaluate_global_params(self, params, clients):
        for client_id, found in super().evaluate_global_params(params, clients):
            yield client_id, {name: found[name] for name in self._names}

    def evaluate_per_client_params(self, clients):
        for client_id, found in super().evaluate_per_client_params(clients):
            yield client_id, {name: found[name] for name in self._names}


def model_of(init, *functions, **named):
    return fed.Model(init or (lambda key: None), *functions, **named)


models = types.SimpleNamespace(
    AverageLossEvaluator=fed.AverageLossEvaluator,
    Model=model_of,
    ModelEvaluator=ModelEvaluator,
    create_model_from_haiku=fed.create_model_from_haiku,
    create_model_from_stax=fed.create_model_from_stax,
    evaluate_average_loss=evaluate_average_loss,
    evaluate_model=fed.evaluate_model,
    grad=grad,
    model_grad=fed.model_grad,
    model_per_example_loss=fed.model_per_example_loss,
)


def ignore_grads_haiku(optimizer, non_trainable_names):
    def without(updates, params):
        names = {m: {name: (m, name) in non_trainable_names for name in own} for m, own in updates.items()}
        leaves = zip(jax.tree.leaves(names), jax.tree.leaves(updates), strict=True)
        return jax.tree.unflatten(jax.tree.structure(updates), [0 * u if ignored else u for ignored, u in leaves])

    return fed.optimizers.create_optimizer_from_optax(optax.chain(optimizer, optax.stateless(without)))


optimizers = types.SimpleNamespace(
    **{name: getattr(fed.optimizers, name) for name in fed.optimizers.__all__}, ignore_grads_haiku=ignore_grads_haiku
)


def l2_regularizer(weight, center_params=None, params_weights=None):
    def regularizer(params):
        away = params if center_params is None else optax.tree.sub(params, center_params)
        squares = jax.tree.map(jnp.square, away)
        squares = squares if params_weights is None else optax.tree.mul(squares, params_weights)
        return weight * optax.tree.sum(squares)

    return regularizer


regularizers = types.SimpleNamespace(l2_regularizer=l2_regularizer)


def safe_div(a, b):
    return fed.metrics.MeanStat(a, b).result()


def import_tf():
    import tensorflow

    return tensorflow


util = types.SimpleNamespace(safe_div=safe_div, import_tf=import_tf)


class Aggregator(NamedTuple):
    init: Any
    apply: Any


class CompressionState(NamedTuple):
    num_bits: Any
    rng: Any


def aggregator_of(factory, rng=None):
    made = {}

    def apply(clients, state):
        updates, weights = zip(*((params, weight) for _, params, weight in clients), strict=True)
        if not made:
            process = factory.create(updates[0])
            made.update(first=process.initialize(), next=jax.jit(process.next))
        key, own = jax.random.split(jax.random.key(0) if rng is None else state.rng)
        count = len(updates)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *updates)
        given = ClientUpdates(stacked, jnp.float32(weights), jnp.ones(count, bool), jnp.arange(count))
        found = made["next"](made["first"], given, own)
        bits = found.measurements.get("compression", {}).get("bits_per_client", 0)
        return found.result, CompressionState(bits if rng is None else state.num_bits + bits, key)

    return Aggregator(lambda: CompressionState(0.0, rng), apply)


aggregator = types.SimpleNamespace(mean_aggregator=lambda: aggregator_of(fed.aggregators.MeanFactory()))


def coded(codec, vector, rng):
    """A vector after a code."""
    flat = jnp.ravel(vector)
    return codec.decode(codec.encode(flat, rng, rng), flat.size, rng, rng).reshape(vector.shape)


def quantize(vector, num_levels, rng):
    return coded(fed.aggregators.UniformQuantizer(num_levels), vector, rng)


def quantizer_of(codec, rng):
    return aggregator_of(fed.aggregators.CompressionFactory(codec), rng)


def uniform_quantizer(num_levels, rng, encode_algorithm=None):
    coding = "entropy" if encode_algorithm else "fixed"
    return quantizer_of(fed.aggregators.UniformQuantizer(num_levels, coding=coding), rng)


def entropy_bits(vector):
    codec = fed.aggregators.UniformQuantizer(len(jnp.unique(vector)), coding="entropy")
    return codec.bits(codec.encode(vector, *[jax.random.key(0)] * 2), vector.size)


compression = types.SimpleNamespace(
    arithmetic_encoding_num_bits=entropy_bits,
    binary_stochastic_quantize=lambda vector, rng: quantize(vector, 2, rng),
    drive_pytree=lambda tree: jax.tree.map(lambda x: coded(fed.aggregators.Drive(), x, jax.random.key(0)), tree),
    num_leaves=lambda tree: len(jax.tree.leaves(tree)),
    rotated_uniform_stochastic_quantizer=lambda levels, rng: quantizer_of(
        fed.aggregators.RotatedUniformQuantizer(levels), rng
    ),
    structured_drive_quantizer=lambda rng: quantizer_of(fed.aggregators.Drive(), rng),
    terngrad_quantize=lambda vector, rng: coded(fed.aggregators.TernGrad(clip_stddevs=2.5), vector, rng),
    terngrad_quantizer=lambda rng: quantizer_of(fed.aggregators.TernGrad(clip_stddevs=2.5), rng),
    uniform_stochastic_quantize=quantize,
    uniform_stochastic_quantizer=uniform_quantizer,
)


class Backend:
    """A backend, which has a name here."""

    name = ""

    def __init__(self, devices=None):
        self._mesh = None if devices is None else jax.make_mesh((len(devices),), ("clients",), devices=devices)

    def __call__(self, *functions):
        each = fed.for_each_client(*functions, True, backend=self.name, mesh=self._mesh)
        by_stage = dict(zip(("client_init", "client_step", "client_final"), functions, strict=True))

        def run(shared_input, clients):
            try:
                yield from each(shared_input, clients)
            except ForEachClientError as error:
                stage = error.stage.split()[0]
                context = {"shared_input" if k == "message" else k: v for k, v in error.context.items()}
                raise ForEachClientError(error.base, stage, **context, **{stage: by_stage[stage]}) from error

        return run


KINDS = {
    name: type(f"ForEachClient{kind}Backend", (Backend,), {"name": name})
    for name, kind in {"jit": "Jit", "debug": "Debug", "sharded": "Pmap"}.items()
}
CHOSEN = {}


def get_backend():
    name = fed.get_for_each_client_backend()
    return CHOSEN.setdefault(name, KINDS[name]())


def set_backend(backend):
    if isinstance(backend, Backend):
        CHOSEN[backend.name] = backend
        backend = backend.name
    elif backend is None:
        CHOSEN.clear()
    fed.set_for_each_client_backend(backend)


@contextlib.contextmanager
def chosen_backend(backend):
    before = get_backend()
    set_backend(backend)
    try:
        yield
    finally:
        set_backend(before)


for_each_client = types.SimpleNamespace(
    **{kind.__name__: kind for kind in KINDS.values()},
    ForEachClientBackend=Backend,
    ForEachClientError=ForEachClientError,
    for_each_client=fed.for_each_client,
    for_each_client_backend=chosen_backend,
    get_for_each_client_backend=get_backend,
    set_for_each_client_backend=set_backend,
)
tree_util = fed.tree_util
