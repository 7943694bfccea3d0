"""The suites programs, device and described: models' programs on a GPU.

    python -m benchmarks run --suite programs --folder DIR   # writes serialized StableHLO; needs TensorFlow
    python -m benchmarks run --suite device --folder DIR     # compiles and times it; needs JAX alone
    python -m benchmarks run --suite described --folder DIR  # compiles it for an H100 that need not be there

The last needs JAX's CUDA plugin (``pip install 'jax[cuda12]' flatbuffers``), and counts what a call would launch;
nothing is timed then. Each program is compiled in a process of its own, as XLA remembers what it compiled before.
Nothing can be tried out without a device, so matrix products are left to cuBLAS, where XLA would choose between it and
its own code.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from . import models
from .records import Result
from .timing import in_process, in_turns, waited

CONTESTANTS = ("ours", "native", "peer")

# XLA's description of the GPU for its compiler (xla/backends/gpu/target_config/specs/h100_sxm.txtpb).
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_WITHOUT_DEVICE = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # else the plugin looks for a driver
    "XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false",
}


def write(fn: Callable[..., Any], args: Any, path: Path, platform: str) -> None:
    """Write a program."""
    leaves, tree = jax.tree.flatten(args)  # an exported program knows no optimizer's state

    def flat(*leaves: Any) -> Any:
        return jax.tree.leaves(fn(*jax.tree.unflatten(tree, leaves)))

    specs = [jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in leaves]
    program = export.export(jax.jit(flat), platforms=[platform])(*specs).serialize()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_bytes(program)
    beside.replace(path)


def programs(options: Any) -> Iterator[Result]:
    """Write ``FOLDER/MODE-MODEL-BATCH/{ours,native,peer}.bin`` for each model.

    Calls of all batch sizes, and training steps of the last, which tf2jax takes no part in.

    Yields:
      The name of the folder, the bytes of each contestant's program, and the error of tf2jax, if it failed.
    """
    peer = models.peer_module(options.peer)
    last = models.cases(options)[-1]["batch"]
    for case in models.cases(options):
        name, size, batch = case.values()
        for train in (False, True):
            if train and not (models.MODELS[name].trains and batch == last):
                continue
            there = folder_of(options) / f"{'train' if train else 'run'}-{name}-{batch}"
            yield {"program": there.name}, _programs(name, size, batch, train, there, options.platform, peer)


def _programs(name: str, size: str, batch: int, train: bool, there: Path, platform: str, peer: Any) -> dict[str, Any]:
    import keras

    import tf2jax_lite

    failed = {}
    if train:
        model = models.build(keras, name, size)
        write(*models.training_step(model, models.MODELS[name].inputs(batch, size)), there / "ours.bin", platform)
    else:
        _, graph, arrays = models.traceable(name, size, batch)
        for who, convert in {"ours": tf2jax_lite.convert, "peer": peer and peer.convert}.items():
            try:
                if convert is not None:
                    write(*models.converted(graph, arrays, convert), there / f"{who}.bin", platform)
            except Exception as error:
                if who == "ours":
                    raise
                failed = {"peer": {"failed": models.failure(error)}}
    models.clear()
    in_process(_native, name, size, batch, train, there / "native.bin", platform, KERAS_BACKEND="jax")
    return {"bytes": {path.stem: path.stat().st_size for path in sorted(there.glob("*.bin"))}, **failed}


def _native(name: str, size: str, batch: int, train: bool, path: Path, platform: str) -> None:
    from .native import program

    write(*program(name, size, batch, train=train), path, platform)


def compiled_file(path: Path, sharding: Any = None) -> tuple[Any, Any, dict[str, Any]]:
    """Return a compiled program, its arguments, memory and launch counts."""
    program = export.deserialize(bytearray(path.read_bytes()))
    args = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in program.in_avals]
    small = jax.ShapeDtypeStruct((8, 8), "float32", sharding=sharding)
    jax.jit(jnp.tanh).lower(small).compile()  # warms up the process
    start, begun = time.perf_counter(), time.process_time()
    compiled = jax.jit(program.call).lower(*args).compile()
    cost = {"compile": time.perf_counter() - start, "cpu": time.process_time() - begun}
    found = launches(compiled.as_text() or "")
    memory = compiled.memory_analysis()
    counts = {"kernels": found.kernels, "bytes": found.bytes, "unknown": found.unknown}
    temporaries = memory.temp_size_in_bytes if memory else None
    return compiled, args, {**cost, **counts, "temporaries": temporaries, "library": dict(found.library)}


def arguments(structs: Any) -> list[Any]:
    """Return arrays of small positive floats (variances), zeros for integers."""
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.uniform(0.01, 0.02, s.shape), s.dtype)
        if jnp.issubdtype(s.dtype, jnp.inexact)
        else jnp.zeros(s.shape, s.dtype)
        for s in structs
    ]


def folder_of(options: Any) -> Path:
    """Return the folder of programs that the options name."""
    return (options.folder or Path("programs")).absolute()


def _folders(folder: Path) -> Iterator[tuple[str, dict[str, Path]]]:
    """Yield the names of programs, and the files of their contestants."""
    for there in sorted({path.parent for path in folder.glob("**/ours.bin")}):
        yield there.name, {who: path for who in CONTESTANTS if (path := there / f"{who}.bin").exists()}


def _shared(values: dict[str, Any]) -> dict[str, Any]:
    """Replace the lists of library calls by a summary of their agreement."""
    calls = {who: Counter(values[who].pop("library")) for who in CONTESTANTS if who in values}
    for who, found in calls.items():
        values[who]["calls"] = found.total()
        values[who]["shared"] = (found & calls["ours"]).total()
    return values


def device(options: Any) -> Iterator[Result]:
    """Compile programs, and time them in turns on JAX's default device.

    Yields:
      By contestant seconds of compiling, how many kernels and bytes a call takes, how many library calls, and how many
      of these ours has too; ``times``.
    """
    kind = jax.devices()[0].device_kind
    for program, paths in _folders(folder_of(options)):
        values: dict[str, Any] = {}
        runs = {}
        for who, path in paths.items():
            compiled, structs, values[who] = compiled_file(path)
            name = {"ours": "tf2jax_lite", "peer": "tf2jax"}.get(who, who)
            runs[name] = waited(compiled, *arguments(structs))
        values["times"] = in_turns(runs, rounds=200, budget=options.budget)
        yield {"program": program, "device": kind}, _shared(values)


def described(options: Any) -> Iterator[Result]:
    """Compile programs for an H100 that need not exist; yield as `device`."""
    for program, paths in _folders(folder_of(options)):
        values = {who: in_process(_described, path, **_WITHOUT_DEVICE) for who, path in paths.items()}
        yield {"program": program, "device": "h100"}, _shared(values)


def _described(path: Path) -> dict[str, Any]:
    from jax.experimental import topologies

    there = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    return compiled_file(path, jax.sharding.SingleDeviceSharding(there.devices[0]))[2]


# --- Launches in HLO text

# Ops that launch nothing: views of memory, and the ends of asynchronous ops.
_FREE = {"parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "copy-done", "async-done"}
_SLICES = ("slice", "dynamic-slice", "gather")
_ATTRIBUTES = ("window", "dim_labels", "feature_group_count", "lhs_contracting_dims", "rhs_contracting_dims")


@dataclasses.dataclass(frozen=True)
class Launches:
    """Launches of one call of a program; loop bodies count per iteration.

    Attributes:
      library: calls of libraries (cuDNN, cuBLAS and such): target, shapes and dimensions, to how many.
      unknown: how many loops there are whose length XLA does not know: they count once.
    """

    kernels: int
    library: Counter[str]
    bytes: int
    unknown: int


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    form: str
    op: str
    operands: tuple[str, ...]
    text: str

    def called(self, attribute: str) -> str | None:
        found = re.search(rf"\b{attribute}=(%[\w.-]+)", self.text)
        return found[1] if found else None


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Return computations by name, and the name of the one that is run."""
    found: dict[str, list[_Instruction]] = {}
    entry, body = "", []
    for line in text.splitlines():
        if line.endswith("{") and " -> " in line:
            words = line.split()
            name = words[1] if words[0] == "ENTRY" else words[0]
            entry = name if words[0] == "ENTRY" else entry
            body = found[name] = []
        elif match := re.match(r"\s*(?:ROOT )?(%\S+) = (\(.*?\)|\S+) ([a-z][\w-]*)\(([^)]*)\)", line):
            body.append(_Instruction(match[1], match[2], match[3], tuple(re.findall(r"%[\w.-]+", match[4])), line))
    return found, entry


def _branches(instruction: _Instruction) -> list[str]:
    found = re.search(r"branch_computations=\{([^}]*)\}", instruction.text)
    names = re.findall(r"%[\w.-]+", found[1]) if found else []
    return names or [n for n in map(instruction.called, ("true_computation", "false_computation")) if n]


def _library(instruction: _Instruction, forms: dict[str, str]) -> str | None:
    """Return the library call and its operands, or None for XLA's own kernels."""
    if instruction.op != "custom-call":
        return None
    target = re.search(r'custom_call_target="([^"]+)"', instruction.text)
    details = [
        f"{a}={f[1]}" for a in _ATTRIBUTES if (f := re.search(rf"\b{a}=(\{{[^}}]*\}}|\S+?),? ", instruction.text))
    ]
    shapes = " ".join(forms.get(name, "?") for name in instruction.operands)
    return f"{target[1] if target else '?'}({shapes}) -> {instruction.form} {' '.join(details)}"


def _size(form: str) -> int:
    """Return the bytes of an array or of a tuple's arrays."""
    return sum(
        math.prod(map(int, filter(None, sizes.split(",")))) * max(int(bits or 8), 8) // 8
        for bits, sizes in re.findall(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]", form)
    )


def _read(body: list[_Instruction], parameter: str, whole: str) -> int:
    """Return the number of bytes of a parameter that a fusion reads."""
    users = [i for i in body if parameter in i.operands]
    sliced = [_size(i.form) for i in users if i.op in _SLICES and i.operands[0] == parameter]
    updated = [0 for i in users if i.op == "dynamic-update-slice" and i.operands[0] == parameter]  # in place
    return min(sum(sliced), _size(whole)) if len(sliced) + len(updated) == len(users) else _size(whole)


def _written(body: list[_Instruction], whole: str) -> int:
    """Return the bytes that a fusion writes; of in-place updates, the updated part."""
    forms = {i.name: i.form for i in body}
    updates = [i for i in body if i.op == "dynamic-update-slice" and i.form.split("{")[0] in whole]
    saved = sum(_size(i.form) - _size(forms.get(i.operands[1], i.form)) for i in updates)
    return max(_size(whole) - saved, 0)


def _moved(instruction: _Instruction, forms: dict[str, str], computations: dict[str, list[_Instruction]]) -> int:
    body = computations.get(instruction.called("calls") or "", []) if instruction.op == "fusion" else []
    if not body:
        return sum(_size(forms.get(name, "")) for name in instruction.operands) + _size(instruction.form)
    numbers = {int(m[1]): i.name for i in body if (m := re.search(r" parameter\((\d+)\)", i.text))}
    read = [_read(body, numbers[n], forms.get(name, "")) for n, name in enumerate(instruction.operands)]
    return sum(read) + _written(body, instruction.form)


def launches(text: str) -> Launches:
    """Count the launches of a program."""
    computations, entry = _computations(text)
    library: Counter[str] = Counter()
    unknown = 0

    def walk(name: str, times: int) -> Iterator[tuple[int, int]]:
        nonlocal unknown
        forms = {i.name: i.form for i in computations[name]}
        for instruction in computations[name]:
            if instruction.op in _FREE:
                continue
            if instruction.op == "while":
                count = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', instruction.text)
                unknown += count is None
                for inner in filter(None, map(instruction.called, ("body", "condition"))):
                    yield from walk(inner, times * (int(count[1]) if count else 1))
            elif instruction.op == "conditional":
                taken = [list(walk(branch, times)) for branch in _branches(instruction)]
                yield from max(taken, key=len, default=[])
            elif instruction.op in ("call", "async-start"):
                inner = instruction.called("to_apply") or instruction.called("calls")
                yield from walk(inner, times) if inner else ()
            else:
                if call := _library(instruction, forms):
                    library[call] += times
                yield times, times * _moved(instruction, forms, computations)

    found = list(walk(entry, 1))
    return Launches(sum(n for n, _ in found), library, sum(moved for _, moved in found), unknown)
