"""The demo: convert a bundled SavedModel, compare it, and train it in JAX.

Entry: `run_demo`, the command ``tf2jax-lite demo``.

Its last part is ten rounds of federated averaging with two digits per client.

The data and the model are files beside this module. Must not import `cli`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import documentation_address

__all__ = ["load_digits", "run_demo"]

_HERE = Path(__file__).parent


def load_digits() -> tuple[Any, Any, Any, Any]:
    """Return ``(train images, train labels, held-out images, held-out labels)``.

    Images are float32 of shape (n, 8, 8, 1) in [0, 1], labels int32 of shape (n,). The data are the 1,797 images of the
    UCI "Optical Recognition of Handwritten Digits" set, as scikit-learn distributes them.
    """
    import numpy as np

    with np.load(_HERE / "digits.npz") as data:
        images = data["images"].astype(np.float32) / 16
        labels = data["labels"].astype(np.int32)
        held_out = int(data["held_out"])
    return images[:-held_out], labels[:-held_out], images[-held_out:], labels[-held_out:]


def run_demo(console: Any, steps: int = 300) -> dict[str, float]:
    """Run the demo.

    Return its figures: accuracies, and the largest difference from TensorFlow.

    Args:
      console: a ``rich.console.Console`` to show it on.
      steps: number of training steps.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console.print("loading TensorFlow and JAX ...")
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tensorflow as tf

    import tf2jax_lite as tf2jax

    path = _HERE / "digits_cnn"
    started = time.perf_counter()
    jax_fn, params = tf2jax.convert_saved_model(path)
    predict = jax.jit(lambda params, images: jax_fn(params, image=images)[0]["output_0"])
    train_x, train_y, test_x, test_y = load_digits()
    logits = np.asarray(predict(params, test_x))
    seconds = time.perf_counter() - started
    trainable, other = tf2jax.split_params(params)
    console.print(
        f"converted a SavedModel of a CNN: {len(params)} variables, {len(trainable)} of them train; "
        f"conversion, compilation and first run took {seconds:.1f} s"
    )

    restored = tf.saved_model.load(str(path))
    expected = restored.signatures["serving_default"](image=tf.constant(test_x))["output_0"].numpy()
    difference = float(np.max(np.abs(expected - logits)))
    agree = float(np.mean(np.argmax(expected, -1) == np.argmax(logits, -1)))
    console.print(
        f"on {len(test_x)} held-out digits JAX and TensorFlow choose the same class for {agree:.1%}; "
        f"largest difference of a logit: {difference:.2g}"
    )
    before = float(np.mean(np.argmax(logits, -1) == test_y))
    console.print(f"accuracy before fine-tuning (the model saw 200 images): [bold]{before:.1%}[/bold]", markup=True)

    optimizer = optax.adam(1e-3)

    def loss_fn(trainable: Any, images: Any, labels: Any) -> Any:
        results, _ = jax_fn(tf2jax.merge_params(trainable, other), image=images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(results["output_0"], labels))

    @jax.jit
    def step(trainable: Any, state: Any, images: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(trainable, images, labels)
        updates, state = optimizer.update(grads, state, trainable)
        return optax.apply_updates(trainable, updates), state, loss

    trainable = {name: jnp.asarray(value) for name, value in trainable.items()}
    state = optimizer.init(trainable)
    rng = np.random.default_rng(0)
    columns = (
        TextColumn("fine-tuning in JAX"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("train", total=steps, loss="")
        for _ in range(steps):
            batch = rng.integers(0, len(train_x), 128)
            trainable, state, loss = step(trainable, state, train_x[batch], train_y[batch])
            progress.update(task, advance=1, loss=f"{float(loss):.3f}")
    logits = np.asarray(predict(tf2jax.merge_params(trainable, other), test_x))
    after = float(np.mean(np.argmax(logits, -1) == test_y))
    text = f"accuracy after {steps} steps of optax.adam in JAX:            [bold green]{after:.1%}[/bold green]"
    console.print(text, markup=True)
    curve = run_federated(console, predict, params, (train_x, train_y), (test_x, test_y))
    site = documentation_address() or "docs/"
    console.print(f"Next: tf2jax-lite inspect MODEL, for a model of yours, and {site}", soft_wrap=True)
    return {
        "before": before,
        "after": after,
        "federated": curve[-1],
        "agreement": agree,
        "max_abs_difference": difference,
    }


ROUNDS = 10


def digit_pairs(images: Any, labels: Any) -> dict[str, dict[str, Any]]:
    """Return ten clients, each with images of two digits.

    Client d has half of the images of digit d, and half of those of digit d + 1.

    Args:
      images: (n, ...).
      labels: (n,) of 0 to 9.

    Returns:
      Client name ("0+1" to "9+0") to examples ``image`` and ``y``. Every image is one client's.
    """
    import numpy as np

    halves = {d: np.array_split(np.flatnonzero(labels == d), 2) for d in range(10)}
    clients = {}
    for digit in range(10):
        after = (digit + 1) % 10
        own = np.concatenate([halves[digit][0], halves[after][1]])
        clients[f"{digit}+{after}"] = {"image": images[own], "y": labels[own]}
    return clients


def run_federated(
    console: Any,
    predict: Callable[[Mapping[str, Any], Any], Any],
    params: Mapping[str, Any],
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    rounds: int = ROUNDS,
) -> list[float]:
    """Train the converted model by federated averaging; print its accuracy.

    The clients are those of `digit_pairs`.

    Args:
      console: a ``rich.console.Console``.
      predict: ``(params, images) -> logits``.
      params: as conversion gave them.
      train: images and labels that the clients have.
      test: images and labels to measure on.
      rounds: how many.

    Returns:
      The accuracy before the first round and after each.
    """
    import jax.numpy as jnp
    import optax

    from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
    from tf2jax_lite.learning.data import ClientDataset, InMemoryFederatedData, ShuffleRepeatBatchHParams
    from tf2jax_lite.learning.losses import named_loss
    from tf2jax_lite.learning.metrics import Accuracy
    from tf2jax_lite.learning.model import evaluate_model
    from tf2jax_lite.learning.sources import create_model_from_converted

    def converted(params: Mapping[str, Any], images: Any) -> Any:
        return predict(params, images), params

    model = create_model_from_converted(
        (converted, params),
        None,
        named_loss("sparse_categorical_crossentropy", from_logits=True),
        {"accuracy": Accuracy()},
        inputs="image",
        written=(),
    )
    process = build_weighted_fed_avg(
        model, optax.sgd(0.05), client_batching=ShuffleRepeatBatchHParams(batch_size=16, num_epochs=1)
    )
    clients = InMemoryFederatedData(digit_pairs(*train))
    cohort = [dataset for _, dataset in clients.clients()]
    held_out = ClientDataset({"image": test[0], "y": test[1]})
    # All trained layers but the last are kept, so that training has a visible effect.
    weights = model.init(None)
    head = {n: jnp.zeros_like(v) if v.shape[-1:] == (10,) else v for n, v in weights.trainable.items()}
    console.print(
        f"federated averaging of the model as converted, its last layer new: {len(cohort)} clients, "
        f"each with one pair of digits ({', '.join(map(str, clients.client_ids()))})"
    )
    state = process.initialize(params=weights._replace(trainable=head))
    curve = []
    for number in range(rounds + 1):
        if number:
            state = process.next(state, cohort).state
        found = evaluate_model(model, process.get_model_weights(state), held_out.padded_batch(batch_size=128))
        curve.append(float(found["accuracy"]))
        bar = "█" * round(40 * curve[-1])
        console.print(f"  round {number:2}  {curve[-1]:6.1%}  {bar}", highlight=False)
    return curve
