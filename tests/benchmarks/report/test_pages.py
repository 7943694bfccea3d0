"""Pages of one suite show what their records say."""

import pytest

from benchmarks import gallery, report
from benchmarks.report import PAGES, pages, results


@pytest.mark.parametrize("name", ["gallery", "training"])
def test_page_is_that_of_the_stored_records(name):
    page = PAGES[name]
    assert page.path.read_text() == page.text(*results(page))


def test_each_model_of_the_gallery_is_measured():
    (found,) = results(PAGES["gallery"])
    assert [r["name"] for r in found] == list(gallery.CASES) and len(found) >= 12
    assert all(r["error"] < 1e-3 for r in found)


def test_times_are_shown_where_they_were_measured():
    ((measured, *_),) = results(PAGES["gallery"])
    plain = {name: value for name, value in measured.items() if name not in ("times", "ratios")}
    timed = {**plain, "name": "other", "times": {}, "ratios": {"tensorflow": 0.5}}
    rows = [line for line in pages.gallery([plain, timed]).splitlines() if line.startswith("| ")]
    assert rows[2].endswith(" |  |") and rows[3].endswith("| 0.50 |")


def _run_times(model, ratio):
    times = {who: {"median": 0.001, "rounds": 20} for who in ("tf2jax_lite", "original")}
    values = {"ratio": ratio, "times": times, "equations": 1.0, "same_program": ratio < 1}
    return {"suite": "stablehlo", "model": model, **values, "load": ratio, "versions": {"jax": "0.10"}, "cores": 2}


# Of a model measured twice the last counts.
RUN_TIMES = [_run_times(*measured) for measured in (("a", 9.0), ("a", 0.99), ("b", 1.2))]


def test_run_times():
    text = pages.run_times(RUN_TIMES)
    assert "1.095. Above the goal of 1.05: b (1.20). 1 of them" in text
    assert "load average 1.0 to 1.2" in text and "| a | 1.000 | 1.000 | 0.990 | 20 | 1.00 | yes |" in text


def test_page_of_run_times_is_a_table_below_its_command():
    heading = PAGES["stablehlo"].path.read_text().partition("jax ")[0]
    assert pages.stablehlo(RUN_TIMES) == f"{heading}{pages.run_times(RUN_TIMES)}\n"


def test_rounds_have_a_median_run_and_a_range():
    def times(ours):
        return {"tf2jax_lite": {"median": ours, "cpu": 0.5}, "native": {"median": 1.0, "cpu": 2.0}}

    runs = [
        {"what": "rounds", "model": "CNN", "clients": 10, "difference": 1e-7, "times": times(ratio)}
        | {"ratios": {"native": ratio}}
        for ratio in (0.9, 0.25, 0.5)
    ]
    memory = {"what": "memory", "model": "CNN", "clients": 10}
    memory["memory"] = {who: {"peak": 0, "more": 3 << 20} for who in ("ours", "native")}
    ways = {"what": "ways", "model": "CNN", "chosen": "scan", "times": {"scan": {"median": 2.0, "cpu": 1.0}}}
    text = pages.federated(runs, [memory, ways])
    assert "| CNN | 10 | 0.500 | 1.000 | **0.50** | 0.25 to 0.90 | 0.25 | 0.5 | 1e-07 |" in text
    assert "| CNN | 10 | 3 | 3 |" in text and "| CNN | 1.00 (1.00) | scan |" in text


def test_pages_that_do_not_exist_or_have_no_records():
    with pytest.raises(SystemExit, match="no page 'walk'; there are performance, "):
        report.write(["walk"])
    with pytest.raises(SystemExit, match="page rules: no records are stored"):
        report.write(["rules"])
