"""Training of converted models: time and memory of a step, and large data.

    python -m benchmarks.training flax --json out.jsonl      # step time on eight virtual devices
    python -m benchmarks.training memory --json out.jsonl    # peak memory of the options of a step; XLA_FLAGS apply
    python -m benchmarks.training stream --json out.jsonl    # shards of 20 GB; --folder and --gigabytes change it
    python -m benchmarks.render_training out.jsonl           # writes docs/finetuning-performance.md

Steps of both alternate. Each measurement of memory has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .__main__ import _circumstances
from .timing import quiet

DEVICES = 8
VOCABULARY, LENGTH, CLASSES = 1000, 64, 8
SIZES = {"small": (2, 32, 4), "full": (3, 256, 8)}  # blocks, width, heads
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


def save_artifact(folder: Path, size: str, dropout: float) -> Path:
    """Convert a Keras transformer, and return its artifact.

    Args:
      folder: where the artifact is made.
      size: of `SIZES`.
      dropout: rate after each attention and each MLP.
    """
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
        x = x + layers.Dropout(dropout)(y)
        y = layers.LayerNormalization(epsilon=1e-6, name=f"norm{i}b")(x)
        y = layers.Dense(width, name=f"down{i}")(layers.Dense(4 * width, activation="gelu", name=f"up{i}")(y))
        x = x + layers.Dropout(dropout)(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6, name="norm")(x))
    keras.Model(tokens, layers.Dense(CLASSES, name="head")(x)).save(folder / "model.keras")
    functions = convert_file(folder / "model.keras", train=True)
    export_functions(functions, folder / "model", platforms=["cpu"])
    return folder / "model"


def batch_of(examples: int, name: str) -> dict[str, np.ndarray]:
    """Return random tokens (examples, LENGTH) and classes (examples,), int32.

    Args:
      examples: their number.
      name: of the tokens.
    """
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (examples, LENGTH))
    return {name: tokens.astype(np.int32), "y": rng.integers(0, CLASSES, examples).astype(np.int32)}


def flax_model(size: str, dropout: float) -> Any:
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
                x = x + nn.Dropout(dropout, deterministic=not train)(y)
                y = nn.LayerNorm(name=f"norm{i}b")(x)
                y = nn.gelu(nn.Dense(4 * width, name=f"up{i}")(y), approximate=False)
                y = nn.Dense(width, name=f"down{i}")(y)
                x = x + nn.Dropout(dropout, deterministic=not train)(y)
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


def compare_with_flax(artifact: Path, size: str, dropout: float, examples: int, rounds: int) -> Iterator[Any]:
    """Yield a record per placement. The process has `DEVICES` virtual devices."""
    import jax
    import optax

    from tf2jax_lite.finetuning.trained_artifact import trainable_model

    subject = trainable_model(artifact, "sparse_categorical_crossentropy", from_logits=True)
    (tokens,), model = subject.inputs, subject.model
    weights, batch = model.init(jax.random.key(0)), batch_of(examples, tokens)
    flax, params = flax_model(size, dropout), flax_params(weights.trainable)
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

    for name, options in PLACEMENTS.items():
        contestants = _contestants(model, weights, optimizer, batch, options, params, flax_step)
        yield {
            "kind": "flax",
            "placement": name,
            "dropout": dropout,
            "size": size,
            "batch": examples,
            "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **_alternating(contestants, rounds),
        }


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

    return {"ours": run_ours, "flax": run_theirs}


def _alternating(contestants: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, Any]:
    """Return medians of wall-clock and processor time in seconds, and ratios.

    The ratio is that of the first to the second.
    """
    ours, theirs = contestants
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    with quiet():
        for number in range(rounds):
            for name in (ours, theirs) if number % 2 else (theirs, ours):
                begin, used = time.perf_counter(), time.process_time()
                contestants[name]()
                wall[name].append(time.perf_counter() - begin)
                cpu[name].append(time.process_time() - used)
    medians = {name: statistics.median(times) for name, times in wall.items()}
    used_cpu = {name: statistics.median(times) for name, times in cpu.items()}
    return {
        "rounds": rounds,
        "seconds": medians,
        "cpu_seconds": used_cpu,
        "ratio": medians[ours] / medians[theirs],
        "cpu_ratio": used_cpu[ours] / used_cpu[theirs],
    }


def measure_memory(artifact: Path, name: str, examples: int) -> dict[str, Any]:
    """Return the memory of a step with the options of a row of `MEMORY`.

    It is measured in this process.
    """
    import jax
    import optax

    from tf2jax_lite.finetuning.steps import StepOptions, initial_state, make_step
    from tf2jax_lite.finetuning.trained_artifact import trainable_model

    options = dict(MEMORY[name])
    donates = options.pop("donate", True)
    loss = "sparse_categorical_crossentropy"
    subject = trainable_model(artifact, loss, from_logits=True, backend="source")
    chosen, optimizer = StepOptions(**options), optax.adamw(1e-4)
    step: Any = make_step(subject.model, optimizer, chosen)
    step = step if donates else jax.jit(step.__wrapped__)
    state = initial_state(subject.model.init(jax.random.key(0)), optimizer, chosen)
    batch = {key: jax.numpy.asarray(value) for key, value in batch_of(examples, *subject.inputs).items()}
    compiled = step.lower(state, batch, jax.random.key(0), np.int32(0)).compile()
    before = _peak()
    for number in range(3):
        state = jax.block_until_ready(compiled(state, batch, jax.random.key(0), np.int32(number)))
    analysis = compiled.memory_analysis()
    return {
        "kind": "memory",
        "options": name,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "batch": examples,
        "state_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
        "temporary_bytes": analysis.temp_size_in_bytes,
        "output_bytes": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "compiled_peak_bytes": before,
        "peak_bytes": _peak(),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_shards(folder: Path, gigabytes: int, different: int) -> int:
    """Write shards of 1 GB, and return the number of examples.

    They are .npz files of images (rows, 256, 256, 1) and classes.

    Args:
      folder: where they are written.
      gigabytes: their number.
      different: so many have their own bytes; the others are hard links to these, and are read like all.
    """
    rows = 1_000_000_000 // (256 * 256 * 4)
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(gigabytes):
        path = folder / f"train-{number:03d}.npz"
        if path.exists():
            continue
        if number >= different:
            os.link(folder / f"train-{number % different:03d}.npz", path)
            continue
        images = rng.random((rows, 256, 256, 1), np.float32)
        np.savez(path, x=images, y=rng.integers(0, 10, rows).astype(np.int32))
    return rows * gigabytes


def _save_image_artifact(folder: Path) -> None:
    import keras

    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.model_files import convert_file

    layers = [keras.Input((256, 256, 1), name="x"), keras.layers.AveragePooling2D(16), keras.layers.Flatten()]
    keras.Sequential([*layers, keras.layers.Dense(10, name="head")]).save(folder / "model.keras")
    export_functions(convert_file(folder / "model.keras"), folder / "model", platforms=["cpu"])


def stream(folder: Path, gigabytes: int, different: int) -> dict[str, Any]:
    """Fine-tune on shards from the command line.

    Returns:
      A record with the bytes read, seconds, and the peak memory of the process.
    """
    if not (folder / "model").exists():
        _save_image_artifact(folder)
    examples = write_shards(folder / "shards", gigabytes, different)
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
    return {
        "kind": "stream",
        "command": " ".join(command),
        "gigabytes": gigabytes,
        "different": different,
        "examples": examples,
        "read_bytes": read,
        "seconds": time.perf_counter() - begin,
        "peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def _child(*args: str, devices: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records that this module prints in a process of its own."""
    env = dict(os.environ)
    if devices is not None:
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-m", __spec__.name, *args]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
    if process.returncode:
        raise SystemExit(process.returncode)


def _records(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    if options.part == "stream":
        yield stream(folder, options.gigabytes, options.different)
        return
    rates = [float(rate) for rate in options.dropout.split(",")]
    for rate in rates if options.part == "flax" else rates[:1]:
        where = folder / f"{options.size}-{rate}"
        where.mkdir(parents=True, exist_ok=True)
        artifact = where / "model"
        if not artifact.exists():
            save_artifact(where, options.size, rate)
        common = ("--artifact", str(artifact), "--size", options.size, "--batch", str(options.batch))
        if options.part == "flax":
            more = ("--dropout", str(rate), "--rounds", str(options.rounds))
            yield from _child("flax", *common, *more, devices=DEVICES)
        else:
            for name in MEMORY if options.row is None else (options.row,):
                yield from _child("memory", *common, f"--row={name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("part", choices=("flax", "memory", "stream"))
    parser.add_argument("--size", choices=tuple(SIZES), default="full")
    parser.add_argument("--batch", type=int, default=16, help="examples of a step")
    parser.add_argument("--dropout", default="0.1", help="rates, comma separated")
    parser.add_argument("--rounds", type=int, default=12, help="timed steps of each")
    parser.add_argument("--gigabytes", type=int, default=20, help="number of shards")
    parser.add_argument("--different", type=int, default=2, help="shards with bytes of their own")
    parser.add_argument("--folder", type=Path, help="for artifacts and shards; a temporary one by default")
    parser.add_argument("--json", type=Path, help="append the records to this file, one JSON object a line")
    parser.add_argument("--artifact", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--row", choices=tuple(MEMORY), help="of memory, the only row; default all")
    options = parser.parse_args()
    if options.artifact is not None:
        found = (
            [measure_memory(options.artifact, options.row, options.batch)]
            if options.part == "memory"
            else compare_with_flax(
                options.artifact, options.size, float(options.dropout), options.batch, options.rounds
            )
        )
        for record in found:
            print(json.dumps(record), flush=True)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for record in _records(options, folder):
            line = json.dumps({**record, **_circumstances()})
            print(line, flush=True)
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
