"""Parsing of libFuzzer's output; the fuzzing itself runs manually."""

import json

import pytest

from tools.fuzz import guided, targets

LOG = """\
INFO: seed corpus: files: 2 min: 404b max: 570b total: 974b rss: 300Mb
#3\tINITED cov: 41 ft: 52 corp: 2/974b exec/s: 0 rss: 301Mb
#512\tNEW    cov: 44 ft: 55 corp: 3/1374b lim: 570 exec/s: 256 rss: 301Mb L: 400/570 MS: 1 ChangeBit-
#4096\tpulse  cov: 44 ft: 55 corp: 3/1374b lim: 600 exec/s: 1024 rss: 301Mb
#5000\tDONE   cov: 46 ft: 60 corp: 5/2000b lim: 600 exec/s: 1000 rss: 301Mb
Done 5000 runs in 5 second(s)
"""


def test_figures():
    found = guided.statistics(LOG)
    assert found == {"inputs": 5000, "branches at first": 41, "branches": 46, "files at first": 2, "files": 5}


def test_a_run_that_was_cut_short_has_figures_too():
    assert guided.statistics(LOG[: LOG.index("#5000")])["inputs"] == 4096


def test_a_run_that_did_not_begin():
    with pytest.raises(ValueError, match="no figures"):
        guided.statistics("Traceback")


@pytest.mark.full
def test_all_targets_are_there():
    assert set(guided.ALL) <= set(targets.NAMES)


@pytest.mark.full
def test_a_run_of_some_targets_leaves_the_rows_of_others(tmp_path):
    figures = guided.statistics(LOG)
    guided.write([{"target": "npz", **figures, "findings": 0}], 1, tmp_path / "t.json")
    guided.write([{"target": "graph", **figures, "findings": 2}], 2, tmp_path / "t.json")
    guided.write([{"target": "npz", **figures, "inputs": 7, "findings": 0}], 0.5, tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())
    assert [row[:3] for row in found["rows"]] == [["graph", 2, 5000], ["npz", 0.5, 7]]
    assert "--atheris graph,npz --minutes 2" in found["command"]
