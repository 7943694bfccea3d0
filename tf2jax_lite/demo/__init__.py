"""The demo: convert a bundled SavedModel, compare it, and train it in JAX.

Entry: `run_demo`, the command ``tf2jax-lite demo``.

Read in this order:
  __init__: data, conversion, comparison and central training.
  federated: ten rounds of federated averaging with two digits per client.

The data and the model are files beside these modules. Must not import `cli`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import documentation_address

from .federated import run_federated

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
