"""The benchmarks run at small sizes with consistent numbers, untimed."""

import os

import jax
import jax.numpy as jnp
import pytest

from benchmarks import records, timing
from benchmarks.__main__ import main
from benchmarks.report import pages
from benchmarks.report.performance import page


@pytest.mark.full
def test_run_and_cpu_rules(tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    arguments = ["--models", "unet", "--size", "small", "--batch", "2", "--budget", "0.1", "--no-xla"]
    found = main(["run", "--suite", "run,cpu_rules", "--json", str(out), *arguments])
    assert records.results_of(records.read([out])) == found
    model = found[0]
    # The three runs have the same weights: their results agree, so the times are of the same thing.
    assert model["error"] < 1e-4 and model["native_error"] < 1e-4
    assert set(model["ratios"]) == {"tensorflow", "native", "products"}
    assert model["ours"]["equations"] <= 1.2 * model["native"]["equations"]
    assert {r["what"] for r in found[1:]} == {"forward", "gradient", "4 gradients in a loop"}


@pytest.mark.full
def test_operations():
    """Differentiable operations have gradients' times; the page has all rows."""
    found = main(["run", "--suite", "operations", "--size", "small"])
    assert [(r["name"], r["what"]) for r in found] == [
        ("sum over the last axis", "call"),
        ("sum over the last axis", "gradient"),
        ("one_hot", "call"),
    ]
    assert all(r["ratios"]["tensorflow"] > 0 for r in found)
    text = page(found)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| sum over", "| one_hot"))]
    assert [[bool(cell.strip(" |")) for cell in row] for row in rows] == [[True] * 5, [True, True, True, False, False]]


@pytest.mark.full
def test_first_results():
    """Each command has times and a peak; rows name the memory of conversion."""
    found = main(["run", "--suite", "first", "--size", "small", "--models", "dense,lstm"])
    cases = [(r.get("model"), r["command"]) for r in found]
    assert len(set(cases)) == len(cases) == 1 + 7 + 8
    assert all(r["wall"] > 0 and r["cpu"] > 0 and r["peak"] > 1 << 20 for r in found)
    rows = [line.split(" | ") for line in pages.first(found).splitlines()[2:]]
    assert [row[1] for row in rows if row[4] != " |"] == ["convert", "convert"]


@pytest.mark.full
def test_long():
    """Programs and gradients have times; the page names the machine."""
    found = main(["run", "--suite", "long", "--size", "small"])
    assert len(found) == 14 and all(min(r["ratios"].values()) > 0 for r in found)
    assert all(min(r["compile"].values()) > 0 for r in found)
    text = page(found)
    assert text.count("| Sinkhorn | ") == 2 and f"measured on {found[0]['machine']}" in text


@pytest.mark.full
def test_stages():
    """XLA's own account: each different kernel is written once, and compiled."""
    (found,) = main(["run", "--suite", "stages", "--models", "lstm", "--size", "small", "--batch", "1"])
    assert set(found["cpu"]) == {"with_rules", "without_rules"} and all(
        seconds > 0 for seconds in found["cpu"].values()
    )
    assert 0 < found["different"] <= found["kernels"]
    assert all(seconds > 0 for seconds in found["seconds"].values())
    text = page([found])
    assert f"| lstm | 1 | {found['kernels']} | {found['different']} |" in text


@pytest.mark.full
def test_compile():
    """All are compiled equally often, and the counts are in the page's table and text."""
    (found,) = main(["run", "--suite", "compile", "--models", "lstm", "--size", "small", "--batch", "1"])
    for who in ("ours", "native"):
        cost = found[who]
        assert 0 < cost["different"] <= cost["kernels"] and cost["trace"] + cost["compile"] > 0 < cost["first"]
    text = page([found])
    assert f"| lstm | 1 | {1e3 * found['ours']['cpu']:.0f} |" in text
    assert "Tracing alone takes" in text


@pytest.mark.full
def test_equal_kernels_are_counted_once():
    def layers(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.sum(jnp.exp(x))

    x, w = jnp.ones((8, 8)), jnp.ones((8, 8))
    counts = {}
    for n in (2, 6):
        text = jax.jit(layers).lower(x, [w] * n).compile().as_text()
        counts[n] = timing.different_kernels(text), text.count(" fusion(")
    assert counts[2][0] == counts[6][0] > 0
    assert counts[6][1] > counts[2][1]


@pytest.mark.full
def test_pages():
    """A process with larger pages is measured, too; both are in the table."""
    arguments = ["--models", "lstm", "--size", "small", "--batch", "2", "--budget", "0.1"]
    (found,) = main(["run", "--suite", "pages", *arguments])
    for which in ("plain", "larger"):
        assert set(found[which]["faults"]) == set(found[which]["times"]) == {"tf2jax_lite", "tensorflow"}
    faults, ratio = found["plain"]["faults"]["tf2jax_lite"], found["larger"]["ratios"]["tensorflow"]
    (row,) = [line for line in page([found]).splitlines() if line.startswith("| lstm | 2 |")]
    assert row.startswith(f"| lstm | 2 | {faults:.0f} |") and row.endswith(f" {ratio:.2f} |")


def test_what_is_not_there_is_named():
    with pytest.raises(SystemExit, match="no model 'vgg17'"):
        main(["run", "--models", "vgg17"])
    with pytest.raises(SystemExit, match="no suite 'walk'"):
        main(["run", "--suite", "walk"])


def test_turns_are_taken():
    order = []
    runs = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    found = timing.in_turns(runs, rounds=3)
    assert order == [*"ab", *"ab", *"ba", *"ab"]
    assert (found["a"]["median"], found["a"]["best"], found["a"]["rounds"]) == (6, 3, 3)
    assert timing.ratios(found) == {"b": 6 / 5}


@pytest.mark.full
def test_other_work_is_held_while_timing(tmp_path, monkeypatch):
    """The command gets `begin` before the first run and `end` after the last.

    It also gets this process's id, to spare it.
    """
    log = tmp_path / "log"
    command = tmp_path / "hold"
    command.write_text(f'#!/bin/sh\necho "$1 $2" >> {log}\n')
    command.chmod(0o755)
    monkeypatch.setenv(timing.AROUND, str(command))
    lengths = []
    timing.in_turns({"a": lambda: lengths.append(len(log.read_text().splitlines())) or 1.0}, rounds=2)
    assert lengths == [1, 1, 1]
    assert log.read_text().splitlines() == [f"begin {os.getpid()}", f"end {os.getpid()}"]


@pytest.mark.full
def test_serving_measures_each_backend():
    for library in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(library)
    found = main(["run", "--suite", "serving", "--size", "small"])
    assert [result["backend"] for result in found] == [
        f"{kind} {name}" for name in ("jax", "tensorflow") for kind in ("serve", "loop")
    ]
    for result in found:
        assert result["rates"] > 0 and 0 < result["seconds"]["p50"] <= result["seconds"]["p99"]


@pytest.mark.full
def test_generation_gives_the_same_tokens():
    (result,) = main(["run", "--suite", "generation", "--size", "small", "--batch", "2", "--budget", "0"])
    assert result["shares"]["same_tokens"] == 1
    assert set(result["times"]) == {"tf2jax_lite", "tf2jax_lite_scan", "tensorflow", "tensorflow_xla"}
