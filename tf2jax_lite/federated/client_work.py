"""The work of a client in a round, and weights that stay with clients.

A runner may loop, scan or vmap over clients.

Sources: tff.learning.templates.ClientWorkProcess; the split into init, step and final is fedjax.for_each_client's; Li
et al. 2021 (FedBN) and Arivazhagan et al. 2019 (FedPer) for the weights that stay.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators.compression import Codec
from tf2jax_lite.learning.checks import check_number, immutable
from tf2jax_lite.learning.metrics import MeanStat, Metric, SumStat, check_metrics, evaluate_batch
from tf2jax_lite.learning.model import (
    BatchLoss,
    Model,
    changing_leaves,
    changing_values,
    check_model,
    counted_mask,
    gradient_step,
    model_value_and_grad,
    pads_batches,
    split_mask,
    with_cpu_rules,
)
from tf2jax_lite.learning.process import MeasuredProcessOutput, ModelWeights, PyTree
from tf2jax_lite.learning.states import ByClient
from tf2jax_lite.support.errors import InputError


class ClientWeighting(enum.StrEnum):
    """How clients are weighted in a mean; options take the strings as well."""

    NUM_EXAMPLES = "num_examples"
    UNIFORM = "uniform"


# An optimizer, or a function that makes one for the round (an int32 scalar, traced): a schedule over rounds.
ClientOptimizer = optax.GradientTransformation | Callable[[Any], optax.GradientTransformation]
ValueAndGrad = Callable[[ModelWeights, Mapping[str, Any], Any], tuple[BatchLoss, PyTree]]


class ClientResult(NamedTuple):
    """A client's reply. See tff.learning.templates.ClientResult.

    Attributes:
      update: pytree for the aggregator. Differences of weights are *initial minus final*, as in TFF and FedJAX: a
        server optimizer takes their aggregate for a gradient.
      update_weight: float32 scalar, the client's weight in the mean; 0 or more.
      non_trainable: list of differences, initial minus final, of the non-trainable leaves that training changes;
        averaged by ``update_weight``.
      measurements: pytree of `Stat`s or arrays; summed over clients.
      output: pytree that is returned for each client (stacked); for the server's state by client.
    """

    update: PyTree
    update_weight: Any
    non_trainable: Sequence[Any] = ()
    measurements: PyTree = ()
    output: PyTree = ()


@dataclasses.dataclass(frozen=True, eq=False)
class ClientWork:
    """The work of one client, and the server's state about it.

    All functions are pure and can be jitted. ``message`` is the distributor's message, usually `ModelWeights`. A batch
    is a dict of arrays of shape (n, ...). Padded ones have ``"__mask__"``, bool (n,); filled ones ``"__fill__"``, which
    is True for examples that train and count nowhere else. Swap one function with `dataclasses.replace`.

    Attributes:
      initialize: ``() -> state``.
      client_init: ``(state, message, key, client_input) -> carry``. ``key`` is the client's, ``client_input``
        the algorithm's input for this client (or None).
      client_step: ``(state, message, carry, batch) -> carry``. For a batch of padding alone the runner
        drops the result. If ``has_step_results``, ``-> (carry, result)``.
      client_final: ``(state, message, carry) -> ClientResult``.
      advance: ``(state) -> state``, once a round.
      pads_batches: whether a short batch may be padded, or ``(batch) -> whether``, for a dict of shapes (n, ...); False
        where examples act on each other.
      counts_examples: whether a client's weight is the number of examples in its batches (or the sum of their weights).
        Examples that fill the last batch from a further epoch are then ignored, as in FedJAX.
      drops_fill: whether those examples are left out altogether, and the last batch is short: where a result is a sum
        or a mean over the client's examples. In training step by step they take part, as in FedJAX.
      has_step_results: whether steps have results of their own, as those of `for_each_client`.
      weights_of: ``(update) -> difference of weights``, for updates that have other parts.
      prepare: ``(examples, client_input, name) -> (examples, client_input)`` in NumPy, of each client before it runs;
        None to leave both as they are. ``name`` is the client's in errors.
    """

    initialize: Callable[[], PyTree]
    client_init: Callable[[PyTree, PyTree, Any, PyTree], PyTree]
    client_step: Callable[[PyTree, PyTree, PyTree, Mapping[str, Any]], PyTree]
    client_final: Callable[[PyTree, PyTree, PyTree], ClientResult]
    advance: Callable[[PyTree], PyTree] = lambda state: state
    pads_batches: bool | Callable[[Mapping[str, Any]], bool] = True
    counts_examples: bool = False
    drops_fill: bool = False
    has_step_results: bool = False
    weights_of: Callable[[PyTree], PyTree] = lambda update: update
    prepare: Callable[[Mapping[str, np.ndarray], PyTree, str], tuple[Mapping[str, np.ndarray], PyTree]] | None = None

    def step(self, state: PyTree, message: PyTree, carry: PyTree, batch: Mapping[str, Any]) -> tuple[PyTree, PyTree]:
        """Return the carry after a step, and the step's result; ``()`` if it has none."""
        found = self.client_step(state, message, carry, batch)
        return found if self.has_step_results else (found, ())

    def next(
        self, state: PyTree, message: PyTree, batches: Iterable[Mapping[str, Any]], key: Any, client_input: Any = None
    ) -> MeasuredProcessOutput:
        """Do one client's work batch by batch: the reference for all runners.

        Returns:
          The state of the next round, the `ClientResult`, and its measurements.
        """
        state, message, client_input = immutable((state, message, client_input))
        carry = self.client_init(state, message, key, client_input)
        for batch in batches:
            carry = self.client_step(state, message, carry, immutable(batch))
        result = self.client_final(state, message, carry)
        return MeasuredProcessOutput(self.advance(state), result, {"train": result.measurements})


ClientWorkProcess = ClientWork  # TFF's name


class _Carry(NamedTuple):
    trainable: PyTree
    non_trainable: PyTree  # None for leaves that training does not change
    optimizer: PyTree
    key: Any
    step: Any
    weight: Any
    measurements: PyTree


def optimizer_of(optimizer: ClientOptimizer, round_number: Any) -> optax.GradientTransformation:
    """Return the optimizer of a round.

    Raises:
      InputError: it is neither an optimizer nor a function that returns one.
    """
    found: Any = optimizer(round_number) if _is_of_the_round(optimizer) else optimizer  # type: ignore[operator]
    if not (hasattr(found, "init") and hasattr(found, "update")):
        raise InputError(
            f"a client optimizer is an optax.GradientTransformation, or a function from the round's number to one; got "
            f"{type(found).__name__}"
        )
    return found  # type: ignore[return-value]


def _is_of_the_round(optimizer: Any) -> bool:
    """Return whether the optimizer is created in each round, of unknown kind."""
    return callable(optimizer) and not isinstance(optimizer, tuple)


def client_weight(weighting: ClientWeighting | str, weight: Any) -> Any:
    """Return a client's weight, float32.

    The sum of its examples' weights (usually their number), or 1 if not 0.

    Raises:
      InputError: an unknown kind of weighting.
    """
    if weighting == "num_examples":
        return weight.astype(jnp.float32)
    if weighting == "uniform":
        return (weight > 0).astype(jnp.float32)
    raise InputError(f"client_weighting is 'num_examples' or 'uniform', not {weighting!r}")


def round_counter() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return ``(initialize, advance)`` of a state that counts rounds, int32."""
    return lambda: jnp.int32(0), lambda state: state + 1


def _changing(model: Model, non_trainable: PyTree) -> PyTree:
    """Return the non-trainable weights with None for leaves that stay in training."""
    leaves, structure = jax.tree.flatten(non_trainable)
    flags = changing_leaves(model, non_trainable)
    return jax.tree.unflatten(structure, [leaf if flag else None for flag, leaf in zip(flags, leaves, strict=True)])


def _completed(changing: PyTree, message: ModelWeights) -> PyTree:
    """Return the non-trainable weights: those of ``changing``, or else the message's."""
    return jax.tree.map(
        lambda new, old: old if new is None else new, changing, message.non_trainable, is_leaf=lambda leaf: leaf is None
    )


def non_trainable_delta(model: Model, message: ModelWeights, changed: list[Any]) -> list[Any]:
    """Return each changing leaf's initial minus final value; integers stay."""
    return [
        old - new if jnp.issubdtype(old.dtype, jnp.inexact) else jnp.zeros_like(old)
        for new, old in zip(changed, changing_values(model, message.non_trainable), strict=True)
    ]


def _train_stats(metrics: Mapping[str, Metric], aux: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    count = aux.num_examples
    stats: dict[str, Any] = {
        "loss": MeanStat.new(aux.loss * count.astype(aux.loss.dtype), count),
        "num_examples": SumStat(count),
    }
    if metrics:
        examples, counted = split_mask(batch)[0], counted_mask(batch)
        stats |= {name: evaluate_batch(m, examples, aux.predictions, counted) for name, m in metrics.items()}
    return stats


def _zero_stats(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    zero = {"loss": MeanStat(jnp.float32(0), jnp.int32(0)), "num_examples": SumStat(jnp.int32(0))}
    return zero | {name: metric.zero() for name, metric in metrics.items()}


def _add(total: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    def cast(new: Any, old: Any) -> Any:
        return new.astype(old.dtype)

    # A loop's carry keeps its dtypes: a loss may be wider than the statistic that it is added to.
    return {name: jax.tree.map(cast, total[name].merge(stat), total[name]) for name, stat in stats.items()}


def build_model_delta_client_work(
    model: Model,
    optimizer: ClientOptimizer,
    *,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    proximal_strength: float = 0.0,
    train_metrics: Mapping[str, Metric] | None = None,
    example_weight: Callable[[Mapping[str, Any]], Any] | None = None,
    total_weight: Any = None,
    gradient: Callable[[ValueAndGrad], ValueAndGrad] = lambda value_and_grad: value_and_grad,
) -> ClientWork:
    """Make the client work that trains and sends the difference of the weights.

    Args:
      model: the model.
      optimizer: an optax transformation, new for each client and round; or a function ``(round) -> transformation``.
      client_weighting: weight in the mean by number of examples (of each epoch, as TFF counts), or the same for all.
      proximal_strength: mu of FedProx (Li et al. 2018): adds mu/2 times the squared distance from the weights received.
      train_metrics: more metrics of predictions in training mode, beside ``loss`` and ``num_examples``.
      example_weight: ``(batch) -> (n,)``, weights of the examples in a batch's mean loss, and in the client's weight.
      total_weight: see `model_value_and_grad`.
      gradient: returns the gradient of another loss, of that of the model's; `model_value_and_grad` has its form.

    Returns:
      The client work; its update is the initial minus the final trainable weights. Its carry is a named tuple of
      ``trainable`` and ``non_trainable`` weights (None for leaves that training does not change), ``optimizer``,
      ``key``, ``step``, ``weight`` and ``measurements``. See tff.learning.templates.build_model_delta_client_work.

    Raises:
      InputError: an option out of range.
    """
    check_number("build_model_delta_client_work", "proximal_strength", proximal_strength, least=0)
    if not _is_of_the_round(optimizer):
        optimizer_of(optimizer, 0)
    client_weight(client_weighting, jnp.float32(0))
    metrics = check_metrics("build_model_delta_client_work", "train_metrics", train_metrics)
    model = check_model(model)
    value_and_grad = gradient(model_value_and_grad(with_cpu_rules(model), example_weight, total_weight))
    initialize, advance = round_counter()

    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> _Carry:
        opt = optimizer_of(optimizer, state)
        return _Carry(
            message.trainable,
            _changing(model, message.non_trainable),
            opt.init(message.trainable),
            key,
            jnp.int32(0),
            jnp.float32(0),
            _zero_stats(metrics),
        )

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        def proximal(grads: PyTree) -> PyTree:
            return jax.tree.map(
                lambda g, w, w0: g + proximal_strength * (w - w0), grads, carry.trainable, message.trainable
            )

        weights, opt_state, aux = gradient_step(
            value_and_grad,
            optimizer_of(optimizer, state),
            ModelWeights(carry.trainable, _completed(carry.non_trainable, message)),
            carry.optimizer,
            batch,
            jax.random.fold_in(carry.key, carry.step),
            proximal if proximal_strength else None,
        )
        return _Carry(
            weights.trainable,
            _changing(model, weights.non_trainable),
            opt_state,
            carry.key,
            carry.step + 1,
            carry.weight + aux.weight,
            _add(carry.measurements, _train_stats(metrics, aux, batch)),
        )

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        return ClientResult(
            optax.tree.sub(message.trainable, carry.trainable),
            client_weight(client_weighting, carry.weight),
            non_trainable_delta(model, message, jax.tree.leaves(carry.non_trainable)),
            carry.measurements,
        )

    counts = client_weighting == "num_examples"
    return ClientWork(initialize, client_init, client_step, client_final, advance, pads_batches(model), counts)


def build_fed_sgd_client_work(
    model: Model,
    *,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
) -> ClientWork:
    """Make the client work that sends a gradient at the received weights.

    It is that of the mean loss over all the client's examples, each as often as the epochs have it. See
    tff.learning.algorithms.build_fed_sgd.

    Args:
      model: the model.
      client_weighting: weights by examples, or equal ones.
      train_metrics: name to metric, over the clients' examples.
    """
    client_weight(client_weighting, jnp.float32(0))
    metrics = check_metrics("build_fed_sgd_client_work", "train_metrics", train_metrics)
    model = check_model(model)
    value_and_grad = model_value_and_grad(with_cpu_rules(model))
    initialize, advance = round_counter()

    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> _Carry:
        # Half precision stands still at 256 times a number, and rounds counts.
        zeros = jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.promote_types(w.dtype, jnp.float32)), message.trainable)
        changing = _changing(model, message.non_trainable)
        return _Carry(zeros, changing, (), key, jnp.int32(0), jnp.float32(0), _zero_stats(metrics))

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        weights = ModelWeights(message.trainable, _completed(carry.non_trainable, message))
        aux, grads = value_and_grad(weights, batch, jax.random.fold_in(carry.key, carry.step))
        total = jax.tree.map(
            lambda t, g: t + g.astype(t.dtype) * aux.num_examples.astype(t.dtype), carry.trainable, grads
        )
        return _Carry(
            total,
            _changing(model, aux.non_trainable),
            (),
            carry.key,
            carry.step + 1,
            carry.weight + aux.weight,
            _add(carry.measurements, _train_stats(metrics, aux, batch)),
        )

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        count = jnp.maximum(carry.weight, 1)
        return ClientResult(
            jax.tree.map(lambda t, w: (t / count.astype(t.dtype)).astype(w.dtype), carry.trainable, message.trainable),
            client_weight(client_weighting, carry.weight),
            non_trainable_delta(model, message, jax.tree.leaves(carry.non_trainable)),
            carry.measurements,
        )

    counts = client_weighting == "num_examples"
    return ClientWork(initialize, client_init, client_step, client_final, advance, pads_batches(model), counts, True)


class _FeedbackCarry(NamedTuple):
    inner: PyTree
    error: PyTree
    key: Any


def with_error_feedback(model: Model, work: ClientWork, codec: Codec) -> tuple[ClientWork, ByClient]:
    """Return client work that sends coded updates, and the clients' first errors.

    A client adds to its update what the code lost of its earlier ones. Pass both results to
    `compose_learning_process`, the second as ``client_states``. Sources: Seide et al. 2014; Karimireddy et al. 2019,
    "Error Feedback Fixes SignSGD and other Gradient Compression Schemes".

    Args:
      model: the model.
      work: client work whose updates have the form of the trainable weights, and whose clients have no state.
      codec: encodes each leaf, such as ``aggregators.TopK(0.01)``.

    Raises:
      InputError: it is not a model, or not a codec.
    """
    if not isinstance(codec, Codec):
        raise InputError(f"with_error_feedback: codec is a Codec, such as TopK(0.01); not {codec!r:.80}.")
    shapes = check_model(model).shapes.trainable
    first = jax.tree.map(lambda t: np.zeros(t.shape, jnp.promote_types(t.dtype, jnp.float32)), shapes)

    def client_init(state: Any, message: PyTree, key: Any, error: PyTree) -> _FeedbackCarry:
        error = jax.tree.map(jnp.asarray, first if error is None else error)
        return _FeedbackCarry(work.client_init(state, message, key, None), error, key)

    def client_step(state: Any, message: PyTree, carry: _FeedbackCarry, batch: Mapping[str, Any]) -> _FeedbackCarry:
        return carry._replace(inner=work.client_step(state, message, carry.inner, batch))

    def client_final(state: Any, message: PyTree, carry: _FeedbackCarry) -> ClientResult:
        found = work.client_final(state, message, carry.inner)
        wanted = jax.tree.map(jnp.add, carry.error, found.update)
        leaves, form = jax.tree.flatten(wanted)
        sent = []
        for leaf, keys in zip(
            leaves, jax.random.split(jax.random.fold_in(carry.key, 1), (len(leaves), 2)), strict=True
        ):
            code = codec.encode(leaf.reshape(-1), *keys)
            sent.append(codec.decode(code, leaf.size, *keys).reshape(leaf.shape))
        decoded = jax.tree.map(lambda s, u: s.astype(u.dtype), form.unflatten(sent), found.update)
        error = jax.tree.map(lambda w, d: w - d, wanted, decoded)
        return found._replace(update=decoded, output=error)

    functions = {"client_init": client_init, "client_step": client_step, "client_final": client_final}
    return dataclasses.replace(work, **functions), ByClient(first)


class _LocalCarry(NamedTuple):
    inner: PyTree
    own: PyTree


def _names(tree: PyTree) -> list[str]:
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]


def _chosen(tree: PyTree, is_local: Callable[[str], bool]) -> dict[str, Any]:
    return {name: leaf for name, leaf in zip(_names(tree), jax.tree.leaves(tree), strict=True) if is_local(name)}


def _replaced(tree: PyTree, own: Mapping[str, Any]) -> PyTree:
    leaves = [own.get(name, leaf) for name, leaf in zip(_names(tree), jax.tree.leaves(tree), strict=True)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def with_local_weights(
    model: Model, work: ClientWork, is_local: Callable[[str], bool], key: Any = None
) -> tuple[ClientWork, ByClient]:
    """Return client work with local weights, and the clients' first ones.

    Local weights stay with each client. The server's local weights are unchanged. Pass both results to
    `compose_learning_process`, the second as ``client_states``.

    Args:
      model: the model.
      work: client work on that model, such as `build_model_delta_client_work` returns.
      is_local: ``(name) -> bool``; names are paths in the pytrees of trainable and of non-trainable weights, with
        slashes.
      key: a JAX key for the first weights; key 0 by default.

    Raises:
      InputError: no weight is local, or it is not a model.
    """
    model = check_model(model)
    shapes = model.shapes
    if not any(is_local(name) for part in shapes for name in _names(part)):
        names = [name for part in shapes for name in _names(part)]
        raise InputError(f"with_local_weights: no weight is local; there are {', '.join(names[:10])}")
    first = model.init(jax.random.key(0) if key is None else key)
    start = {kind: _chosen(part, is_local) for kind, part in zip(ModelWeights._fields, first, strict=True)}
    flags = changing_leaves(model, shapes.non_trainable)
    changing = [name for name, flag in zip(_names(shapes.non_trainable), flags, strict=True) if flag]

    def client_init(state: Any, message: ModelWeights, key: Any, own: Any) -> _LocalCarry:
        own = jax.tree.map(jnp.asarray, start if own is None else own)
        return _LocalCarry(work.client_init(state, _merged(message, own), key, None), own)

    def client_step(state: Any, message: ModelWeights, carry: _LocalCarry, batch: Mapping[str, Any]) -> _LocalCarry:
        return carry._replace(inner=work.client_step(state, _merged(message, carry.own), carry.inner, batch))

    def client_final(state: Any, message: ModelWeights, carry: _LocalCarry) -> ClientResult:
        found = work.client_final(state, _merged(message, carry.own), carry.inner)
        moved = _chosen(found.update, is_local)
        changes = {n: c for n, c in zip(changing, found.non_trainable, strict=True) if is_local(n)}
        own = {kind: dict(part) for kind, part in carry.own.items()}
        for kind, more in (("trainable", moved), ("non_trainable", changes)):
            own[kind] |= {
                name: (own[kind][name] - change).astype(own[kind][name].dtype) for name, change in more.items()
            }
        return found._replace(
            update=_replaced(found.update, jax.tree.map(jnp.zeros_like, moved)),
            non_trainable=[
                jnp.zeros_like(change) if name in changes else change
                for name, change in zip(changing, found.non_trainable, strict=True)
            ],
            output=own,
        )

    local = dataclasses.replace(work, client_init=client_init, client_step=client_step, client_final=client_final)
    return local, ByClient(start)


def _merged(weights: ModelWeights, own: Mapping[str, Any]) -> ModelWeights:
    return ModelWeights(*(_replaced(getattr(weights, kind), own[kind]) for kind in ModelWeights._fields))


def local_model_weights(state: Any, client_id: Any) -> ModelWeights:
    """Return a client's model: the server's weights with the client's local ones.

    Args:
      state: the state of a process with `with_local_weights`.
      client_id: the client; one that never took part has the first weights.
    """
    return _merged(state.weights, state.clients.of(client_id))
