"""Losses against Keras and numpy, their options, and a user's own."""

import sys

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.learning.losses import LossOptions, options_by_output, parse_output_losses, training_loss

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 5, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 4, (6, 5))
SPARSE = "sparse_categorical_crossentropy"


def loss_of(name, targets, predictions, from_logits=True, **options):
    found = training_loss(name, LossOptions(**options), from_logits=from_logits, label="y")
    return np.asarray(found({"y": targets}, predictions))


def entropies():
    log = np.asarray(jax.nn.log_softmax(LOGITS), np.float64)
    return -np.take_along_axis(log, CLASSES[..., None], -1)[..., 0]


@pytest.mark.full
def test_ignored_positions_do_not_count():
    targets = np.where(RNG.random((6, 5)) < 0.4, -1, CLASSES)
    targets[0] = -1
    real = targets >= 0
    expected = (entropies() * real).sum(1) / np.maximum(real.sum(1), 1)
    np.testing.assert_allclose(loss_of(SPARSE, targets, LOGITS, ignore_label=-1), expected, rtol=1e-5)
    assert loss_of(SPARSE, targets, LOGITS, ignore_label=-1)[0] == 0


@pytest.mark.full
def test_weights_smoothing_and_focus():
    weights = [0.5, 1.0, 2.0, 0.0]
    found = loss_of(SPARSE, CLASSES, LOGITS, class_weights=weights)
    np.testing.assert_allclose(found, (entropies() * np.take(weights, CLASSES)).mean(1), rtol=1e-5)
    found = loss_of(SPARSE, CLASSES, LOGITS, label_smoothing=0.2)
    smooth = optax.smooth_labels(jax.nn.one_hot(CLASSES, 4), 0.2)
    np.testing.assert_allclose(found, optax.softmax_cross_entropy(LOGITS, smooth).mean(1), rtol=1e-5)
    np.testing.assert_allclose(
        loss_of("categorical_crossentropy", np.eye(4)[CLASSES], LOGITS, label_smoothing=0.2), found, rtol=1e-5
    )
    labels, values = RNG.integers(0, 2, 8), RNG.normal(size=(8, 1)).astype(np.float32)
    found = loss_of("binary_crossentropy", labels, values, focal_gamma=2.0)
    expected = optax.sigmoid_focal_loss(values[:, 0], labels.astype(np.float32), gamma=2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = loss_of("binary_crossentropy", labels, values, class_weights=[1.0, 3.0])
    plain = loss_of("binary_crossentropy", labels, values)
    np.testing.assert_allclose(found, plain * np.where(labels == 1, 3, 1), rtol=1e-6)


@pytest.mark.default_cases("log_cosh-<lambda>", "mean_squared_error-<lambda>")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("huber", lambda e, t, p: np.where(abs(e) < 1, e**2 / 2, abs(e) - 0.5).mean(-1)),
        ("log_cosh", lambda e, t, p: np.log(np.cosh(e)).mean(-1)),
        ("cosine", lambda e, t, p: 1 - (t * p).sum(-1) / np.linalg.norm(t, axis=-1) / np.linalg.norm(p, axis=-1)),
        ("mean_squared_error", lambda e, t, p: (e**2).mean(-1)),
    ],
)
def test_losses_of_optax(name, expected):
    targets, predictions = RNG.normal(size=(2, 7, 3)).astype(np.float32)
    found = loss_of(name, targets, predictions)
    np.testing.assert_allclose(found, expected(predictions - targets, targets, predictions), rtol=1e-4)


def test_a_users_own_loss(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(
        "def cubic(batch, predictions):\n    return abs(predictions - batch['y']) ** 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert loss_of("my_losses:cubic", np.zeros(2), np.array([1.0, 2.0])).tolist() == [1.0, 8.0]
    sys.modules.pop("my_losses")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("hinge", {}, "no loss 'hinge'; there are .*huber"),
        ("no_module_of_this_name:f", {}, "cannot be imported"),
        ("math:pi", {}, "is a float, not a function"),
        (len, {}, "no loss <built-in function len>"),
        ("mse", {"focal_gamma": 1.0}, "focal_gamma does not go with the loss 'mse'"),
        ("binary_crossentropy", {"ignore_label": -1}, "ignore_label does not go with"),
        ("cosine", {"label_smoothing": 0.1}, "label_smoothing does not go with"),
        (SPARSE, {"label_smoothing": 1.0}, "at least 0 and below 1"),
        (SPARSE, {"focal_gamma": -1.0}, "focal_gamma is a finite number of at least 0"),
        (SPARSE, {"class_weights": [-1.0]}, "finite numbers"),
        (SPARSE, {"class_weights": [1.0]}, "1 numbers for 4 classes"),
    ],
)
def test_losses_that_do_not_fit(name, options, says):
    with pytest.raises(InputError, match=says):
        loss_of(name, CLASSES, LOGITS, **options)


@pytest.mark.parametrize(
    ("losses", "weights", "says"),
    [
        (["age"], [], "output_losses are NAME=LOSS"),
        (["age=mse", "age=mae"], [], "each output once"),
        (["age=mse"], ["age=x"], "a finite number of 0 or more, not 'x'"),
        (["age=mse"], ["age=-1"], "a finite number of 0 or more, not '-1'"),
        (["age=mse"], ["sex=1"], "'sex' has a weight and no loss"),
    ],
)
def test_losses_of_outputs_that_do_not_fit(losses, weights, says):
    with pytest.raises(InputError, match=says):
        parse_output_losses(losses, weights)


def test_options_apply_to_the_losses_that_have_them():
    tasks = parse_output_losses([f"kind={SPARSE}", "old=binary_crossentropy", "age=mse"])
    options = LossOptions(label_smoothing=0.1, ignore_label=-1)
    assert options_by_output(tasks, options) == {
        "kind": options,
        "old": LossOptions(label_smoothing=0.1),
        "age": LossOptions(),
    }
    with pytest.raises(InputError, match="ignore_label goes with none of the losses binary_crossentropy, mse"):
        options_by_output(tasks[1:], options)
