"""The ablation of CPU lowering rules, and the suite xla_cpu."""

import pytest

from benchmarks import ablation, ablation_models, expected_calls
from benchmarks.__main__ import main
from tf2jax_lite.xla_cpu import catalog


@pytest.mark.full
def test_each_rule_has_a_case():
    found = set()
    for name, lower in ablation.programs("full"):
        found |= ablation.rules_taken(name, lower)
    assert catalog.NAMES - found == set()


@pytest.mark.full
def test_table():
    records = list(ablation.records(ablation.programs("small"), ["depthwise"], 0.01))
    assert {r["rule"] for r in records} == {"depthwise"}
    row = ablation.table(records).splitlines()[2]
    assert row.startswith("| `depthwise` | depthwise 3x3 | ") and records[0]["lines"] > 20
    costs = records[0]["costs"]
    assert costs["with"]["kernels"] > costs["without"]["kernels"] and costs["with"]["compile"] > 0


@pytest.mark.full
def test_models():
    records = list(ablation.records(ablation_models.programs(["mobilenetv3"], "small"), ["depthwise"], 0.01))
    assert [r["case"] for r in records] == [f"mobilenetv3, {what}" for what in ("batch 1", "batch 8", "step")]


@pytest.mark.full
def test_suite_of_a_cnn():
    records = main(["--suite", "xla_cpu", "--size", "small", "--batch", "2", "--budget", "0.01"])
    assert [r["what"] for r in records] == ["forward", "step"]
    assert all(r["ratios"]["jax"] > 0 for r in records)


@pytest.mark.full
def test_suite_of_expected_calls():
    """With no call to save time in, rules with kernels of their own are left out."""
    (found,) = main(["--suite", "calls", "--models", "unet", "--size", "small", "--batch", "1", "--budget", "0.01"])
    assert set(found["ratios"]) == {"native", "all", "none", *(f"auto {n}" for n in expected_calls.CALLS)}
    assert found["kernels"]["auto 0"] < found["kernels"]["all"]
    assert all(r["compile"] > 0 < r["run"] for r in found["ratios"].values())
