"""Optimizers with FedJAX's interface, which are optax's as well.

Source: fedjax.optimizers. Each function takes the arguments of optax's function of the same name.
"""

from __future__ import annotations

from typing import Any

import optax

__all__ = ["Optimizer", "adagrad", "adam", "create_optimizer_from_optax", "rmsprop", "sgd", "yogi"]


class Optimizer(optax.GradientTransformation):
    """An optax transformation with FedJAX's `apply`.

    Attributes:
      init: optax's ``(params) -> state``.
      update: optax's ``(updates, state, params) -> (updates, state)``.
    """

    def apply(self, grads: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
        """Return ``(opt_state, params)`` after a step."""
        updates, opt_state = self.update(grads, opt_state, params)
        return opt_state, optax.apply_updates(params, updates)


def create_optimizer_from_optax(opt: optax.GradientTransformation) -> Optimizer:
    """Return an optax transformation with `Optimizer.apply`.

    Args:
      opt: the transformation.
    """
    return Optimizer(opt.init, opt.update)


def sgd(learning_rate: Any, *args: Any, **kwargs: Any) -> Optimizer:
    """Return `optax.sgd`.

    Args:
      learning_rate: a number, or a schedule of optax.
      *args: of optax.
      **kwargs: of optax.
    """
    return create_optimizer_from_optax(optax.sgd(learning_rate, *args, **kwargs))


def adam(learning_rate: Any, *args: Any, **kwargs: Any) -> Optimizer:
    """Return `optax.adam`.

    Args:
      learning_rate: a number, or a schedule of optax.
      *args: of optax.
      **kwargs: of optax.
    """
    return create_optimizer_from_optax(optax.adam(learning_rate, *args, **kwargs))


def adagrad(learning_rate: Any, initial_accumulator_value: float = 0.1, eps: float = 1e-6) -> Optimizer:
    """Return `optax.adagrad` with FedJAX's epsilon.

    Args:
      learning_rate: a number, or a schedule of optax.
      initial_accumulator_value: of the sum of squares.
      eps: added to it.
    """
    return create_optimizer_from_optax(optax.adagrad(learning_rate, initial_accumulator_value, eps))


def rmsprop(learning_rate: Any, *args: Any, **kwargs: Any) -> Optimizer:
    """Return `optax.rmsprop`.

    Args:
      learning_rate: a number, or a schedule of optax.
      *args: of optax.
      **kwargs: of optax.
    """
    return create_optimizer_from_optax(optax.rmsprop(learning_rate, *args, **kwargs))


def yogi(learning_rate: Any, *args: Any, **kwargs: Any) -> Optimizer:
    """Return `optax.yogi`.

    Args:
      learning_rate: a number, or a schedule of optax.
      *args: of optax.
      **kwargs: of optax.
    """
    return create_optimizer_from_optax(optax.yogi(learning_rate, *args, **kwargs))
