"""The notebooks run: their cells, one after the other, in one namespace."""

import json
from pathlib import Path

import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


def cells(name):
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]


def run(name):
    """Return the namespace after all cells."""
    found = {}
    for number, cell in enumerate(cells(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {number}", "exec"), found)
    return found


@pytest.mark.full
def test_models_of_fedjax():
    found = run("fedjax_models")
    assert found["trained_metrics"]["accuracy"] > found["initial_metrics"]["accuracy"] + 0.2
    assert found["trained_metrics"]["loss"] < found["initial_metrics"]["loss"]
    for name in ("mlp", "cnn"):
        assert found[f"{name}_after"]["loss"] < found[f"{name}_before"]["loss"]


@pytest.mark.full
def test_composition_of_algorithms():
    found = run("tff_composing_learning_algorithms")
    assert found["after"]["loss"] < found["before"]["loss"]
    ported, plain = (found[name].global_model_weights.trainable for name in ("state", "same_state"))
    for name, weights in ported.items():
        np.testing.assert_allclose(weights, plain[name], atol=1e-6)


@pytest.mark.full
def test_jax_in_tff():
    pytest.importorskip("federated_language")
    found = run("tff_jax")
    assert found["difference"] < 1e-6
    before, after = (
        found["average_loss"](found[name], found["eval_data"]) for name in ("initial_params", "first_round")
    )
    assert after < before
