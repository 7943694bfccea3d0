"""The performance page shows each record, and the models that were not measured."""

import pytest

from benchmarks.report import PAGES, performance, results


def _run(model: str, batch: int, native: float) -> dict:
    cost = {"trace": 0.1, "compile": 1.0, "cpu": 1.5, "equations": 10, "kernels": 3}
    return {
        "suite": "run",
        "machine": "a processor",
        "model": model,
        "size": "full",
        "batch": batch,
        "ours": cost,
        "native": {**cost, "cpu": 1.0},
        "times": {"tf2jax_lite": {"median": 0.002}},
        "ratios": {"native": native, "tensorflow": 0.5},
    }


def _memory(model: str, multiple: float) -> dict:
    sizes = {"baseline": 0, "built": 1, "converted": 2, "compiled": 3, "weights": 1}
    return {"suite": "memory", "model": model, **sizes, "results_only": multiple, "times_weights": multiple + 1}


def test_models_that_were_not_measured_are_counted() -> None:
    text = performance.page([_run("gru", 1, 0.7), _memory("gru", 3.0)])
    assert "| run, to native, median | 0.72 |  | 0.70 (1) | met; 12 of 13 models not measured |" in text
    assert "| the same of all models when params are returned | 2.20 |  | 4.00 (1) | not met; 11 of 12 models" in text
    assert "| train step, to native, median | 0.55 |  | not measured |  |" in text
    assert "On another processor" not in text


def test_costs_of_two_sessions_are_not_compared() -> None:
    cost = {"trace": 0.1, "compile": 1.0, "different": 3}
    case = {"suite": "compile", "model": "gru", "size": "full", "batch": 1}
    old = {**case, "ours": {**cost, "cpu": 1.0}, "native": {**cost, "cpu": 2.0}, "peer": {**cost, "cpu": 4.0}}
    new = {**case, "ours": {**cost, "cpu": 3.0}, "native": {**cost, "cpu": 2.0, "different": 2.5}}
    text = performance.page([old, new])
    assert "| gru | 1 | 3000 | 1.50 |  | 1.00 | 3 / 2 | 1000 / 1000 |" in text


def test_what_another_processor_measured_stands_apart() -> None:
    step = {"suite": "train", "model": "gru", "batch": 8, "ratios": {"native": 0.25}}
    other = [_run("gru", 1, 0.9), _run("gru", 8, 0.6), _run("lstm", 1, 0.4), step, _memory("gru", 3.0)]
    text = performance.page([_run("gru", 1, 0.7)], elsewhere=other)
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


def test_page_is_that_of_the_stored_records() -> None:
    page = PAGES["performance"]
    stored = results(page)
    text = performance.page(*stored)
    assert page.path is not None and page.path.read_text() == text
    parts = text.split("## On another processor")
    for section, found in zip(parts, stored[:2], strict=True):
        latest = {(r["model"], r["batch"]): r for r in found if r["suite"] == "run"}
        for (model, batch), result in latest.items():
            assert f"| {model} | {batch} | {1e3 * result['times']['tf2jax_lite']['median']:.1f} |" in section


@pytest.mark.full
def test_versions_are_stated_where_records_know_them() -> None:
    versions = {"jax": "0.10.2", "tensorflow": "2.21.0"}
    new = {**_run("gru", 1, 0.7), "versions": versions, "day": "2026-11-24"}
    newer = {**_run("gru", 8, 0.7), "versions": versions, "day": "2026-11-25"}
    assert "were measured with" not in performance.page([_run("gru", 1, 0.7)])
    text = performance.page([new, newer])
    assert "\nAll were measured with JAX 0.10.2 and TensorFlow 2.21.0, 2026-11-24 to 2026-11-25.\n" in text
    assert "\n1 of 2 results were measured with JAX 0.10.2 and TensorFlow 2.21.0, 2026-11-24.\n" in performance.page(
        [new, _run("lstm", 1, 0.7)]
    )


def _record(program, ours, native, **more):
    names = ("kernels", "bytes", "calls", "shared", "temporaries", "cpu")
    whos = {"ours": ours, "native": native, **more}
    return {"suite": "described", "program": program, "device": "h100"} | {
        who: dict(zip(names, values, strict=True)) for who, values in whos.items()
    }


@pytest.mark.full
def test_section():
    records = [
        _record("run-a-1", (10, 2e6, 3, 3, 5, 1.0), (10, 2e6, 3, 3, 5, 2.0), peer=(20, 4e6, 3, 3, 5, 4.0)),
        _record("run-b-1", (9, 1e6, 2, 2, 0, 1.0), (10, 2e6, 2, 1, 0, 1.0)),
        _record("train-a-1", (9, 3e6, 0, 0, 4, 1.0), (12, 4e6, 0, 0, 8, 1.0)),
    ]
    text = performance.page(records)
    assert "| run on GPU, to native, median | 1.00 |  | not measured |  |" in text and "GPU: none was available" in text
    assert "No GPU was available" in text and "Compiled for a described H100" in text
    assert "- Calls (2 programs), to native: kernels 0.95 (median; 0.90 to 1.00), bytes moved 0.75 (" in text
    assert "- Training steps (1 programs), to native: kernels 0.75" in text
    assert "- In 1 of 2 programs with library calls these are identical" in text
    assert "- XLA's compile time (CPU), to tf2jax: 0.25" in text
    assert "| run-a-1 | 10 / 10 / 20 | 3 / 3 / 3 | 3 | 2 | 1.00 | 0.50 | 1.00 | 0.50 | 0.25 |" in text
    assert "| run-b-1 | 9 / 10 | 2 / 2 | 1 | 1 | 0.50 |  |  | 1.00 |  |" in text
    assert "On a GPU" not in performance.page([])
    times = {"tf2jax_lite": {"median": 0.001}, "native": {"median": 0.002}}
    seen = {"suite": "device", "program": "run-a-1", "device": "GPU", "times": times, "ratios": {"native": 0.5}}
    text = performance.page([*records, seen])
    assert "| run on GPU, to native, median | 1.00 |  | 0.50 (1) | met; 12 of 13 models not measured |" in text
    assert "GPU: none was available" not in text
    assert "Timed on GPU" in text and "| run-a-1 | 1.000 | 2.000 | 0.50 |  |" in text and "No GPU was" not in text


@pytest.mark.full
def test_page_judges_targets():
    """0.6 meets the target 0.65; 1.1 misses 1; missing ones are marked."""
    ready = {"trace": 1.0, "compile": 1.0, "cpu": 1.0, "equations": 5}
    records = [
        {
            "suite": "run",
            "model": f"m{i}",
            "size": "full",
            "batch": 1,
            "ours": ready,
            "native": ready,
            "times": {"tf2jax_lite": {"median": 0.01}},
            "ratios": {"native": ratio, "tensorflow": 0.5},
        }
        for i, ratio in enumerate((0.5, 0.6, 1.1))
    ]
    memory = [_memory("gru", 3.0)]
    earlier = [{"suite": "earlier", "program": "run-m0-1", "same": 0, "ratios": {"before": 0.5}}]
    earlier += [{"suite": "earlier", "program": f"run-m{i}-1", "same": 1} for i in (1, 2)]
    lines = performance.page(records + earlier).splitlines()
    assert "| run, to native, median | 0.72 | 1.00 (3) | 0.60 (3) | met; 10 of 13 models not measured |" in lines
    assert "| run, to native, worst | 1.00 | 1.10 (3) | 1.10 (3) | not met; 10 of 13 models not measured |" in lines
    assert "| calls, time | 3 | 1.000 | 0.500 | 1.000 | 2 | 1.00 to 1.00 |" in lines
    lines = performance.page([*records, *memory], before=[*records[1:], _memory("gru", 4.0)])
    assert "| trace and compile, to native, median | 1.00 | 1.00 (2) | 1.00 (3) | met; 10 of 13" in lines
    assert "| the same of all models when params are returned | 2.20 | 5.00 (1) | 4.00 (1) | not met; 11" in lines
    assert "| conversion and first call, params returned, memory | 1 | 0.800 | 0.800 | 0.800 |  |  |" in lines
    assert "| train step, to native, median | 0.55 |  | not measured |  |" in lines


@pytest.mark.full
def test_rows():
    """Ours 10 ms, tf2jax's 30 ms after 70 ms of tracing: 1/3, or 80/100 with it."""
    record = {"model": "m", "nodes": 7, "tracing": 0.07, "first": 0.02, "ratios": {"tf2jax": 1 / 3}}
    record["times"] = {"tf2jax_lite": {"median": 0.01}, "tf2jax": {"median": 0.03}}
    failed = {**record, "ratios": {}, "times": {"tf2jax_lite": {"median": 0.01}}, "peer": {"failed": "ValueError: no"}}
    assert performance._conversions([record, failed]) == [
        ("m", 7, "70", "10", "20", "30", "0.33", "0.80"),
        ("m", 7, "70", "10", "20", "fails", "", ""),
    ]
