"""Checkpoints on meshes: resumed on the same mesh, on another, and after SIGKILL."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optax
import pytest

from tests.learning.data.test_training_data import write_rows
from tf2jax_lite.errors import CheckpointError
from tf2jax_lite.finetuning import Callback, finetune
from tf2jax_lite.learning.sources import create_model_from_fn

ROOT = Path(__file__).parent.parent.parent
X = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
DATA = {"x": X, "y": (X @ np.ones((8, 1)) + 0.5).astype(np.float32)}


class Stop(Exception):
    pass


class StopAt(Callback):
    def __init__(self, step):
        self.last = step

    def on_step(self, step, num_examples, state):
        if step == self.last:
            raise Stop


class Seen(Callback):
    def __init__(self):
        self.steps = []

    def on_step(self, step, num_examples, state):
        self.steps.append(step)


def trained(data=DATA, epochs=3, **options):
    model = create_model_from_fn({"w": np.zeros((8, 1), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    options = {"optimizer": optax.adam(0.05), "batch_size": 8, "eval_examples": DATA, **options}
    weights, history = finetune(model, data, epochs=epochs, **options)
    return np.asarray(weights.trainable["w"]), [{**record, "seconds": 0} for record in history.records]


def test_a_training_on_a_mesh_goes_on(tmp_path):
    options = {"mesh": "data=1", "sharding": "fsdp", "checkpoint_steps": 3, "ema_decay": 0.5, "keep_best": True}
    whole, expected = trained(**options)
    with pytest.raises(Stop):
        trained(**options, checkpoint_dir=tmp_path, callbacks=[StopAt(7)])  # in the second epoch
    found, records = trained(**options, checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(found, whole)
    assert records == expected
    plain = {name: value for name, value in options.items() if name not in ("mesh", "sharding")}
    longer, records = trained(epochs=4, **plain, checkpoint_dir=tmp_path)  # without a mesh
    assert len(records) == 5 and not np.array_equal(longer, found)
    with pytest.raises(CheckpointError, match="batch_size: 8 then, 4 now"):
        trained(**options, checkpoint_dir=tmp_path, batch_size=4)
    with pytest.raises(CheckpointError, match="of 4 epochs, more than the 3"):
        trained(**options, checkpoint_dir=tmp_path)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot be read"):
        trained(**options, checkpoint_dir=tmp_path)


@pytest.mark.full
def test_a_training_of_one_device_goes_on_on_a_mesh(tmp_path):
    options = {"checkpoint_steps": 2, "keep_best": True}
    whole, expected = trained(**options)
    with pytest.raises(Stop):
        trained(**options, checkpoint_dir=tmp_path, callbacks=[StopAt(7)])
    seen = Seen()
    found, records = trained(**options, checkpoint_dir=tmp_path, mesh="data=1", sharding="fsdp", callbacks=[seen])
    assert seen.steps == list(range(7, 13))  # not from the begin
    np.testing.assert_allclose(found, whole, rtol=1e-6)
    assert len(records) == len(expected)


@pytest.mark.full
def test_a_checkpoint_within_a_later_epoch_is_refused(tmp_path):
    options = {"checkpoint_dir": tmp_path, "checkpoint_steps": 1}
    with pytest.raises(Stop):
        trained(**options, callbacks=[StopAt(6)])
    with pytest.raises(CheckpointError, match="within epoch 2, beyond the 1 requested"):
        trained(**options, epochs=1)


def program(code, *args, **more):
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.finetuning.test_resuming import *\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


ON_MESHES = """
whole, _ = trained(mesh="data=8", sharding="fsdp")
found = []
for i, places in enumerate(({"mesh": "data=4,model=2", "shard": ["w=model"]}, {"mesh": "data=2,model=4"}, {})):
    where = {"checkpoint_dir": f"{sys.argv[1]}/{i}", "checkpoint_steps": 1}
    try:
        trained(mesh="data=8", sharding="fsdp", **where, callbacks=[StopAt(6)])
    except Stop:
        found.append(float(abs(trained(**places, **where)[0] - whole).max()))
print(json.dumps(found))
"""


@pytest.mark.full
def test_a_training_goes_on_with_another_mesh(tmp_path):
    output, errors = (process := program(ON_MESHES, tmp_path)).communicate(timeout=600)
    assert process.returncode == 0, errors
    found = json.loads(output.splitlines()[-1])
    assert len(found) == 3 and max(found) < 1e-5


KILLED = """
from tf2jax_lite.finetuning import open_data
class Slow(Callback):
    def on_step(self, step, num_examples, state):
        print(step, flush=True)
        time.sleep(0.05)
options = json.loads(sys.argv[2])
weights, _ = trained(open_data(sys.argv[1]), 5, **options, callbacks=[Slow()] if len(sys.argv) > 4 else [])
np.save(sys.argv[3], weights)
"""


@pytest.mark.full
@pytest.mark.parametrize("mesh", [{}, {"mesh": "data=8", "sharding": "fsdp"}])
def test_a_killed_training_ends_with_the_same_bits(tmp_path, mesh):
    """The data are shards that Grain reads; kills come in the middle of epochs."""
    pytest.importorskip("grain")
    write_rows(tmp_path / "a.tfrecord", DATA)
    options = {**mesh, "checkpoint_steps": 1}

    def start(out, *more, **extra):
        return program(KILLED, tmp_path / "a.tfrecord", json.dumps({**options, **extra}), tmp_path / out, *more)

    process = start("whole.npy")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    rng, kills = random.Random(0), 0
    for _ in range(4):
        process = start("killed.npy", "slow", checkpoint_dir=str(tmp_path / "state"))
        for _ in range(rng.randrange(2, 5)):
            process.stdout.readline()
        time.sleep(rng.random() / 10)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills and not (tmp_path / "killed.npy").exists()
    process = start("killed.npy", checkpoint_dir=str(tmp_path / "state"))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    np.testing.assert_array_equal(np.load(tmp_path / "killed.npy"), np.load(tmp_path / "whole.npy"))
