"""A Flower server for a strategy: ours, or one of Flower's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from flwr.app import ArrayRecord, MetricRecord
from flwr.app import Context as FlowerContext
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from tf2jax_lite.federated.flower.records import from_arrays, to_arrays
from tf2jax_lite.federated.flower.strategy import BlocksStrategy
from tf2jax_lite.federated.models.model import Model, check_model
from tf2jax_lite.federated.simulation.checkpoint import CheckpointStore, open_store
from tf2jax_lite.federated.templates.compose import initial_weights
from tf2jax_lite.federated.templates.process import ModelWeights
from tf2jax_lite.support.errors import InputError


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
    checkpoint_dir: str | Path | CheckpointStore | None = None,
) -> ServerApp:
    """Make a Flower ``ServerApp`` that trains a model.

    Args:
      strategy: a `BlocksStrategy`, one of Flower's wrappers around it, or one of ``flwr.serverapp.strategy`` (FedAvg,
        FedAdam, Krum, ...).
      model: the model; server and clients must have the same.
      num_rounds: rounds of training; the run's ``num-server-rounds`` (``flwr run --run-config``) overrides it.
      key: the JAX key that new weights are drawn with; ``key(0)`` by default.
      params: the weights to begin with, `ModelWeights` or a pytree of the trainable ones, instead of new ones.
      evaluate_fn: ``(round, weights) -> metrics`` at the server, before the first and after each round.
      on_result: called at the end with the weights and Flower's ``Result`` (metrics by round), to save them.
      timeout: seconds to wait for the clients of a round; one that has not replied by then has failed.
      checkpoint_dir: where the state of a `BlocksStrategy` is saved after each round (Orbax; extra: checkpoint), or a
        `CheckpointStore`. A server that is started again resumes from the newest: ``num_rounds`` counts the rounds
        before, too, and the weights are those of an uninterrupted run. Flower's wrappers keep no state there.

    Returns:
      The app, for ``[tool.flwr.app.components]``.

    Raises:
      InputError: ``strategy`` is not a strategy of Flower's message API, ``num_rounds`` is negative, or
        ``checkpoint_dir`` is given for another strategy than `BlocksStrategy`.
    """
    if not isinstance(strategy, Strategy):
        raise InputError(
            f"a strategy is a BlocksStrategy or one of flwr.serverapp.strategy, not {type(strategy).__name__}; the"
            " learning processes of tf2jax_lite simulate their clients: give their blocks to BlocksStrategy"
        )
    if num_rounds < 0:
        raise InputError(f"num_rounds is 0 or more, not {num_rounds}")
    blocks = _blocks_of(strategy)
    if checkpoint_dir is not None and blocks is None:
        raise InputError(f"checkpoint_dir: a BlocksStrategy has a state to save, a {type(strategy).__name__} has none")
    app = ServerApp()
    template = check_model(model).shapes

    @app.main()
    def main(grid: Grid, context: FlowerContext) -> None:
        weights = initial_weights(model, jax.random.key(0) if key is None else key, params)
        done, store = 0, None if checkpoint_dir is None else open_store(checkpoint_dir)
        if store is not None and blocks is not None and store.latest() is not None:
            done, state, _ = store.restore(blocks.first_state(weights))
            blocks.state, blocks.rounds_before, weights = state, done, state.weights

        # Flower calls this with the weights after each round, those that a wrapper changed.
        def after(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if store is not None and blocks is not None and server_round:
                store.save(done + server_round, blocks.state_at(arrays))
            if evaluate_fn is None:
                return None
            found = evaluate_fn(done + server_round, from_arrays(arrays, template))
            return MetricRecord(dict[str, Any]((name, float(value)) for name, value in found.items()))

        result = strategy.start(
            grid=grid,
            initial_arrays=to_arrays(weights),
            num_rounds=max(0, int(context.run_config.get("num-server-rounds", num_rounds)) - done),
            timeout=timeout,
            evaluate_fn=after,
        )
        if on_result is not None:
            trained = from_arrays(result.arrays, template) if len(result.arrays) else weights
            on_result(trained, result)

    return app


def _blocks_of(strategy: Any) -> BlocksStrategy | None:
    """Return the strategy of blocks, perhaps inside of Flower's wrappers."""
    while strategy is not None and not isinstance(strategy, BlocksStrategy):
        strategy = getattr(strategy, "strategy", None)
    return strategy
