"""The performance page shows each record, and the models that were not measured."""

from pathlib import Path

import pytest

from benchmarks import render


def _run(model: str, batch: int, native: float) -> render.Record:
    cost = {"trace": 0.1, "compile": 1.0, "cpu": 1.5, "equations": 10, "kernels": 3}
    return {
        "suite": "run",
        "machine": "a processor",
        "model": model,
        "size": "full",
        "batch": batch,
        "groups": ["recurrent"],
        "ours": cost,
        "native": {**cost, "cpu": 1.0},
        "times": {"tf2jax_lite": {"median": 0.002}},
        "ratios": {"native": native, "tensorflow": 0.5},
    }


def _memory(model: str, multiple: float) -> render.Record:
    sizes = {"baseline": 0, "built": 1, "converted": 2, "compiled": 3, "weights": 1}
    return {"suite": "memory", "model": model, **sizes, "results_only": multiple, "times_weights": multiple + 1}


def test_models_that_were_not_measured_are_counted() -> None:
    text = render.page([_run("gru", 1, 0.7), _memory("gru", 3.0)])
    assert "| run, to native, median | 0.80 | 0.70 (1) | met; 12 of 13 models not measured |" in text
    assert "| peak memory, multiple of the weights, worst | 2.20 | 3.00 (1) | not met; 11 of 12 models" in text
    assert "| train step, to native, median | 0.70 | not measured |  |" in text
    assert "On another processor" not in text


def test_what_another_processor_measured_stands_apart() -> None:
    step = {"suite": "train", "model": "gru", "batch": 8, "ratios": {"native": 0.25}}
    other = [_run("gru", 1, 0.9), _run("gru", 8, 0.6), _run("lstm", 1, 0.4), step, _memory("gru", 3.0)]
    text = render.page([_run("gru", 1, 0.7)], elsewhere=other)
    here, there = text.split("## On another processor")
    assert "0.70 (1)" in here and "0.60 (3)" not in here
    assert "two shared" in there and "| 0.60 (3) |" in there
    rows = [line for line in there.splitlines() if line.startswith(("| gru", "| lstm"))]
    # Of a training step the batch says where it stands; memory stands once for a model.
    assert rows == [
        "| gru | 1 | 2.0 | 0.50 |  | 0.90 |  | 1.50 |  |  |  | 3.00 |",
        "| gru | 8 | 2.0 | 0.50 |  | 0.60 |  | 1.50 |  | 0.25 |  |  |",
        "| lstm | 1 | 2.0 | 0.50 |  | 0.40 |  | 1.50 |  |  |  |  |",
    ]


@pytest.mark.full
def test_the_command_writes_whole_pages(tmp_path: Path, monkeypatch) -> None:
    stored = render.PAGE.read_text()
    monkeypatch.setattr(render, "PAGE", tmp_path / "page.md")
    render.main([])
    text = render.PAGE.read_text()
    assert text == stored
    here, there = text.split("## On another processor")
    assert text.endswith("|\n")
    for section, name in ((here, "performance"), (there, "performance-avx2")):
        records = render.read([render.RESULTS / f"{name}.jsonl"])
        latest = {(r["model"], r["batch"]): r for r in records if r["suite"] == "run"}
        for (model, batch), record in latest.items():
            assert f"| {model} | {batch} | {1e3 * record['times']['tf2jax_lite']['median']:.1f} |" in section


@pytest.mark.full
def test_versions_are_stated_where_records_know_them() -> None:
    versions = {"jax": "0.10.2", "tensorflow": "2.21.0"}
    new = {**_run("gru", 1, 0.7), "versions": versions, "day": "2026-11-24"}
    newer = {**_run("gru", 8, 0.7), "versions": versions, "day": "2026-11-25"}
    assert "were measured with" not in render.page([_run("gru", 1, 0.7)])
    text = render.page([new, newer])
    assert "\nAll were measured with JAX 0.10.2 and TensorFlow 2.21.0, 2026-11-24 to 2026-11-25.\n" in text
    assert "\n1 of 2 records were measured with JAX 0.10.2 and TensorFlow 2.21.0, 2026-11-24.\n" in render.page(
        [new, _run("lstm", 1, 0.7)]
    )
