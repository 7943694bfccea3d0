"""The users' page on performance shows what the stored records say."""

import re

import pytest

from benchmarks.report import PAGES, guide, results
from benchmarks.report.performance import suites_of


@pytest.fixture(scope="module")
def stored():
    return results(PAGES["guide"])


def test_page_is_that_of_the_stored_records(stored):
    assert PAGES["guide"].path.read_text() == guide.page(*stored)


def test_each_plot_is_stored_and_described():
    shown = re.findall(r"!\[(.+)\]\(\.\./images/(.+)\)", PAGES["guide"].path.read_text())
    assert len(shown) == 4
    for _, name in shown:
        assert (guide.IMAGES / name).read_text().startswith("<?xml")


def test_phases_join_conversion_and_compilation():
    convert = {"suite": "convert", "model": "gru", "tracing": 0.5, "times": {"tf2jax_lite": {"median": 0.25}}}
    other = {**convert, "model": "lstm"}
    compiled = [
        {"suite": "compile", "model": "gru", "batch": batch, "ours": {"trace": trace, "compile": 2.0}}
        for batch, trace in ((8, 1.0), (1, 0.125))
    ]
    assert guide.phases(suites_of([convert, other, *compiled])) == {"gru": [0.5, 0.25, 0.125, 2.0]}


@pytest.mark.full
def test_plots_are_the_same_for_the_same_records(stored, tmp_path):
    pytest.importorskip("matplotlib")
    records = suites_of(stored[0])["memory"]
    for name in ("first.svg", "second.svg"):
        guide.plot(guide.draw_memory(records), tmp_path / name, 4, 3)
    text = (tmp_path / "first.svg").read_text()
    assert text == (tmp_path / "second.svg").read_text()
    assert all(f">{record['model']}<" in text for record in records)
