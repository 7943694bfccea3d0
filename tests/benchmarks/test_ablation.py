"""The ablation of CPU lowering rules, and the suite xla_cpu."""

import pytest

from benchmarks import ablation, compilation
from benchmarks.__main__ import main
from benchmarks.report import pages
from tf2jax_lite.xla_cpu import catalog


@pytest.mark.full
def test_each_rule_has_a_case():
    found = set()
    for _, lower in ablation.programs("full"):
        found |= ablation.rules_taken(lower)
    assert catalog.NAMES - found == set()


@pytest.mark.full
def test_table():
    found = main(["run", "--suite", "ablation", "--size", "small", "--only", "depthwise", "--budget", "0.01"])
    assert {r["rule"] for r in found} == {"depthwise"}
    row = pages.rules(found).splitlines()[2]
    assert row.startswith("| conv_general_dilated | `depthwise` | depthwise 3x3 | ") and found[0]["lines"] > 20
    assert found[0]["with"]["kernels"] > found[0]["without"]["kernels"] and found[0]["with"]["compile"] > 0


@pytest.mark.full
def test_models():
    found = ablation.without_each(ablation.of_models(["mobilenetv3"], "small"), ["depthwise"], 0.01)
    assert [case["case"] for case, _ in found] == [f"mobilenetv3, {what}" for what in ("batch 1", "batch 8", "step")]


@pytest.mark.full
def test_suite_of_a_cnn():
    records = main(["run", "--suite", "xla_cpu", "--size", "small", "--batch", "2", "--budget", "0.01"])
    assert [r["what"] for r in records] == ["forward", "step"]
    assert all(r["ratios"]["jax"] > 0 for r in records)


@pytest.mark.full
def test_suite_calls():
    options = ["--models", "unet", "--size", "small", "--batch", "1", "--budget", "0.01"]
    (found,) = main(["run", "--suite", "calls", *options])
    assert set(found["times"]) == set(found["compile"]) == {"native", *compilation.SETTINGS}
    assert found["kernels"]["none"] != found["kernels"]["all"]
    assert min(found["compile"].values()) > 0
