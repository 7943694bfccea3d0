"""Curves of federated algorithms: the script at a small size, and its data."""

import dataclasses
import json
import math

import pytest

from benchmarks.federated_algorithms import DOCS, Settings, measure, plot

NAMES = ["FedAvg", "FedProx", "SCAFFOLD", "FedAdam", "Mime", "DP-FedAvg"]


@pytest.mark.full
def test_script_measures_and_draws_all_algorithms(tmp_path):
    pytest.importorskip("dp_accounting")
    pytest.importorskip("matplotlib")
    record = measure(Settings(clients=10, clients_per_round=2, rounds=2, every=1, epochs=1))
    assert list(record["curves"]) == NAMES
    for points in record["curves"].values():
        assert points["round"] == [0, 1, 2]
        assert points["loss"][0] == round(math.log(62), 4) and all(map(math.isfinite, points["loss"]))
    plot(record, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert all(f">{name}<" in text for name in NAMES)


@pytest.mark.full
def test_committed_curves_are_of_the_script():
    record = json.loads((DOCS / "federated-algorithms.json").read_text())
    assert record["settings"] == dataclasses.asdict(Settings())
    assert list(record["curves"]) == NAMES
    for points in record["curves"].values():
        assert points["round"][-1] == Settings().rounds
        assert points["accuracy"][-1] > points["accuracy"][0] + 0.2 and points["loss"][-1] < points["loss"][0]
    picture = (DOCS / "federated-algorithms.svg").read_text()
    assert all(f">{name}<" in picture for name in NAMES)
