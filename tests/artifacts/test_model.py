"""Training data of an artifact: conversions, and refusals before training starts."""

import dataclasses
import os
import re

import ml_dtypes
import numpy as np
import optax
import pytest

from tests.artifacts.conftest import make_examples
from tf2jax_lite.artifacts.model import TrainableModel, trainable_model
from tf2jax_lite.errors import ExportError, InputError, TrainingError
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.finetuning import History, finetune
from tf2jax_lite.learning.optimizers import named_optimizer
from tf2jax_lite.learning.options import ModelOptions
from tf2jax_lite.learning.sources import create_model_from_fn

SPARSE = "sparse_categorical_crossentropy"

MODEL = create_model_from_fn({"w": np.ones((6, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
IMAGES = TrainableModel(
    MODEL, {"x": np.dtype("float32")}, "y", True, ("train", "eval"), shapes={"x": ["b", 2, 3, 1]}, classes={"y": 3}
)
SEQUENCES = TrainableModel(MODEL, {"x": np.dtype("int32")}, "y", True, ("train", "eval"), shapes={"x": ["b", "t"]})
X, Y = np.arange(24, dtype=np.float32).reshape(4, 2, 3, 1), np.array([0, 1, 2, 1])


@pytest.mark.parametrize("shape", [(4, 2, 3, 1), (4, 6), (4, 2, 3), (4, 1, 2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_rows_take_the_inputs_shape(shape, dtype):
    found = IMAGES.examples({"image": X.reshape(shape).astype(dtype), "y": Y}, "the data")
    np.testing.assert_array_equal(found["x"], X)
    assert found["x"].dtype == np.float32


def test_sizes_that_vary_stay():
    assert SEQUENCES.examples({"x": np.zeros((4, 7), np.int64), "y": Y}, "the data")["x"].shape == (4, 7)


@pytest.mark.parametrize(
    ("subject", "change", "says"),
    [
        (
            IMAGES,
            {"x": X.reshape(4, 3, 2, 1)},
            r"the data: .x. has shape .4, 3, 2, 1.; the model takes .4, 2, 3, 1.",
        ),
        (IMAGES, {"x": np.zeros((4, 5))}, r"'x' has shape \[4, 5\]"),
        (SEQUENCES, {"x": np.zeros((4, 7, 1), int)}, r"the model takes \[4, \?\]"),
        (SEQUENCES, {"x": np.zeros((4, 7))}, "'x' is float64; the model takes int32"),
        (SEQUENCES, {"x": np.full((4, 7), 2**33 + 5)}, "'x' has values from .*, too large for int32"),
        (SEQUENCES, {"x": np.full((4, 7), 2**31, np.uint32)}, "'x' has values from .*, too large for int32"),
        (IMAGES, {"x": X.astype(np.complex64)}, "'x' is complex64; the model takes float32"),
        (IMAGES, {"x": X.astype(str)}, "'x' is <U.*; the model takes float32"),
        (IMAGES, {"x": np.float32(1)}, "'x' is a scalar"),
        (IMAGES, {"y": np.int32(1)}, "'y' is a scalar"),
        (IMAGES, {"x": [[0.0] * 6, [0.0] * 5]}, "'x' is not an array: .* Pad rows to one length"),
        (IMAGES, {"y": Y.astype(str)}, "the targets 'y' are <U"),
        (IMAGES, {"y": Y + 1}, "from 1 to 3, and the model has 3 classes, 0 to 2"),
        (IMAGES, {"y": Y - 1}, "from -1 to 1"),
        (IMAGES, {"y": np.array([0, np.nan, 1, 1])}, "from nan to nan"),
        (IMAGES, {"y": Y[:3]}, "differ in the number of examples"),
        (IMAGES, {"x": X[:0], "y": Y[:0]}, "the data: there are no examples"),
    ],
)
def test_what_does_not_fit(subject, change, says):
    with pytest.raises(InputError, match=says):
        subject.examples({"x": X, "y": Y, **change}, "the data", may_be_empty=False)


def test_losses_of_users_see_further_arrays():
    own = dataclasses.replace(SEQUENCES, keeps_all=True)
    given = {"x": np.zeros((4, 7), int), "y": Y, "weight": np.ones(4), "id": np.array(list("abcd"))}
    assert own.examples(given, "the data").keys() == {"x", "y", "weight"}
    assert SEQUENCES.examples(given, "the data").keys() == {"x", "y"}


@pytest.mark.full
def test_classes_are_those_of_the_model(artifact):
    subject = trainable_model(artifact, ModelOptions(loss=SPARSE, from_logits=True), sample=make_examples(4, 0))
    assert subject.classes == {"y": 3}
    with pytest.raises(InputError, match=r"no param's name has 'hiden'; there are \["):
        trainable_model(artifact, ModelOptions(loss=SPARSE, from_logits=True, freeze=["hiden"]))


@pytest.mark.default_cases("change2-1000000000000.0-lower the learning rate")
@pytest.mark.parametrize(
    ("change", "rate", "says"),
    [
        (
            {"x": np.where(np.arange(48).reshape(8, 6) == 33, np.nan, 1).astype(np.float32)},
            0.1,
            "'x' of example 5 is NaN",
        ),
        ({}, 1e30, "lower the learning rate"),
        ({"y": np.full((8, 3), 1e30, np.float32)}, 1e12, "lower the learning rate"),
    ],
)
def test_why_a_training_ends_in_nan(change, rate, says):
    data = {"x": np.ones((8, 6), np.float32), "y": np.zeros((8, 3), np.float32), **change}
    with pytest.raises(TrainingError, match=says):
        finetune(MODEL, data, optimizer=optax.sgd(rate), epochs=2, batch_size=8)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_are_finite(rate):
    with pytest.raises(InputError, match="learning rate is a finite number above 0"):
        named_optimizer("sgd", rate)


@pytest.mark.parametrize("values", [(1e30, 1e30), (0.0, 0.0), (-1e-30, 1e-30), (1e38, -1e38)])
def test_any_history_has_a_plot(values):
    history = History("epoch")
    for number, value in enumerate(values):
        history.add(number, {"loss": value})
    assert b"nan" not in history.svg().replace(b"middle", b"") and b"polyline" in history.svg()
    assert history.svg().decode() in history._repr_html_()


def test_what_is_no_artifact_is_not_replaced(tmp_path):
    """Said before the training, not after."""
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ExportError, match="left as it is"):
        refuse_existing(tmp_path, overwrite=True)


@pytest.mark.parametrize(("where", "says"), [("notes/out", "notes is not a directory"), ("link/out", "link is not a")])
def test_what_has_no_place_is_refused(tmp_path, where, says):
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for overwrite in (False, True):
        with pytest.raises(ExportError, match=says):
            refuse_existing(tmp_path / where, overwrite=overwrite)
    refuse_existing(tmp_path / "new" / "out", overwrite=False)


@pytest.mark.full
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: False)  # who runs tests may be allowed to do anything
    with pytest.raises(ExportError, match=f"{tmp_path.name} may not be written to"):
        refuse_existing(tmp_path / "new" / "out", overwrite=False)


@pytest.mark.full
def test_names_of_many_curves_do_not_lie_on_each_other():
    """Four clusters have eight losses."""
    history = History("round")
    history.add(1, {f"{kind}/cluster_{k}/loss": 1.0 for kind in ("train", "eval") for k in range(4)})
    positions = re.findall(rb'<text (x="\d+" y="\d+") fill', history.svg())
    assert len(positions) == 8 == len(set(positions))
    assert max(int(p.split(b'"')[1]) for p in positions) < 600
