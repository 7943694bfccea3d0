"""The demo's last part: ten federated rounds with two digits per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
