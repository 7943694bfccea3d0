"""The tutorial of docs/finetuning.md runs as it is written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs" / "finetuning.md"


@pytest.mark.full
def test_the_tutorial_ends_with_a_trained_saved_model(tmp_path):
    pytest.importorskip("grain")
    text = DOCS.read_text().split("## Tutorial")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "sh"]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for kind, code in blocks:
        command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-e", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    records = [json.loads(line) for line in (tmp_path / "tuned" / "history.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < 0.5 * records[1]["loss"]
    import tensorflow as tf

    with np.load(tmp_path / "shards" / "train-0.npz") as data:
        x, y = data["x"], data["y"]
    served = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    (logits,) = served(tf.constant(x)).values()
    assert np.mean(np.argmax(logits, -1) == y) > 0.8
