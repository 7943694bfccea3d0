"""Records: one schema, without loss; ratios of two files."""

import json

import pytest

from benchmarks import records
from benchmarks.__main__ import main

CASE = {"model": "gru", "batch": 8}
TIMES = {"tf2jax_lite": {"median": 2.0, "best": 1.0, "rounds": 3}, "native": {"median": 4.0, "best": 3.0, "rounds": 3}}
VALUES = {"ours": {"compile": 0.5, "kernels": 7}, "peer": {"failed": "no"}, "times": TIMES, "temporaries": None}
CONTEXT = {"machine": "m", "versions": {"jax": "1"}, "day": "2026-01-01", "load": 0.5}
UNITS = {"ours/compile": "s", "ours/kernels": "1", "peer/failed": None, "times/native": "s", "temporaries": "B"}


def test_each_value_is_a_record():
    found = {r["metric"]: r for r in records.records_of("run", (CASE, VALUES), CONTEXT)}
    assert {name: found[name]["unit"] for name in UNITS} == UNITS and set(found) == {*UNITS, "times/tf2jax_lite"}
    head = {"suite": "run", "case": CASE, "metric": "times/native", "value": 4.0, "unit": "s"}
    assert found["times/native"] == {**head, "best": 3.0, "rounds": 3, **CONTEXT}


def test_results_are_read_again():
    """Ratios are those of times; a metric that comes again begins another result."""
    lines = records.records_of("run", (CASE, VALUES), CONTEXT)
    expected = {"suite": "run", **CASE, **CONTEXT, **VALUES, "ratios": {"native": 0.5}}
    assert records.results_of(json.loads(json.dumps(lines * 2))) == [expected] * 2
    assert records.latest([{**expected, "day": "old"}, expected], ["suite", "model"]) == [expected]


def test_versions_of_a_result_are_added():
    (found,) = records.records_of("gallery", (CASE, {"versions": {"flax": "2"}, "error": 0.0}), CONTEXT)
    assert found["versions"] == {"jax": "1", "flax": "2"}


@pytest.mark.parametrize("path", sorted(records.RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_stored_records_have_the_schema(path):
    for record in records.read([path]):
        assert list(record)[:5] == ["suite", "case", "metric", "value", "unit"]
        assert record["unit"] == records.unit_of(record["metric"], record["value"])


def test_files_are_compared(tmp_path, capsys):
    files = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    for path, factor in zip(files, (1.0, 0.5), strict=True):
        times = {name: {"median": factor * found["median"]} for name, found in TIMES.items()}
        records.append(path, records.records_of("run", (CASE, {**VALUES, "times": times}), CONTEXT))
    main(["compare", *map(str, files)])
    assert capsys.readouterr().out.splitlines() == [
        "0.500 | run | model gru, batch 8 | times/tf2jax_lite | 1 s | before 2",
        "0.500 | run | model gru, batch 8 | times/native | 2 s | before 4",
        "0.500 | median of 2",
    ]
