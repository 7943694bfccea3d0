"""Fine-tune models on eight virtual CPU devices and on one, as a program.

``python mesh_program.py MODEL``: MODEL is ``dense``, or an artifact's directory. It prints JSON: for each sharding the
largest difference of weights and of losses from one device, relative to the largest weight, and the collectives.
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.artifacts.model import trainable_model
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.finetuning.sharding import make_placement
from tf2jax_lite.finetuning.steps import StepOptions, initial_state, make_step, state_shardings
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.options import ModelOptions
from tf2jax_lite.learning.sources import create_model_from_fn

BATCH, STEPS = 16, 20
PLACEMENTS = {
    "data": {"mesh": "data=8"},
    "fsdp": {"mesh": "data=8", "sharding": "fsdp"},
    "rules": {"mesh": "data=4,model=2", "shard": [r"(kernel|embeddings)$=None,model"]},
    "parts": {"mesh": "data=4,model=2", "microbatches": 2},
}


def dense():
    rng = np.random.default_rng(0)
    params = {
        f"{name}/kernel": rng.normal(size=shape).astype(np.float32) / 4
        for name, shape in (("hidden", (12, 16)), ("head", (16, 4)))
    }

    def apply(params, batch):
        return jnp.tanh(batch["x"] @ params["hidden/kernel"]) @ params["head/kernel"]

    return create_model_from_fn(params, apply, named_loss("sparse_categorical_crossentropy", from_logits=True))


def examples(specs, classes=4):
    """The last batch has 12 examples, which eight devices do not divide."""
    rng = np.random.default_rng(1)
    n = BATCH * STEPS - 4
    found = {"y": rng.integers(0, classes, n).astype(np.int32)}
    for name, (dtype, shape) in specs.items():
        whole = np.issubdtype(dtype, np.integer)
        found[name] = (rng.integers(0, 32, (n, *shape)) if whole else rng.normal(size=(n, *shape))).astype(dtype)
    return found


def collectives(model, optimizer, data, place):
    """Return the compiled step's collectives, and the size of the largest all-gather."""
    options = StepOptions(microbatches=place.get("microbatches", 1))
    placement = make_placement(place["mesh"], place.get("sharding", "replicated"), place.get("shard", ()))
    weights = model.init(jax.random.key(0))
    shardings = state_shardings(weights, optimizer, options, placement)
    state = initial_state(weights, optimizer, options, placement)
    batch = placement.place_batch({name: value[:BATCH] for name, value in data.items()})
    step = make_step(model, optimizer, options, placement, shardings)
    text = step.lower(state, batch, jax.random.key(0), jnp.int32(0)).compile().as_text()
    found = re.findall(r"\b(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text)
    return {name: found.count(name) for name in sorted(set(found))}


def main(which):
    if which == "dense":
        model, specs = dense(), {"x": (np.float32, (12,))}
    else:
        subject = trainable_model(which, ModelOptions(loss="sparse_categorical_crossentropy", from_logits=True))
        model = subject.model
        specs = {name: (dtype, subject.shapes[name][1:]) for name, dtype in subject.inputs.items()}
    data = examples(specs)
    options = {"optimizer": optax.sgd(0.05, momentum=0.9), "epochs": 1, "batch_size": BATCH}
    # Parts of a batch draw their own random numbers and have their own statistics: on one device too.
    one_device = {parts: finetune(model, data, **options, microbatches=parts) for parts in (1, 2)}
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one_device[1][0].trainable))
    report = {}
    for name, place in PLACEMENTS.items():
        one, history = one_device[place.get("microbatches", 1)]
        if name == "rules" and any(leaf.ndim == 4 for leaf in jax.tree.leaves(one.trainable)):
            place = {**place, "shard": [r"(stem|conv\w*)/kernel$=None,None,None,model", *place["shard"]]}
        many, records = finetune(model, data, **options, **place)
        differences = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), one, many)
        sharded = [leaf.sharding.shard_shape(leaf.shape) != leaf.shape for leaf in jax.tree.leaves(many.trainable)]
        report[name] = {
            "weights": max(jax.tree.leaves(differences)) / scale,
            "loss": abs(records.records[-1]["loss"] - history.records[-1]["loss"]),
            "sharded": sum(sharded),
            "collectives": collectives(model, options["optimizer"], data, place),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
