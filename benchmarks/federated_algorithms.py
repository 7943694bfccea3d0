"""Curves of federated algorithms on synthetic EMNIST, in one plot.

    python -m benchmarks.federated_algorithms

It writes docs/federated-algorithms.json and docs/federated-algorithms.svg. The plot needs the extra ``plot``, the
privacy budget the extra ``dp``. The model is logistic regression; classes and brightness differ among clients. All
algorithms have the same cohorts, batches and local epochs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite import federated
from tf2jax_lite.federated import aggregators

DOCS = Path(__file__).parent.parent / "docs"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of the experiment."""

    clients: int = 200
    clients_per_round: int = 20
    rounds: int = 40
    every: int = 2  # rounds between evaluations
    epochs: int = 2
    batch_size: int = 20
    client_rate: float = 0.05
    noise_multiplier: float = 0.5
    clip: float = 0.5


def as_example(client_id: Any, examples: Any) -> dict[str, Any]:
    """Return flat images, dark on white as 0 on 1 in EMNIST, with ink as 1."""
    return {"x": 1 - examples["pixels"].reshape(-1, 784), "y": examples["label"]}


def logistic_regression() -> federated.Model:
    return federated.create_model_from_fn(
        {"w": jnp.zeros((784, 62)), "b": jnp.zeros(62)},
        lambda params, batch: batch["x"] @ params["w"] + params["b"],
        "sparse_categorical_crossentropy",
        {"accuracy": federated.metrics.Accuracy()},
    )


def processes(settings: Settings) -> dict[str, Any]:
    """Return the algorithms by name."""
    model, sgd = logistic_regression(), optax.sgd(settings.client_rate)
    batching = federated.ShuffleRepeatBatchHParams(
        settings.batch_size, num_epochs=settings.epochs, fill_remainder=False
    )
    options: dict[str, Any] = {"client_batching": batching}
    private = aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        settings.noise_multiplier, settings.clients_per_round, settings.clip
    )
    return {
        "FedAvg": federated.build_weighted_fed_avg(model, sgd, **options),
        "FedProx": federated.build_weighted_fed_prox(model, 0.1, sgd, **options),
        "SCAFFOLD": federated.build_scaffold(model, settings.clients, settings.client_rate, **options),
        "FedAdam": federated.build_fed_opt(model, sgd, "adam", 0.003, **options),
        "Mime": federated.build_mime(model, optax.sgd(settings.client_rate, momentum=0.9), **options),
        "DP-FedAvg": federated.build_unweighted_fed_avg(model, sgd, aggregator=private, **options),
    }


def curve(process: Any, settings: Settings) -> dict[str, list[float]]:
    """Return loss and accuracy on clients that do not train, by round."""
    train, test = (
        federated.datasets.EMNIST.synthetic(number, seed=seed).preprocess_client(as_example)
        for seed, number in enumerate((settings.clients, max(settings.clients // 5, 1)))
    )
    batches = list(federated.padded_batch_federated_data(test, batch_size=256))
    sampler = federated.UniformGetClientSampler(train, num_clients=settings.clients_per_round, seed=0)
    model, state = logistic_regression(), process.initialize(jax.random.key(0))
    found: dict[str, list[float]] = {"round": [], "loss": [], "accuracy": []}
    for number in range(settings.rounds + 1):
        if number % settings.every == 0:
            metrics = federated.evaluate_model(model, process.get_model_weights(state), batches)
            found["round"].append(number)
            for name in ("loss", "accuracy"):
                found[name].append(round(float(metrics[name]), 4))
        if number < settings.rounds:
            state, _ = process.next(state, sampler.sample())
    return found


def measure(settings: Settings) -> dict[str, Any]:
    """Return the settings, all curves, and the privacy budget of DP-FedAvg."""
    delta = 1 / (10 * settings.clients)
    epsilon = aggregators.gaussian_epsilon(
        settings.noise_multiplier,
        settings.rounds,
        settings.clients_per_round,
        settings.clients,
        delta,
        sampling="fixed_size",
    )
    return {
        "settings": dataclasses.asdict(settings),
        "privacy": {"epsilon": round(epsilon, 2), "delta": delta},
        "jax": jax.__version__,
        "curves": {name: curve(process, settings) for name, process in processes(settings).items()},
    }


def plot(record: dict[str, Any], path: Path) -> None:
    """Draw the loss and the accuracy of all algorithms by round."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for name, points in record["curves"].items():
            axes.plot(points["round"], points[kind], label=name, linewidth=1.5)
        axes.set(xlabel="round", ylabel=f"{kind} on clients that do not train", ylim=(0, None))
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    # The same file for the same data.
    with matplotlib.rc_context({"svg.hashsalt": "federated", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=DOCS / "federated-algorithms.json", help="file of the curves")
    parser.add_argument("--plot", type=Path, default=DOCS / "federated-algorithms.svg", help="the picture")
    parser.add_argument("--only-plot", action="store_true", help="draw the curves of the file again")
    args = parser.parse_args()
    if not args.only_plot:
        args.json.write_text(json.dumps(measure(Settings()), indent=1) + "\n")
    plot(json.loads(args.json.read_text()), args.plot)


if __name__ == "__main__":
    main()
