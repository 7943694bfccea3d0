"""Curves of federated algorithms: the suite at a small size, and stored records."""

import dataclasses
import math

import pytest

from benchmarks.__main__ import main
from benchmarks.federated import Settings
from benchmarks.report import DOCS, PAGES, pages, results

NAMES = ["FedAvg", "FedProx", "SCAFFOLD", "FedAdam", "Mime", "DP-FedAvg"]


def _curves(found):
    return {name: [r for r in found if r.get("algorithm") == name and "round" in r] for name in NAMES}


@pytest.mark.full
def test_suite_measures_and_page_draws_all_algorithms(tmp_path):
    pytest.importorskip("dp_accounting")
    pytest.importorskip("matplotlib")
    found = main(["run", "--suite", "federated_algorithms", "--size", "small"])
    for points in _curves(found).values():
        assert [r["round"] for r in points] == [0, 1, 2]
        assert points[0]["loss"] == round(math.log(62), 4) and all(math.isfinite(r["loss"]) for r in points)
    pages.draw_algorithms(found, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert all(f">{name}<" in text for name in NAMES)


def test_stored_curves_are_of_the_suite():
    (found,) = results(PAGES["algorithms"])
    settings = dataclasses.asdict(Settings())
    assert {name: found[0][name] for name in settings} == settings
    for points in _curves(found).values():
        assert points[-1]["round"] == Settings().rounds
        assert points[-1]["accuracy"] > points[0]["accuracy"] + 0.2 and points[-1]["loss"] < points[0]["loss"]
    picture = (DOCS / "federated-algorithms.svg").read_text()
    assert all(f">{name}<" in picture for name in NAMES)


@pytest.mark.full
def test_scaling_is_measured_in_a_process():
    found = main(["run", "--suite", "federated", "--only", "scaling", "--size", "small"])
    assert [r["clients"] for r in found] == [2, 4]
    assert all(r["seconds"] > 0 and r["memory"]["peak"] >= r["memory"]["more"] >= 0 for r in found)


@pytest.mark.full
def test_rounds_over_virtual_devices_give_the_weights_of_one():
    found = main(["run", "--suite", "federated", "--only", "mesh", "--size", "small"])
    assert [r["devices"] for r in found] == [1, 2]
    assert all(r["difference"] < 1e-6 and min(r["seconds"].values()) > 0 for r in found)


@pytest.mark.full
def test_programs_and_simulated_times(tmp_path):
    found = main(["run", "--suite", "federated", "--only", "programs,asynchronous", "--size", "small"])
    programs, waits = ([r for r in found if r["what"] == what] for what in ("programs", "asynchronous"))
    assert {"FedAvg", "FedBuff", "Per-FedAvg"} <= {r["algorithm"] for r in programs}
    assert all(1 <= r["programs"] <= 6 and r["seconds"] > 0 for r in programs)
    assert waits[0]["rounds"] == 2 and all(r["simulated"] > 0 for r in waits)
    page = pages.federated(found)
    assert page.count("| FedAvg | ") == 1 and "## Waiting for clients" in page
