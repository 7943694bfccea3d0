"""The suite training: time and memory of fine-tuning steps, and large data.

``--only flax,memory,stream`` selects: step time against Flax on eight virtual devices; peak memory of the options of a
step (XLA_FLAGS apply); shards of 20 GB, written to ``--folder``. Each measurement of memory has a process of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .records import Result
from .timing import in_process, in_turns, resident, seconds

PARTS = ("flax", "memory", "stream")
DEVICES = 8
VOCABULARY, LENGTH, CLASSES = 1000, 64, 8
SIZES = {"small": (2, 32, 4), "full": (3, 256, 8)}  # blocks, width, heads
EXAMPLES = {"small": 8, "full": 16}  # of a step
SHARDS = {"small": (2, 1, 10**7), "full": (20, 2, 10**9)}  # number, number with bytes of their own, bytes of each
DROPOUT = 0.1  # rate after each attention and each MLP
PLACEMENTS: dict[str, dict[str, Any]] = {
    "data-parallel": {"mesh": f"data={DEVICES}"},
    "fully sharded": {"mesh": f"data={DEVICES}", "sharding": "fsdp"},
    "rules": {"mesh": f"data={DEVICES // 2},model=2", "shard": [r"up\d+/kernel$=None,model", r"down\d+/kernel$=model"]},
}
# Options of a step, by the name of the row in the table.
MEMORY: dict[str, dict[str, Any]] = {
    "plain": {},
    "not donated": {"donate": False},
    "--microbatches 4": {"microbatches": 4},
    "--remat": {"remat": True},
    "--remat --microbatches 4": {"remat": True, "microbatches": 4},
    "--precision bf16": {"precision": "bf16"},
    "--precision bf16 --remat --microbatches 4": {"precision": "bf16", "remat": True, "microbatches": 4},
}


def save_artifact(folder: Path, size: str) -> Path:
    """Convert a Keras transformer, and return its artifact."""
    import keras

    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.model_files import convert_file

    blocks, width, heads = SIZES[size]
    layers = keras.layers
    keras.utils.set_random_seed(0)
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCABULARY, width, name="embedding")(tokens)
    for i in range(blocks):
        y = layers.LayerNormalization(epsilon=1e-6, name=f"norm{i}a")(x)
        y = layers.MultiHeadAttention(heads, width // heads, name=f"attention{i}")(y, y, use_causal_mask=True)
        x = x + layers.Dropout(DROPOUT)(y)
        y = layers.LayerNormalization(epsilon=1e-6, name=f"norm{i}b")(x)
        y = layers.Dense(width, name=f"down{i}")(layers.Dense(4 * width, activation="gelu", name=f"up{i}")(y))
        x = x + layers.Dropout(DROPOUT)(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6, name="norm")(x))
    keras.Model(tokens, layers.Dense(CLASSES, name="head")(x)).save(folder / "model.keras")
    functions = convert_file(folder / "model.keras", train=True)
    export_functions(functions, folder / "model", platforms=["cpu"])
    return folder / "model"


def batch_of(examples: int, name: str) -> dict[str, np.ndarray]:
    """Return random tokens (examples, LENGTH) and classes (examples,), int32."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (examples, LENGTH))
    return {name: tokens.astype(np.int32), "y": rng.integers(0, CLASSES, examples).astype(np.int32)}


def flax_model(size: str) -> Any:
    """Return the transformer of `save_artifact` in Flax."""
    import flax.linen as nn
    import jax

    blocks, width, heads = SIZES[size]

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array, train: bool = False) -> jax.Array:
            x = nn.Embed(VOCABULARY, width, name="embedding")(tokens)
            mask = nn.make_causal_mask(tokens)
            for i in range(blocks):
                y = nn.LayerNorm(name=f"norm{i}a")(x)
                y = nn.MultiHeadDotProductAttention(heads, name=f"attention{i}")(y, mask=mask)
                x = x + nn.Dropout(DROPOUT, deterministic=not train)(y)
                y = nn.LayerNorm(name=f"norm{i}b")(x)
                y = nn.gelu(nn.Dense(4 * width, name=f"up{i}")(y), approximate=False)
                y = nn.Dense(width, name=f"down{i}")(y)
                x = x + nn.Dropout(DROPOUT, deterministic=not train)(y)
            return nn.Dense(CLASSES, name="head")(nn.LayerNorm(name="norm")(x).mean(1))

    return Transformer()


def flax_params(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return a converted model's params by name as a tree of Flax's params."""
    names = {"attention_output": "out", "gamma": "scale", "beta": "bias", "embeddings": "embedding"}
    found: dict[str, Any] = {}
    for name, value in weights.items():
        *path, leaf = (names.get(part, part) for part in str(name).split("/"))
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = value
    return found


def compare_with_flax(artifact: Path, size: str, rounds: int) -> list[Result]:
    """Return a result per placement. The process has `DEVICES` virtual devices."""
    import jax
    import optax

    from tf2jax_lite.artifacts.model import trainable_model
    from tf2jax_lite.learning.options import ModelOptions

    subject = trainable_model(artifact, ModelOptions(loss="sparse_categorical_crossentropy", from_logits=True))
    (tokens,), model = subject.inputs, subject.model
    weights, batch = model.init(jax.random.key(0)), batch_of(EXAMPLES[size], tokens)
    flax, params = flax_model(size), flax_params(weights.trainable)
    # Both are the same function of the same weights.
    ours, theirs = model.apply_for_eval(weights, batch), flax.apply({"params": params}, batch[tokens])
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    optimizer = optax.adamw(1e-4)

    def flax_step(params: Any, state: Any, batch: Any, key: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = flax.apply({"params": params}, batch[tokens], train=True, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    results = []
    for name, options in PLACEMENTS.items():
        contestants = _contestants(model, weights, optimizer, batch, options, params, flax_step)
        runs = {who: lambda run=run: seconds(run) for who, run in contestants.items()}
        times = in_turns(runs, rounds=rounds, budget=float("inf"))
        case = {"kind": "flax", "placement": name, "dropout": DROPOUT, "size": size, "batch": EXAMPLES[size]}
        results.append((case, {"params": sum(leaf.size for leaf in jax.tree.leaves(params)), "times": times}))
    return results


def _contestants(
    model: Any, weights: Any, optimizer: Any, batch: Any, options: Mapping[str, Any], params: Any, flax_step: Any
) -> dict[str, Callable[[], None]]:
    """Return functions that run a step of ours and of Flax, with equal shardings."""
    import jax

    from tf2jax_lite.finetuning.sharding import make_placement, placed
    from tf2jax_lite.finetuning.steps import StepOptions, initial_state, make_step, state_shardings

    placement = make_placement(options["mesh"], options.get("sharding", "replicated"), options.get("shard", ()))
    assert placement is not None
    batch, key, number = placement.place_batch(batch), jax.random.key(0), np.int32(0)
    shardings = state_shardings(weights, optimizer, StepOptions(), placement)
    state = initial_state(weights, optimizer, StepOptions(), placement)
    ours = make_step(model, optimizer, StepOptions(), placement, shardings)
    ours = ours.lower(state, batch, key, number).compile()  # type: ignore[attr-defined]
    split = flax_params(shardings.weights.trainable)  # by name
    optimizer_split = placement.optimizer_shardings(optimizer, params, split)
    carried = placed(jax.device_get(params), split), jax.jit(optimizer.init, out_shardings=optimizer_split)(params)
    theirs = jax.jit(flax_step, donate_argnums=(0, 1), out_shardings=(split, optimizer_split, placement.replicated))
    theirs = theirs.lower(*carried, batch, key).compile()

    def run_ours() -> None:
        nonlocal state
        state = jax.block_until_ready(ours(state, batch, key, number))

    def run_theirs() -> None:
        nonlocal carried
        *found, _ = jax.block_until_ready(theirs(*carried, batch, key))
        carried = tuple(found)

    return {"tf2jax_lite": run_ours, "flax": run_theirs}


def measure_memory(artifact: Path, name: str, size: str) -> Result:
    """Return the memory of a step with the options of a row of `MEMORY`.

    It is measured in this process.
    """
    import jax
    import optax

    from tf2jax_lite.artifacts.model import trainable_model
    from tf2jax_lite.finetuning.steps import StepOptions, initial_state, make_step
    from tf2jax_lite.learning.options import ModelOptions

    options = dict(MEMORY[name])
    donates = options.pop("donate", True)
    loss = "sparse_categorical_crossentropy"
    subject = trainable_model(artifact, ModelOptions(loss=loss, from_logits=True, backend="source"))
    chosen, optimizer = StepOptions(**options), optax.adamw(1e-4)
    step: Any = make_step(subject.model, optimizer, chosen)
    step = step if donates else jax.jit(step.__wrapped__)
    state = initial_state(subject.model.init(jax.random.key(0)), optimizer, chosen)
    batch = {key: jax.numpy.asarray(value) for key, value in batch_of(EXAMPLES[size], *subject.inputs).items()}
    compiled = step.lower(state, batch, jax.random.key(0), np.int32(0)).compile()
    before = resident()
    for number in range(3):
        state = jax.block_until_ready(compiled(state, batch, jax.random.key(0), np.int32(number)))
    analysis = compiled.memory_analysis()
    case = {"kind": "memory", "options": name, "batch": EXAMPLES[size]}
    if flags := os.environ.get("XLA_FLAGS"):
        case["xla_flags"] = flags
    return case, {
        "state": sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
        "temporaries": analysis.temp_size_in_bytes,
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "compiled": before,
        "peak": resident(),
    }


def write_shards(folder: Path, number: int, different: int, size: int) -> int:
    """Write shards, and return the number of examples.

    They are .npz files of images (rows, 256, 256, 1) and classes.

    Args:
      different: so many have their own bytes; the others are hard links to these, and are read like all.
    """
    rows = size // (256 * 256 * 4)
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(number):
        path = folder / f"train-{shard:03d}.npz"
        if path.exists():
            continue
        if shard >= different:
            os.link(folder / f"train-{shard % different:03d}.npz", path)
            continue
        images = rng.random((rows, 256, 256, 1), np.float32)
        np.savez(path, x=images, y=rng.integers(0, 10, rows).astype(np.int32))
    return rows * number


def _save_image_artifact(folder: Path) -> None:
    import keras

    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.model_files import convert_file

    layers = [keras.Input((256, 256, 1), name="x"), keras.layers.AveragePooling2D(16), keras.layers.Flatten()]
    keras.Sequential([*layers, keras.layers.Dense(10, name="head")]).save(folder / "model.keras")
    export_functions(convert_file(folder / "model.keras"), folder / "model", platforms=["cpu"])


def stream(folder: Path, number: int, different: int, size: int) -> Result:
    """Fine-tune on shards in the shell; return bytes read, seconds, and peak memory."""
    if not (folder / "model").exists():
        _save_image_artifact(folder)
    examples = write_shards(folder / "shards", number, different, size)
    command = ["tf2jax-lite", "finetune", "model", "--data", "shards", "--out", "tuned", "--epochs", "1"]
    command += ["--batch-size", "64", "--from-logits", "--force", "--quiet"]
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tf2jax_lite", *command[1:]], cwd=folder)
    read = 0
    while process.poll() is None:
        time.sleep(0.5)
        try:
            text = Path(f"/proc/{process.pid}/io").read_text()
        except OSError:
            continue
        read = max(read, int(text.split("rchar: ")[1].split()[0]))
    if process.returncode:
        raise SystemExit(process.returncode)
    case = {"kind": "stream", "command": " ".join(command), "shards": number, "bytes": size, "different": different}
    elapsed = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return case, {"examples": examples, "read": read, "seconds": elapsed, "peak": peak}


def training(options: Any) -> Iterator[Result]:
    """Yield the results of the suite training."""
    size, parts = options.size, options.only.split(",") if options.only else PARTS
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        where = folder / size
        where.mkdir(parents=True, exist_ok=True)
        if {"flax", "memory"} & {*parts} and not (where / "model").exists():
            in_process(save_artifact, where, size)
        if "flax" in parts:
            flags = f"--xla_force_host_platform_device_count={DEVICES}"
            yield from in_process(compare_with_flax, where / "model", size, options.rounds or 12, XLA_FLAGS=flags)
        if "memory" in parts:
            for name in MEMORY:
                yield in_process(measure_memory, where / "model", name, size)
        if "stream" in parts:
            yield stream(folder, *SHARDS[size])
