"""The users' page on performance shows what the stored records say."""

import re

import pytest

from benchmarks import render_guide
from benchmarks.render import RESULTS, read, suites_of


@pytest.fixture(scope="module")
def stored():
    return [read([RESULTS / f"{name}.jsonl"]) for name in ("performance", "performance-avx2")]


def test_page_is_that_of_the_stored_records(stored):
    assert render_guide.PAGE.read_text() == render_guide.page(*stored)


def test_each_plot_is_stored_and_described():
    shown = re.findall(r"!\[(.+)\]\(\.\./images/(.+)\)", render_guide.PAGE.read_text())
    assert len(shown) == 4
    for _, name in shown:
        assert (render_guide.IMAGES / name).read_text().startswith("<?xml")


def test_phases_join_conversion_and_compilation():
    convert = {"suite": "convert", "model": "gru", "tracing": 0.5, "times": {"tf2jax_lite": {"median": 0.25}}}
    other = {**convert, "model": "lstm"}
    compiled = [
        {"suite": "compile", "model": "gru", "batch": batch, "ours": {"trace": trace, "compile": 2.0}}
        for batch, trace in ((8, 1.0), (1, 0.125))
    ]
    assert render_guide.phases(suites_of([convert, other, *compiled])) == {"gru": [0.5, 0.25, 0.125, 2.0]}


@pytest.mark.full
def test_plots_are_the_same_for_the_same_records(stored, tmp_path):
    pytest.importorskip("matplotlib")
    records = suites_of(stored[0])["memory"]
    for name in ("first.svg", "second.svg"):
        render_guide.plot(render_guide.draw_memory(records), tmp_path / name, 4, 3)
    text = (tmp_path / "first.svg").read_text()
    assert text == (tmp_path / "second.svg").read_text()
    assert all(f">{record['model']}<" in text for record in records)
