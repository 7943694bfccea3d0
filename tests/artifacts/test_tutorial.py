"""Run docs/finetuning-tutorial.md; the tuned model is the same in both frameworks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tf2jax_lite as tf2jax

PAGE = Path(__file__).parent.parent.parent / "docs" / "finetuning-tutorial.md"


@pytest.mark.full
def test_the_tutorial_ends_with_a_trained_saved_model(tmp_path):
    pytest.importorskip("grain")
    blocks = re.findall(r"```(\w+)[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "sh"} and len(blocks) == 9
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    output = ""
    for kind, code in blocks:
        if code.startswith("pip install"):
            continue
        command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-e", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{code}\n{done.stderr[-3000:]}"
        output += done.stdout
    records = [json.loads(line) for line in (tmp_path / "tuned" / "history.jsonl").read_text().splitlines()]
    assert records[0]["eval/accuracy"] < 0.3 and max(record["eval/accuracy"] for record in records) > 0.85
    found = re.findall(r"accuracy in \w+: (\S+)", output)
    best = min(records, key=lambda record: record["eval/loss"])
    assert len(found) == 2 and [float(share) for share in found] == pytest.approx([best["eval/accuracy"]] * 2)
    adapters = safetensors.numpy.load_file(tmp_path / "tuned" / "adapters.safetensors")
    params, merged, before = (
        tf2jax.load(tmp_path / name, "serving_default")[1] for name in ("tuned", "merged", "model")
    )
    changed = {name for name in params if "seed" not in name and not np.array_equal(params[name], before[name])}
    assert len(changed) == 4 and {name.rsplit("/", 1)[0] for name in adapters} == changed
    for name in changed:
        np.testing.assert_allclose(merged[name], params[name], rtol=1e-6, atol=1e-7)
