"""Records of trainings while they run, and options from a file."""

import json

import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests.artifacts.conftest import make_examples
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.finetuning.callbacks import Callback, Profile, Throughput
from tf2jax_lite.learning.recorder import JSONLinesReleaseManager, TensorBoardReleaseManager
from tf2jax_lite.learning.sources import create_model_from_fn

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
DATA = {"x": X, "y": (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)}


class Seen(Callback):
    def __init__(self):
        self.steps, self.records, self.ended = [], [], 0

    def on_step(self, step, num_examples, state):
        self.steps.append((step, num_examples, int(state.num_examples)))

    def on_record(self, record):
        self.records.append(record)

    def on_end(self):
        self.ended += 1


def trained(*callbacks):
    model = create_model_from_fn({"w": np.zeros((3, 1), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    _, history = finetune(model, DATA, optimizer=optax.sgd(0.1), epochs=2, batch_size=8, callbacks=callbacks)
    return history.records


def test_callbacks_see_steps_and_records(tmp_path):
    seen, rates = Seen(), Throughput()
    files = JSONLinesReleaseManager(tmp_path / "new" / "log.jsonl"), TensorBoardReleaseManager(tmp_path / "events")
    records = trained(seen, rates, *files)
    assert seen.steps == [(1, 8, 8), (2, 8, 16), (3, 4, 20), (4, 8, 8), (5, 8, 16), (6, 4, 20)]
    assert seen.records == records and seen.ended == 1 and rates.rate() is None
    lines = (tmp_path / "new" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    (events,) = (tmp_path / "events").iterdir()
    assert events.read_bytes().count(b"loss") == 2  # of two epochs
    with pytest.raises(DataError, match="cannot be written"):
        JSONLinesReleaseManager(tmp_path / "new" / "log.jsonl" / "x" / "y")


@pytest.mark.full
def test_throughput_leaves_the_first_step_out():
    rates = Throughput()
    found = []

    class Ask(Callback):
        def on_step(self, step, num_examples, state):
            found.append(rates.rate())

    trained(rates, Ask())
    assert [rate is None for rate in found] == [True, False, False] * 2
    assert all(rate > 0 for rate in found if rate is not None)


def test_a_profile_has_a_trace(tmp_path):
    trained(Profile(tmp_path / "trace", first=2, count=2))
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))
    profile = Profile(tmp_path / "short")  # six steps, and the first traced one would be the tenth
    trained(profile)
    assert list((tmp_path / "short").rglob("*.xplane.pb")) and not profile._running


@pytest.mark.full
def test_options_from_a_file(artifact, tmp_path):
    """A run's file repeats it; the command line's options win; mistakes are named."""
    np.savez(tmp_path / "train.npz", **make_examples(32, 0))
    file = tmp_path / "run.toml"
    file.write_text(
        f'data = "{tmp_path / "train.npz"}"\nepochs = 1\nlearning-rate = 0.02\nbatch_size = 16\n'
        'freeze = ["hidden"]\nmetric = ["top_2_accuracy"]\nkeep-best = true\noptimizer = "sgd"\n'
    )

    def run(*args):
        return CliRunner().invoke(app, ["finetune", str(artifact), "--from-logits", "--json", *map(str, args)])

    one = run("--config", file, "--out", tmp_path / "one", "--momentum", 0.9)
    assert one.exit_code == 0, (one.output, one.exception)
    written = (tmp_path / "one" / "finetune.toml").read_text()
    assert "learning-rate = 0.02" in written and 'freeze = ["hidden"]' in written and "momentum = 0.9" in written
    two = run("--config", tmp_path / "one" / "finetune.toml", "--out", tmp_path / "two")
    assert two.exit_code == 0, (two.output, two.exception)
    assert json.loads(two.output)["history"][1]["loss"] == json.loads(one.output)["history"][1]["loss"]
    a, b = (tf2jax.load(tmp_path / name, "serving_default")[1] for name in ("one", "two"))
    assert all(np.array_equal(a[name], b[name]) for name in a)
    for text, says in (
        ("rate = 1", "finetune has no option 'rate'"),
        ("freeze = 'a'", "takes a list"),
        ("epochs = [1]", "takes one value"),
        ("epochs", "not a readable TOML"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=says):
            raise run("--config", file, "--data", file, "--out", tmp_path / "x").exception
