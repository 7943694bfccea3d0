"""Early stopping, the best epoch, checkpoints within epochs, and metrics by name."""

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.finetuning.callbacks import Callback, Monitor
from tf2jax_lite.learning.losses import OutputLoss
from tf2jax_lite.learning.metrics import evaluate_batch
from tf2jax_lite.learning.named_metrics import metrics_by_output, named_metrics
from tf2jax_lite.learning.sources import create_model_from_fn

X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
DATA = {"x": X, "y": (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)}
# After some epochs the loss on other targets rises again.
OTHER = {"x": X, "y": (0.3 * DATA["y"]).astype(np.float32)}


def linear():
    return create_model_from_fn({"w": np.zeros((3, 1), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")


def trained(epochs=8, **options):
    options = {"optimizer": optax.adam(0.05), "batch_size": 8, "eval_examples": OTHER, **options}
    weights, history = finetune(linear(), DATA, epochs=epochs, **options)
    return np.asarray(weights.trainable["w"]), history.records


def records(metric, *values):
    return [{metric: value} for value in values]


def test_the_best_value_and_the_end():
    loss, accuracy = Monitor("eval/loss", 2), Monitor("eval/accuracy")
    assert loss.improved(records("eval/loss", 3.0, 2.0)) and not loss.improved(records("eval/loss", 3.0, 3.0))
    assert loss.exhausted(records("eval/loss", 1.0, 2.0, 1.0)) and not loss.exhausted(records("eval/loss", 2.0, 1.0, 3))
    assert accuracy.improved(records("eval/accuracy", 0.1, 0.2))
    assert not accuracy.exhausted(records("eval/accuracy", 1.0, *[0.0] * 9))
    assert loss.improved([{}, *records("eval/loss", 5.0)]) and not loss.improved(records("eval/loss", 1.0, None))


@pytest.mark.full
def test_training_ends_early_with_the_best_weights():
    weights, found = trained(patience=2, keep_best=True)
    losses = [record["eval/loss"] for record in found]
    best = int(np.argmin(losses))
    assert 0 < best == len(losses) - 3 < 6
    same, _ = trained(best)
    np.testing.assert_array_equal(weights, same)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"patience": 0}, "patience is an integer of at least 1"),
        ({"monitor": "eval/accuracy"}, r"no metric 'eval/accuracy' to monitor; there are \['eval/loss', 'loss'\]"),
        ({"checkpoint_steps": 0}, "checkpoint_steps is an integer of at least 1"),
    ],
)
def test_options_out_of_range(options, says):
    with pytest.raises(InputError, match=says):
        trained(**options)


class Stop(Exception):
    pass


class StopAt(Callback):
    def __init__(self, step):
        self.last = step

    def on_step(self, step, num_examples, state):
        if step == self.last:
            raise Stop


@pytest.mark.full
@pytest.mark.parametrize("step", [2, 4, 7])
def test_a_training_goes_on_within_an_epoch(tmp_path, step):
    """Of four steps an epoch every second is stored: after step 7, 6 goes on."""
    options = {"epochs": 3, "checkpoint_steps": 2, "ema_decay": 0.5, "keep_best": True}
    whole, expected = trained(**options)
    where = {"checkpoint_dir": tmp_path, **options}
    with pytest.raises(Stop):
        trained(**where, callbacks=[StopAt(step)])
    found, records = trained(**where)
    np.testing.assert_array_equal(found, whole)
    for a, b in zip(records, expected, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.mark.full
def test_metrics_by_name():
    """Against scikit-learn."""
    from sklearn import metrics as sklearn_metrics

    rng = np.random.default_rng(3)
    scores, classes = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 4, 60)
    values, labels = rng.normal(size=200).astype(np.float32), rng.integers(0, 2, 200)

    def result(name, loss, predictions, y):
        (metric,) = named_metrics([name], loss, True, "y").values()
        return float(evaluate_batch(metric, {"y": y}, predictions).result())

    sparse, binary = "sparse_categorical_crossentropy", "binary_crossentropy"
    top = sklearn_metrics.top_k_accuracy_score(classes, scores, k=2)
    assert result("top_2_accuracy", sparse, scores, classes) == pytest.approx(top)
    assert result("accuracy", sparse, scores, classes) == pytest.approx(np.mean(scores.argmax(-1) == classes))
    assert result("accuracy", binary, values, labels) == pytest.approx(np.mean((values > 0) == labels))
    area = sklearn_metrics.roc_auc_score(labels, values)
    assert result("auc", binary, values, labels) == pytest.approx(area, abs=5e-3)
    area = sklearn_metrics.average_precision_score(labels, values)
    assert result("pr_auc", binary, values, labels) == pytest.approx(area, abs=2e-2)
    shares = np.asarray(jax.nn.softmax(scores))
    area = sklearn_metrics.roc_auc_score(np.eye(4)[classes], shares, average="micro")
    assert result("auc", sparse, scores, classes) == pytest.approx(area, abs=5e-3)
    assert result("auc", "categorical_crossentropy", scores, np.eye(4)[classes]) == pytest.approx(area, abs=5e-3)
    pairs = np.stack([-values, 2 * values], -1)
    area = sklearn_metrics.average_precision_score(labels, values)
    assert result("pr_auc", sparse, pairs, labels) == pytest.approx(area, abs=2e-2)
    log = np.asarray(jax.nn.log_softmax(scores.reshape(15, 4, 4)))
    nll = -np.take_along_axis(log, classes.reshape(15, 4, 1), -1).mean()
    tokens = scores.reshape(15, 4, 4), classes.reshape(15, 4)
    assert result("perplexity", sparse, *tokens) == pytest.approx(np.exp(nll), rel=1e-5)
    hits = np.mean(tokens[0].argmax(-1) == tokens[1])
    assert result("token_accuracy", sparse, *tokens) == pytest.approx(hits)
    with pytest.raises(InputError, match="no metric 'top_0_accuracy'; there are accuracy, auc"):
        named_metrics(["top_0_accuracy"], sparse, True, "y")


@pytest.mark.full
@pytest.mark.parametrize("name", ["accuracy", "token_accuracy", "top_2_accuracy", "auc", "perplexity"])
def test_ignored_labels_do_not_count(name):
    """A batch with ignored positions has the metric of the others."""
    rng = np.random.default_rng(4)
    scores, classes = rng.normal(size=(6, 5, 4)).astype(np.float32), rng.integers(0, 4, (6, 5))
    ignored = np.arange(5) >= [[1], [2], [3], [4], [5], [5]]

    def result(y, predictions):
        (metric,) = named_metrics([name], "sparse_categorical_crossentropy", True, "y", ignore_label=-1).values()
        return float(evaluate_batch(metric, {"y": y}, predictions).result())

    found = result(np.where(ignored, -1, classes), scores)
    assert found == pytest.approx(result(classes[~ignored], scores[~ignored]), rel=1e-5)


def test_metrics_of_single_outputs():
    tasks = [OutputLoss("age", "mse", 1.0), OutputLoss("kind", "sparse_categorical_crossentropy", 1.0)]
    found = metrics_by_output(["mae", "kind/accuracy"], tasks)
    assert found == {"age": ["mae"], "kind": ["mae", "accuracy"]}
    with pytest.raises(InputError, match=r"'sex/accuracy' is of an output without a loss; there are \['age', 'kind'\]"):
        metrics_by_output(["sex/accuracy"], tasks)
