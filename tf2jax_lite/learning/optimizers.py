"""Optimizers by name: optax's, and the server's adaptive ones."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.options import OptimizerOptions
from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.support.errors import InputError

_MAKERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
    "yogi": optax.yogi,
    "lamb": optax.lamb,
    "lion": optax.lion,
}
OPTIMIZERS = tuple(_MAKERS)
SCHEDULES = ("constant", "cosine", "linear")
_DECAYING = ("adamw", "lamb", "lion")
_WITH_MOMENTUM = ("sgd", "rmsprop")


def named_optimizer(
    name: str,
    learning_rate: float,
    *,
    momentum: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    schedule: str = "constant",
    warmup_steps: int = 0,
    total_steps: int | None = None,
) -> optax.GradientTransformation:
    """Return an optimizer.

    Args:
      name: one of `OPTIMIZERS`.
      learning_rate: above 0; the highest one, with a schedule.
      momentum: of sgd and rmsprop, in [0, 1).
      weight_decay: of adamw, lamb and lion; optax's default if None.
      clip_norm: scales gradients down to this L2 norm first.
      schedule: "constant", or "cosine" or "linear", which decay to 0 at ``total_steps``.
      warmup_steps: steps in which the rate rises linearly from 0.
      total_steps: total number of steps.

    Raises:
      InputError: no such name, or an option that is out of range or does not go with the optimizer.
    """
    if name not in _MAKERS:
        raise InputError(f"no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
    if not 0 < learning_rate < math.inf:
        raise InputError(f"the learning rate is a finite number above 0, not {learning_rate}")
    options: dict[str, Any] = {}
    if momentum is not None:
        if name not in _WITH_MOMENTUM or not 0 <= momentum < 1:
            raise InputError(f"momentum is in [0, 1) and goes with {', '.join(_WITH_MOMENTUM)}; not {momentum}, {name}")
        options["momentum"] = momentum
    if weight_decay is not None:
        if name not in _DECAYING or not 0 <= weight_decay < math.inf:
            raise InputError(
                f"weight decay is 0 or more and goes with {', '.join(_DECAYING)}; not {weight_decay}, {name}"
            )
        options["weight_decay"] = weight_decay
    rate = _schedule(schedule, learning_rate, warmup_steps, total_steps)
    optimizer = _MAKERS[name](rate, **options)
    if clip_norm is None:
        return optimizer
    if not clip_norm > 0:
        raise InputError(f"clip_norm is above 0, not {clip_norm}")
    return optax.chain(optax.clip_by_global_norm(clip_norm), optimizer)


def chosen_optimizer(options: OptimizerOptions, total_steps: int, names: Sequence[str]) -> optax.GradientTransformation:
    """Return the optimizer of options.

    Args:
      options: see `named_optimizer` and `with_multipliers`.
      total_steps: total number of steps.
      names: of the params that train.

    Raises:
      InputError: an option is out of range or does not go with the optimizer.
    """
    found = named_optimizer(
        options.optimizer,
        options.learning_rate,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        clip_norm=options.clip_norm,
        schedule=options.schedule,
        warmup_steps=options.warmup_steps,
        total_steps=total_steps,
    )
    return with_multipliers(found, options.lr_multipliers, names) if options.lr_multipliers else found


def with_multipliers(
    optimizer: optax.GradientTransformation, multipliers: Sequence[str], names: Sequence[str]
) -> optax.GradientTransformation:
    """Return an optimizer with learning rates by param.

    Args:
      optimizer: the optimizer.
      multipliers: rules ``REGEX=FACTOR``; the first whose pattern a param's name has scales its steps.
      names: those of the params that train, for the check that each rule matches one.

    Raises:
      InputError: a rule cannot be read, or matches no param.
    """
    rules = [_multiplier(rule) for rule in multipliers]
    for pattern, _ in rules:
        if not any(pattern.search(name) for name in names):
            raise InputError(f"no trained param's name matches {pattern.pattern!r}; there are {sorted(names)[:20]}.")

    def scaled(path: Any, update: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        factor = next((factor for pattern, factor in rules if pattern.search(name)), 1.0)
        return update if factor == 1 else update * jnp.asarray(factor, update.dtype)

    return optax.chain(optimizer, optax.stateless(lambda updates, params: jax.tree.map_with_path(scaled, updates)))


def _multiplier(rule: str) -> tuple[re.Pattern[str], float]:
    pattern, _, text = rule.rpartition("=")
    try:
        factor = float(text)
        if pattern and 0 <= factor < math.inf:
            return re.compile(pattern), factor
    except (ValueError, re.error):
        pass
    raise InputError(f"a learning rate's multiplier is REGEX=FACTOR with a factor of 0 or more, not {rule!r}.")


def named_server_optimizer(
    name: str, learning_rate: float, *, momentum: float | None = None, tau: float | None = None
) -> optax.GradientTransformation:
    """Return a federated server's optimizer.

    Adam, yogi and adagrad are those of FedAdam, FedYogi and FedAdagrad.

    Args:
      name: one of `OPTIMIZERS`.
      learning_rate: above 0.
      momentum: of sgd and rmsprop, in [0, 1).
      tau: of adam, yogi and adagrad, the degree of adaptivity, 0 or more; 1e-3 if None. See `server_optimizer`.

    Raises:
      InputError: no such name, or an option that is out of range or does not go with the optimizer.
    """
    if tau is not None and name not in ADAPTIVE:
        raise InputError(f"tau goes with {', '.join(ADAPTIVE)}; not with {name}")
    plain = named_optimizer(name, learning_rate, momentum=momentum)
    if name not in ADAPTIVE:
        return plain
    return server_optimizer(name, learning_rate, **({} if tau is None else {"tau": tau}))


def _schedule(kind: str, rate: float, warmup: int, total: int | None) -> Any:
    if kind not in SCHEDULES:
        raise InputError(f"no schedule {kind!r}; there are {', '.join(SCHEDULES)}")
    if warmup < 0:
        raise InputError(f"warmup_steps is 0 or more, not {warmup}")
    if kind == "constant":
        return optax.linear_schedule(0.0, rate, warmup) if warmup else rate
    if total is None or total <= warmup:
        raise InputError(f"a {kind} schedule needs more steps in total than {warmup} of warm-up; there are {total}")
    if kind == "cosine":
        main = optax.cosine_decay_schedule(rate, total - warmup)
    else:
        main = optax.linear_schedule(rate, 0.0, total - warmup)
    return optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), main], [warmup]) if warmup else main


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
