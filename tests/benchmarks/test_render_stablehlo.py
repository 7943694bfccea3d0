"""The run times of docs/stablehlo.md are written from records alone."""

import pytest

from benchmarks import render_stablehlo as render

RECORDS = [
    {"suite": "stablehlo", "model": name, "ratio": ratio, "ours_ms": 1.0, "original_ms": 1.0, "rounds": 20}
    | {"equations": 1.0, "same_program": ratio < 1, "load": [0.5, 2.0]}
    for name, ratio in (("a", 9.0), ("a", 0.99), ("b", 1.2))  # of a model measured twice the last counts
]
RECORDS.append({"suite": "stablehlo", "model": "median", "ratio": 1.095, "jax": "0.10", "cores": 2})


@pytest.mark.full
def test_section():
    text = render.section(RECORDS)
    assert "1.095. Above the goal of 1.05: b (1.20). 1 of them" in text
    assert "load average 0.5 to 2.0" in text and "| a | 1.000 | 1.000 | 0.990 | 20 | 1.00 | yes |" in text


@pytest.mark.full
def test_only_the_section_changes():
    page = render.PAGE.read_text()
    made = render.written(page, render.section(RECORDS))
    assert made.startswith(page[: page.index(render.BEGIN)]) and made.endswith(page[page.index(render.END) :])
    assert render.written(made, "x") == render.written(page, "x")
