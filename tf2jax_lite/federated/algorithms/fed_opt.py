"""Adaptive server optimizers by name.

Source: Reddi et al. 2020, "Adaptive Federated Optimization".
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.algorithms.tff_keywords import takes_tff_keywords
from tf2jax_lite.federated.models.model import Model
from tf2jax_lite.federated.templates.client_work import ClientOptimizer
from tf2jax_lite.federated.templates.compose import LearningState
from tf2jax_lite.federated.templates.process import LearningProcess
from tf2jax_lite.support.errors import InputError

PyTree = Any
ADAPTIVE = ("adagrad", "adam", "yogi")
SERVER_OPTIMIZERS = ("adagrad", "adam", "momentum", "sgd", "yogi")


class _Moments(NamedTuple):
    count: Any
    first: PyTree
    second: PyTree


def _second_moment(name: str, beta_2: float, v: Any, square: Any) -> Any:
    if name == "adagrad":
        return v + square
    if name == "adam":
        return v + (1 - beta_2) * (square - v)
    return v - (1 - beta_2) * square * jnp.sign(v - square)


def _adaptive(name: str, beta_1: float, beta_2: float, tau: float, start: float) -> optax.GradientTransformation:
    """Return the paper's step for a rate of 1, as TFF and the paper's code.

    optax's have tau elsewhere: its Adam and Yogi correct the moments and not the rate, its Adagrad has it under the
    root; and its Yogi starts the first moment above 0, which moves weights that no client has moved.
    """

    def init(params: PyTree) -> _Moments:
        # In half precision a sum of 256 times the increment no longer changes.
        wide = jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.promote_types(w.dtype, jnp.float32)), params)
        first = () if name == "adagrad" else wide
        return _Moments(jnp.int32(0), first, jax.tree.map(lambda w: jnp.full_like(jnp.abs(w), start), wide))

    def update(grads: PyTree, state: _Moments, params: PyTree = None) -> tuple[PyTree, _Moments]:
        count = state.count + 1
        second = jax.tree.map(
            lambda v, g: _second_moment(name, beta_2, v, jnp.square(jnp.abs(g).astype(v.dtype))), state.second, grads
        )
        rate, first = 1.0, grads
        if name != "adagrad":
            first = jax.tree.map(lambda m, g: m + (1 - beta_1) * (g.astype(m.dtype) - m), state.first, grads)
            rate = jnp.sqrt(1 - beta_2 ** count.astype(jnp.float32)) / (1 - beta_1 ** count.astype(jnp.float32))

        def step(m: Any, v: Any, g: Any) -> Any:
            below = jnp.sqrt(v) + tau
            # Nothing has moved where both are 0, which may be where tau is.
            found = jnp.where(below > 0, m / jnp.where(below > 0, below, 1), 0)
            return (rate * found).astype(g.dtype)

        updates = jax.tree.map(step, first, second, grads)
        return updates, _Moments(count, state.first if name == "adagrad" else first, second)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def server_optimizer(
    name: str,
    learning_rate: Any,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.99,
    tau: float = 1e-3,
    initial_accumulator_value: float = 0.0,
) -> optax.GradientTransformation:
    """Return a server optimizer with the paper's defaults.

    With m and v the moments of the aggregate, Adam and Yogi step by
    ``learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + tau)`` in round t, as Keras and TFF do, and
    Adagrad by ``learning_rate * g / (sqrt(v) + tau)``. Moments of 16-bit weights are float32.

    Args:
      name: one of `SERVER_OPTIMIZERS`.
      learning_rate: a float, or a schedule: a function of the round's number, from 0.
      beta_1: decay of the first moment, or of the momentum; in [0, 1).
      beta_2: decay of the second moment; in [0, 1).
      tau: the degree of adaptivity, added to the root of the second moment; 0 or more.
      initial_accumulator_value: where the second moment starts; 0 or more. TFF's own Yogi has 1e-6, its Adagrad 0.1.

    Raises:
      InputError: no such optimizer, or a number out of range.
    """
    check = functools.partial(check_number, "server_optimizer")
    _check_rate(learning_rate)
    check("beta_1", beta_1, least=0, below=1)
    check("beta_2", beta_2, least=0, below=1)
    check("tau", tau, least=0)
    check("initial_accumulator_value", initial_accumulator_value, least=0)
    if name in ADAPTIVE:
        # A number of NumPy's would widen 16-bit weights.
        step = _adaptive(name, float(beta_1), float(beta_2), float(tau), float(initial_accumulator_value))
        return optax.chain(step, optax.scale_by_learning_rate(learning_rate))
    if name == "momentum":
        return optax.sgd(learning_rate, momentum=float(beta_1))
    if name == "sgd":
        return optax.sgd(learning_rate)
    raise InputError(f"no server optimizer {name!r}; there are {', '.join(SERVER_OPTIMIZERS)}")


def _check_rate(learning_rate: Any) -> None:
    if not callable(learning_rate):  # no schedule
        check_number("server_optimizer", "learning_rate", learning_rate, above=0)


@takes_tff_keywords
def build_fed_opt(
    model: Model,
    client_optimizer: ClientOptimizer,
    optimizer: str | optax.GradientTransformation = "adam",
    learning_rate: Any = 1e-2,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build FedOpt: FedAvg with an adaptive optimizer at the server.

    FedAdam, FedYogi, FedAdagrad and FedAvgM are its cases.

    Args:
      model: the model.
      client_optimizer: see `build_weighted_fed_avg`.
      optimizer: a name for `server_optimizer`, or an optax transformation.
      learning_rate: of a named optimizer.
      **options: see `build_weighted_fed_avg`.

    Raises:
      InputError: no such optimizer, or an option that does not fit.
    """
    server = server_optimizer(optimizer, learning_rate) if isinstance(optimizer, str) else optimizer
    return build_weighted_fed_avg(model, client_optimizer, server, **options)
