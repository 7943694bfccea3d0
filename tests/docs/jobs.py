"""Jobs of new users, and the page that does each."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Job:
    """A job, done by the code and the commands of a page as they stand there.

    Attributes:
      way: pages from the first one that a reader opens; each links to the next, and the last one does the job.
      prints: regular expressions of the page's output.
      writes: files that are there afterwards.
      holds: an expression of the names that the page's code defines.
    """

    way: tuple[str, ...]
    prints: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    holds: str = "True"


JOBS = {
    "try the demo": Job(("README", "installation"), (r"after \d+ steps of optax.adam in JAX", "Next: ")),
    "train a Keras model with dropout and batch normalization in optax, save it, load it": Job(
        ("index", "quickstart"),
        (r"epoch 5: loss", r"accuracy: 9\d", "TensorFlow was imported: False"),
        ("digits/model.py",),
    ),
    "inspect, convert, verify and run a SavedModel": Job(
        ("README", "artifacts"), ("every op is supported", r"\d signatures? agrees?"), ("OUT/model.py", "y.npz")
    ),
    "read and change the source of a transformer": Job(
        ("README", "exported-source", "guides/editing-source"), ("gelu",), ("OUT/model.stablehlo",)
    ),
    "move a script of tf2jax": Job(("index", "migration/from-tf2jax"), holds="results.shape == (4, 2)"),
    "move a federated average of FedJAX": Job(
        ("index", "federated-migration"), holds="len(metrics['client_diagnostics']) == 4"
    ),
    "build an algorithm in the core of TFF, with a Keras model": Job(
        ("index", "federated-migration", "federated-core"), holds="mean_temperature([32.0, 212.0]) > 49"
    ),
    "compose an algorithm of TFF": Job(
        ("index", "federated-migration", "tutorials/index", "notebooks/tff_composing_learning_algorithms")
    ),
    "train adapters in the shell, of .npz and .csv": Job(
        ("index", "finetuning"),
        (r"trainable params: \d+ of \d+",),
        ("adapted/adapters.safetensors", "merged/model.py", "from_csv/history.jsonl", "saved_model/saved_model.pb"),
    ),
    "serve a model": Job(("index", "serving"), ("is ready", r"\[\[-?\d")),
    "add an op": Job(("index", "adding-an-op"), holds="fn(params)[1]['total'].tolist() == [3.0, 4.0]"),
    "find the node whose numbers differ": Job(
        ("index", "tutorials/debug_numbers"), (r"\(Softplus\)", "within round-off"), ("report.html", "repro/repro.py")
    ),
    "convert a frozen graph of TensorFlow 1": Job(
        ("index", "tutorials/tf1_frozen_graph"), ("scores", r"\d signatures? agrees?"), ("OUT/model.py",)
    ),
}
