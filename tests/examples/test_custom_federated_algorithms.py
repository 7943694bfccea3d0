"""The tutorial's numbers in numpy, with its own gradient and no JAX."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("federated_language")

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_federated_algorithms.py"


def _load():
    spec = importlib.util.spec_from_file_location("custom_federated_algorithms", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _probabilities(weights, bias, x):
    logits = x @ weights + bias
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def _loss(weights, bias, x, y):
    return -np.log(_probabilities(weights, bias, x)[np.arange(len(y)), y]).mean()


def _train(weights, bias, x, y, rate):
    error = _probabilities(weights, bias, x)
    error[np.arange(len(y)), y] -= 1
    return weights - rate * x.T @ error / len(y), bias - rate * error.mean(axis=0)


def _batches(clients, size):
    for _, client in clients.clients():
        x, y = (client.raw_examples[name] for name in "xy")
        assert len(set(y)) == 1, "one digit a client"
        yield [(x[start : start + size], y[start : start + size]) for start in range(0, len(y), size)]


@pytest.mark.full
def test_losses_of_every_round():
    example = _load()
    losses = example.run()
    train, test = (list(_batches(part, example.BATCH_SIZE)) for part in example.load_clients())
    assert len(train) == len(test) == 10 and [sum(len(y) for _, y in c) for c in train + test] == [120] * 10 + [25] * 10
    weights, bias, rate = np.zeros((64, 10)), np.zeros(10), example.LEARNING_RATE
    expected = {"train": [], "test": []}
    for _ in range(example.ROUNDS + 1):
        for name, part in (("train", train), ("test", test)):
            expected[name].append(np.mean([sum(_loss(weights, bias, x, y) for x, y in c) for c in part]))
        models = []
        for client in train:
            model = (weights, bias)
            for x, y in client:
                model = _train(*model, x, y, rate)
            models.append(model)
        weights, bias = (np.mean(parts, axis=0) for parts in zip(*models, strict=True))
        rate *= 0.9
    for name in expected:
        np.testing.assert_allclose(losses[name], expected[name], rtol=1e-6, atol=0)
        assert losses[name][-1] < 0.9 * losses[name][0], "it learns"


@pytest.mark.full
def test_types_print_as_in_tff():
    example = _load()
    model, batch = "<weights=float64[64,10],bias=float64[10]>", "<x=float64[?,64],y=int32[?]>"
    assert str(example.batch_loss.type_signature) == f"(<model={model},batch={batch}> -> float64)"
    assert str(example.local_train.type_signature) == (
        f"(<initial_model={model},learning_rate=float64,all_batches={batch}*> -> {model})"
    )
    assert str(example.federated_train.type_signature) == (
        f"(<model={model}@SERVER,learning_rate=float64@SERVER,client_data={{{batch}*}}@CLIENTS> ->"
        f" <{model}@SERVER,float64@SERVER>)"
    )
