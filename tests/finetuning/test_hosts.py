"""Two processes, each with four virtual devices, give the artifact of one."""

import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tests.artifacts.conftest import make_examples
from tests.learning.data.test_training_data import write_rows
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning.sharding import join_processes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((None, 2), "go with a coordinator"),
        (("localhost:1", 2), "several processes need"),
        (("localhost:1", 2, 2), "from 0 to num_processes - 1, not 'localhost:1', 2 and 2"),
        (("localhost", 2, 0), "several processes need"),
    ],
)
def test_options_that_do_not_go_together(options, says):
    with pytest.raises(InputError, match=says):
        join_processes(*options)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["npz", "tfrecord"])
@pytest.mark.parametrize("sharding", ["replicated", "fsdp"])
def test_two_processes_give_the_artifact_of_one(artifact, tmp_path, kind, sharding):
    train = make_examples(64, 0)
    if kind == "npz":
        np.savez(tmp_path / "train.npz", **train)
    else:
        write_rows(tmp_path / "train.tfrecord", train)
    np.savez(tmp_path / "test.npz", **make_examples(30, 1))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # SGD with whole epochs as batches: the order of examples in a batch does not matter.
    common = [
        "finetune",
        artifact,
        "--from-logits",
        "--data",
        tmp_path / f"train.{kind}",
        "--eval",
        tmp_path / "test.npz",
    ]
    common += ["--train-signature", "serving_default"]  # Dropout would draw for other examples
    common += ["--epochs", 3, "--batch-size", 64, "--optimizer", "sgd", "--learning-rate", 0.1, "--quiet"]

    def start(*args):
        env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
        command = [sys.executable, "-m", "tf2jax_lite", *map(str, [*common, *args])]
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)

    both = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", 2, "--mesh", "data=8", "--sharding", sharding]
    both += ["--out", tmp_path / "two", "--checkpoint-dir", tmp_path / "state"]

    def finished(*started):
        for process in started:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors

    # The first two epochs before the third: those of two processes go on from a checkpoint.
    one, two = start("--out", tmp_path / "one"), [start(*both, "--epochs", 2, "--process-id", i) for i in range(2)]
    finished(one, *two)
    parts = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert parts == [f"training-2-{i}-of-2.safetensors" for i in range(2)]
    finished(*(start(*both, "--force", "--process-id", i) for i in range(2)))
    finished(start("--checkpoint-dir", tmp_path / "state", "--out", tmp_path / "alone"))  # of all three epochs
    one, two, alone = (tf2jax.load(tmp_path / name, "serving_default")[1] for name in ("one", "two", "alone"))
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(alone[name], two[name], err_msg=name)
    assert jax.process_count() == 1
