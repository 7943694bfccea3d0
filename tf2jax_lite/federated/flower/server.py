"""A Flower server for a strategy: ours, or one of Flower's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flwr.app import ArrayRecord, MetricRecord
from flwr.app import Context as FlowerContext
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from tf2jax_lite.federated.flower.records import from_arrays, to_arrays
from tf2jax_lite.federated.models.model import Model, check_model
from tf2jax_lite.federated.templates.compose import initial_weights
from tf2jax_lite.federated.templates.process import ModelWeights
from tf2jax_lite.support.errors import InputError

__all__ = ["server_app"]


def server_app(
    strategy: Strategy,
    model: Model,
    *,
    num_rounds: int = 3,
    key: Any = None,
    params: Any = None,
    evaluate_fn: Callable[[int, ModelWeights], Mapping[str, float]] | None = None,
    on_result: Callable[[ModelWeights, Any], None] | None = None,
    timeout: float = 3600.0,
) -> ServerApp:
    """Make a Flower ``ServerApp`` that trains a model.

    Args:
      strategy: a `BlocksStrategy`, or one of ``flwr.serverapp.strategy`` (FedAvg, FedAdam, Krum, ...).
      model: the model; server and clients must have the same.
      num_rounds: rounds of training; the run's ``num-server-rounds`` (``flwr run --run-config``) overrides it.
      key: the JAX key that new weights are drawn with; ``key(0)`` by default.
      params: the weights to begin with, `ModelWeights` or a pytree of the trainable ones, instead of new ones.
      evaluate_fn: ``(round, weights) -> metrics`` at the server, before the first and after each round.
      on_result: called at the end with the weights and Flower's ``Result`` (metrics by round), to save them.
      timeout: seconds to wait for the clients of a round.

    Returns:
      The app, for ``[tool.flwr.app.components]``.

    Raises:
      InputError: ``strategy`` is not a strategy of Flower's message API, or ``num_rounds`` is negative.
    """
    if not isinstance(strategy, Strategy):
        raise InputError(
            f"a strategy is a BlocksStrategy or one of flwr.serverapp.strategy, not {type(strategy).__name__}; the"
            " learning processes of tf2jax_lite simulate their clients: give their blocks to BlocksStrategy"
        )
    if num_rounds < 0:
        raise InputError(f"num_rounds is 0 or more, not {num_rounds}")
    app = ServerApp()
    template = check_model(model).shapes

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        assert evaluate_fn is not None
        found = evaluate_fn(server_round, from_arrays(arrays, template))
        return MetricRecord(dict[str, Any]((name, float(value)) for name, value in found.items()))

    @app.main()
    def main(grid: Grid, context: FlowerContext) -> None:
        weights = initial_weights(model, jax.random.key(0) if key is None else key, params)
        result = strategy.start(
            grid=grid,
            initial_arrays=to_arrays(weights),
            num_rounds=int(context.run_config.get("num-server-rounds", num_rounds)),
            timeout=timeout,
            evaluate_fn=evaluate if evaluate_fn else None,
        )
        if on_result is not None:
            trained = from_arrays(result.arrays, template) if len(result.arrays) else weights
            on_result(trained, result)

    return app
