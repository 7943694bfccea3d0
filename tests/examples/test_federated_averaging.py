"""The example in plain JAX is `build_weighted_fed_avg`."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import optax

from tf2jax_lite import federated

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "federated_averaging.py"


def _load():
    spec = importlib.util.spec_from_file_location("federated_averaging", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_has_the_weights_of_build_weighted_fed_avg():
    example, rng = _load(), np.random.default_rng(0)
    clients = [
        {"x": rng.normal(size=(n, 3)).astype(np.float32), "y": rng.normal(size=n).astype(np.float32)}
        for n in (4, 7, 10)
    ]
    params = {"w": np.zeros(3, np.float32), "b": np.float32(0)}
    batches = [
        [{name: value[i : i + 4] for name, value in client.items()} for i in range(0, len(client["y"]), 4)]
        for client in clients
    ]
    found = example.federated_averaging(params, batches, 3, learning_rate=0.05, server_learning_rate=0.5)
    model = federated.create_model_from_fn(
        params, lambda p, batch: batch["x"] @ p["w"] + p["b"], lambda batch, out: (out - batch["y"]) ** 2
    )
    process = federated.build_weighted_fed_avg(
        model, optax.sgd(0.05), optax.sgd(0.5), client_batching=federated.BatchHParams(batch_size=4)
    )
    state = process.initialize()
    for _ in range(3):
        state, _ = process.next(state, list(map(federated.ClientDataset, clients)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, state.params)
