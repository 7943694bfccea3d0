"""Readers of files, each with mutators for its files.

A target returns, or raises an error of this package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import keras_files, mutators
from .corpus import checkpoint_state
from .mutators import Mutator

__all__ = ["NAMES", "Target", "limits", "make_targets"]

MAX_NODES, MAX_CONSTANT_BYTES = 20_000, 1 << 24
NAMES = (
    "graph",
    "graph_trace",
    "saved_model",
    "saved_model_convert",
    "saved_model_tensorflow",
    "artifact_json",
    "artifact_stablehlo",
    "artifact_calls",
    "safetensors",
    "sqlite",
    "tff_sqlite",
    "npy",
    "npz",
    "hdf5",
    "fedjax",
    "leaf",
    "adapters",
    "rows",
    "checkpoint_index",
    "checkpoint",
    "stablehlo_text",
    "stablehlo_bytes",
    "stablehlo_trace",
    "keras_config",
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader under test.

    Attributes:
      run: reads a damaged file; gets the good one's name, too.
    """

    weight: float
    seeds: Mapping[str, bytes]
    mutators: tuple[Mutator, ...]
    run: Callable[[str, bytes], Any]

    def input(self, rng: random.Random) -> tuple[str, bytes]:
        """Return a damaged file, and the name of the good one that it was made of."""
        name = rng.choice(sorted(self.seeds))
        data = self.seeds[name]
        for _ in range(rng.choice((1, 1, 1, 2))):
            try:
                data = rng.choice(self.mutators)(rng, data)
            except Exception:  # a mutator that needs a whole file meets one that is damaged already
                data = mutators.flip_bytes(rng, data)
        return name, data


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Hold the options that a server would set for untrusted files."""
    from tf2jax_lite.support.config import override_config

    with (
        override_config("max_nodes", MAX_NODES),
        override_config("max_constant_bytes", MAX_CONSTANT_BYTES),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _seeds(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


def make_targets(corpus: Path, work: Path, names: tuple[str, ...] = NAMES) -> dict[str, Target]:
    """Return the targets asked for."""
    made = {**_graph_targets(corpus, work), **_artifact_targets(corpus, work), **_client_targets(corpus, work)}
    made.update(_stablehlo_targets(corpus))
    made.update(_checkpoint_targets(corpus, work))
    made.update(_call_targets(corpus))
    made.update(_keras_targets(corpus, work))
    return {name: made[name] for name in names}


def _graph_targets(corpus: Path, work: Path) -> dict[str, Target]:
    def graph_proto(data: bytes) -> Any:
        from tensorflow.core.framework import graph_pb2

        return graph_pb2.GraphDef.FromString(data)

    def model_proto(data: bytes) -> Any:
        from tensorflow.core.protobuf import saved_model_pb2

        return saved_model_pb2.SavedModel.FromString(data)

    def convert(name: str, data: bytes) -> Any:
        import tf2jax_lite
        from tf2jax_lite.frontend.saved.graph_def_file import default_ends

        return tf2jax_lite.convert_graph_def(data, *default_ends(data))

    def trace(name: str, data: bytes) -> Any:
        import jax
        import numpy as np

        fn, params = convert(name, data)
        specs = [
            jax.ShapeDtypeStruct(
                tuple(d or 2 for d in (s.shape.as_list() if s.shape.rank is not None else ())), np.float32
            )
            for s in fn.structured_inputs[0]
        ]
        return jax.eval_shape(lambda p, *a: fn(p, *a, rng=jax.random.key(0))[0], params, *specs)

    def model(name: str, data: bytes) -> Path:
        place = work / name
        if not place.exists():
            place.mkdir(parents=True)
            os.symlink(corpus / "saved_model" / name / "variables", place / "variables")
        (place / "saved_model.pb").write_bytes(data)
        return place

    def describe(name: str, data: bytes) -> Any:
        from tf2jax_lite.pipeline.inspect_model import describe_saved_model

        return describe_saved_model(model(name, data))

    def convert_model(name: str, data: bytes) -> Any:
        import tf2jax_lite

        return tf2jax_lite.convert_saved_model(model(name, data))

    graphs = _seeds(corpus / "graph", "*.pb")
    models = {v: (corpus / "saved_model" / v / "saved_model.pb").read_bytes() for v in ("v1", "v1_composite", "v2")}
    of_graph = (mutators.proto_fields(graph_proto), mutators.rewire(graph_proto), mutators.flip_bytes)
    of_model = (mutators.proto_fields(model_proto), mutators.rewire(model_proto), mutators.flip_bytes)
    return {
        "graph": Target(4, graphs, of_graph, convert),
        "graph_trace": Target(0.3, graphs, of_graph, trace),
        "saved_model": Target(1, models, of_model, describe),
        "saved_model_convert": Target(1, {v: models[v] for v in ("v1", "v1_composite")}, of_model, convert_model),
        "saved_model_tensorflow": Target(0.05, {"v2": models["v2"]}, of_model, convert_model),
    }


def _checkpoint_targets(corpus: Path, work: Path) -> dict[str, Target]:
    def read(name: str, data: bytes) -> None:
        """Read a checkpoint, and compare with TensorFlow's reader of the index."""
        import numpy as np

        from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint

        prefix = work / name.removesuffix(".index")
        data_file = f"{prefix.name}.data-00000-of-00001"
        if not (work / data_file).exists():
            os.symlink(corpus / "checkpoint" / data_file, work / data_file)
        (work / name).write_bytes(data)
        found = Checkpoint(prefix)
        if any(not tensor.isprintable() for tensor in found._names):  # TensorFlow's map is of UTF-8
            return
        shapes = found.reader.get_variable_to_shape_map()
        if set(shapes) != found._names:
            raise AssertionError(f"TensorFlow has {sorted(shapes)}, not {sorted(found._names)}")
        for tensor, shape in shapes.items():
            stored = found.stored((tensor, ""))
            if stored is not None:
                if list(stored.shape) != shape:
                    raise AssertionError(f"TensorFlow has {shape} of {tensor!r}, not {stored.shape}")
                np.testing.assert_array_equal(np.asarray(stored), found.reader.get_tensor(tensor))
            elif int(np.prod(shape, dtype=object)) < 1 << 20:
                found.read((tensor, ""))

    of_table = (mutators.table_entries, mutators.table_blocks, mutators.flip_bytes)
    return {"checkpoint_index": Target(2, _seeds(corpus / "checkpoint", "*.index"), of_table, read)}


def _artifact_targets(corpus: Path, work: Path) -> dict[str, Target]:
    source = corpus / "artifact" / "model"

    def place(file: str, data: bytes) -> Path:
        folder = work / "artifact"
        if not folder.exists():
            folder.mkdir(parents=True)
            for name in ("metadata.json", "model.stablehlo", "model.py", "params.safetensors"):
                (folder / name).write_bytes((source / name).read_bytes())
        (folder / file).write_bytes(data)
        return folder

    def load(file: str, data: bytes) -> Any:
        from tf2jax_lite.export import load as load_artifact

        folder = place(file, data)
        try:
            return load_artifact(folder, verify_hashes=False)
        finally:
            (folder / file).write_bytes((source / file).read_bytes())

    def use(file: str, data: bytes) -> None:
        """Load, call and describe an artifact, as `run`, `finetune` and `push_to_hub` do."""
        import jax
        import numpy as np

        from tf2jax_lite.export.hub import model_card
        from tf2jax_lite.export.reader import call_with_arrays, fitting_arrays, flat_results, read_metadata

        fn, params = load(file, data)
        model_card(read_metadata(place(file, data)), "a/b")
        arrays = {
            name: np.zeros([d or 2 for d in spec.shape or ()], spec.dtype or np.float32)
            for name, spec in fn.interface.tensors().items()
            if math.prod(d or 2 for d in spec.shape or ()) < 1 << 16
        }
        found = jax.eval_shape(
            lambda p, a: call_with_arrays(fn, p, a)[0], dict(params), fitting_arrays(fn.interface, fn.taken, arrays)
        )
        flat_results(found)

    def tensors(file: str, data: bytes) -> Any:
        from tf2jax_lite.errors import Tf2JaxError
        from tf2jax_lite.export.params_file import read_tensors
        from tf2jax_lite.learning.data.sqlite import decode_examples

        path = work / "tensors.safetensors"
        path.write_bytes(data)
        with contextlib.suppress(Tf2JaxError):
            read_tensors(path)
        return decode_examples(data, "record")

    params = {"params.safetensors": (source / "params.safetensors").read_bytes()}
    of_tensors = (mutators.safetensors_header, mutators.flip_bytes)
    return {
        "artifact_json": Target(
            8, _seeds(source, "metadata.json"), (mutators.json_values, mutators.json_values, mutators.flip_bytes), use
        ),
        "artifact_stablehlo": Target(0.5, _seeds(source, "model.stablehlo"), (mutators.flip_bytes,), load),
        "safetensors": Target(20, {**params, **_seeds(corpus / "clients", "*.safetensors")}, of_tensors, tensors),
    }


def _client_targets(corpus: Path, work: Path) -> dict[str, Target]:
    folder = corpus / "clients"

    def read_all(data: Any) -> None:
        for client in data.client_ids():
            data.client_size(client)
            data.get_client(client).all_examples()
        for _ in data.clients():
            pass

    def write(name: str, data: bytes) -> Path:
        path = work / name
        path.write_bytes(data)
        return path

    def sqlite(name: str, data: bytes) -> None:
        from tf2jax_lite.learning.data import SQLiteFederatedData

        read_all(SQLiteFederatedData(write(name, data)))

    def tff_sqlite(name: str, data: bytes) -> None:
        import jax
        import numpy as np

        from tf2jax_lite.learning.data import TFFSQLiteFederatedData

        read_all(TFFSQLiteFederatedData(write(name, data), {"x": jax.ShapeDtypeStruct((2,), np.float32)}))

    def npz(name: str, data: bytes) -> None:
        from tf2jax_lite.learning.data import NpzFolderFederatedData

        (work / "npz").mkdir(exist_ok=True)
        (work / "npz" / "client.npz").write_bytes(data)
        read_all(NpzFolderFederatedData(work / "npz", max_client_bytes=1 << 24))

    def npy(name: str, data: bytes) -> None:
        from tf2jax_lite.support.npz import read_npy

        assert read_npy(data, (4, 3), "f", name).shape == (4, 3)

    def hdf5(name: str, data: bytes) -> None:
        from tf2jax_lite.learning.data import TFFHDF5FederatedData

        read_all(TFFHDF5FederatedData(write(name, data), max_client_bytes=1 << 24))

    def fedjax(name: str, data: bytes) -> None:
        from tf2jax_lite.learning.data import FedJAXSQLiteFederatedData

        if name.endswith(".sqlite"):
            read_all(FedJAXSQLiteFederatedData(write(name, data), max_client_bytes=1 << 24))
        else:
            with sqlite3.connect(write(name, (folder / "fedjax.sqlite").read_bytes())) as connection:
                connection.execute("UPDATE federated_data SET data = ?", [zlib.compress(data)])
            connection.close()
            read_all(FedJAXSQLiteFederatedData(work / name, max_client_bytes=1 << 24))

    def leaf(name: str, data: bytes) -> None:
        from tf2jax_lite.federated.datasets import load_leaf

        read_all(load_leaf(write(name, data)))

    def adapters(name: str, data: bytes) -> Any:
        from tf2jax_lite.finetuning.adapters import _read

        return _read(write(name, data))

    def rows(name: str, data: bytes) -> None:
        from tf2jax_lite.learning.data import open_rows
        from tf2jax_lite.support.config import override_config

        with override_config("max_input_bytes", 1 << 24):
            found = open_rows(write(name, data))
            for i in range(min(len(found), 20)):
                found[i]

    def checkpoint(name: str, data: bytes) -> None:
        from tf2jax_lite.federated import CheckpointFile

        (work / "checkpoint").mkdir(exist_ok=True)
        write(f"checkpoint/{name}", data)
        CheckpointFile(work / "checkpoint").restore(checkpoint_state([]))

    flips = (mutators.flip_bytes,)
    return {
        "sqlite": Target(3, _seeds(folder, "clients.sqlite"), flips, sqlite),
        "tff_sqlite": Target(3, _seeds(folder, "tff.sqlite"), flips, tff_sqlite),
        "npz": Target(6, _seeds(folder, "*.npz"), flips, npz),
        "npy": Target(3, _seeds(folder, "*.npy"), flips, npy),
        "hdf5": Target(2, _seeds(folder, "*.h5"), flips, hdf5),
        "fedjax": Target(2, {**_seeds(folder, "fedjax.sqlite"), **_seeds(folder, "*.msgpack")}, flips, fedjax),
        "leaf": Target(2, _seeds(folder, "*.json"), (mutators.json_values, mutators.flip_bytes), leaf),
        "adapters": Target(
            2, _seeds(folder, "*.adapters"), (mutators.safetensors_header, mutators.flip_bytes), adapters
        ),
        "rows": Target(2, _seeds(corpus / "rows", "*"), flips, rows),
        "checkpoint": Target(
            3, _seeds(folder / "checkpoint", "*"), (mutators.safetensors_header, *flips, *flips), checkpoint
        ),
    }


def _stablehlo_targets(corpus: Path) -> dict[str, Target]:
    folder = corpus / "stablehlo"

    def parse(name: str, data: bytes) -> Any:
        from tf2jax_lite import from_stablehlo

        return from_stablehlo(data if name.endswith(".bin") else data.decode("utf-8", "surrogateescape"))

    def trace(name: str, data: bytes) -> Any:
        import jax

        from tf2jax_lite.stablehlo.api import main_function
        from tf2jax_lite.stablehlo.api import parse as read

        text = data.decode("utf-8", "surrogateescape")
        fn = parse(name, data)
        specs = [
            jax.ShapeDtypeStruct(tuple(min(d or 2, 64) for d in t.shape), t.dtype)
            for t in main_function(read(text)).body.types
            if hasattr(t, "shape")
        ]
        return jax.eval_shape(fn, *specs)

    texts = _seeds(folder, "*.mlir")
    return {
        "stablehlo_text": Target(1.5, texts, (mutators.words, mutators.words, mutators.flip_bytes), parse),
        "stablehlo_bytes": Target(2, _seeds(folder, "*.bin"), (mutators.flip_bytes,), parse),
        "stablehlo_trace": Target(0.2, texts, (mutators.words,), trace),
    }


def _call_targets(corpus: Path) -> dict[str, Target]:
    """Return the target that runs a custom call in a function or its derivative."""
    containers: dict[bool, Any] = {}

    def container(dynamic: bool) -> Any:
        import jax
        import jax.export
        import numpy as np

        if dynamic not in containers:
            size = jax.export.symbolic_shape("n")[0] if dynamic else 3
            spec = jax.ShapeDtypeStruct((size,), np.float32)
            containers[dynamic] = jax.export.export(jax.jit(lambda x: x * x), platforms=["cpu"])(spec)
        return containers[dynamic]

    def serialized(call: dict[str, Any]) -> bytes:
        from jax.extend.mlir.dialects import stablehlo

        from tf2jax_lite.jaxprs.compat import serialize_portable_artifact

        levels = [container(call["dynamic"])]
        for _ in range(call["order"]):
            levels.append(levels[-1].vjp())
        text = _module(call, len(levels[-1].module_kept_var_idx), len(levels[-1].out_avals))
        payload = serialize_portable_artifact(text, stablehlo.get_current_version())
        made = dataclasses.replace(levels[-1], mlir_module_serialized=payload)
        for level in levels[-2::-1]:
            made = dataclasses.replace(level, _get_vjp=lambda _, inner=made: inner)
        return bytes(made.serialize(vjp_order=call["order"]))

    def run(name: str, data: bytes) -> Any:
        import json

        import jax
        import numpy as np

        from tf2jax_lite.stablehlo import api

        call = json.loads(data)
        try:
            content = serialized(call)
        except Exception:  # MLIR cannot read the text
            return None
        function = api.checked_call(api.read_exported(content))

        def loss(x: Any) -> Any:
            return function(x).sum()

        for _ in range(call["order"]):
            loss = jax.grad(lambda x, inner=loss: inner(x).sum())
        try:
            return jax.block_until_ready(jax.jit(loss)(np.ones(3, np.float32)))
        except (ValueError, jax.errors.JaxRuntimeError):  # as `load` and `run_artifact` catch them
            return None

    return {"artifact_calls": Target(0.5, _seeds(corpus / "calls", "*.json"), (mutators.custom_call,), run)}


def _module(call: Mapping[str, Any], inputs: int, outputs: int) -> str:
    """Return a module that calls with constants and returns its first argument."""
    kind = "?xf32" if call["dynamic"] else "3xf32"
    sides = {
        side: [(e, dims, _tensor(e, dims, call["dynamic"])) for e, dims in call[side]]
        for side in ("operands", "results")
    }
    lines = []
    types = [kind for _, _, kind in sides["operands"]]
    for number, (element, dims, wanted) in enumerate(sides["operands"]):
        value = "false" if element == "i1" else "1" if "i" in element and "<" not in element else "1.0"
        value = f"({value}, {value})" if "complex" in element else value
        if not call["dynamic"] or not dims:
            lines.append(f"%a{number} = stablehlo.constant dense<{value}> : {wanted}")
            continue
        lines.append(f"%c{number} = stablehlo.constant dense<{value}> : tensor<{element}>")
        lines.append(f"%d{number} = stablehlo.constant dense<{dims}> : tensor<{len(dims)}xi32>")
        lines.append(
            f"%a{number} = stablehlo.dynamic_broadcast_in_dim %c{number}, %d{number}, dims = [] : "
            f"(tensor<{element}>, tensor<{len(dims)}xi32>) -> {wanted}"
        )
    names = [f"%a{number}" for number in range(len(types))]
    attributes = ["has_side_effect = true", f"mhlo.backend_config = {call['config']}"]
    if "api_version" in call:
        attributes.append(f"api_version = {call['api_version']} : i32")
    if call["dynamic"]:
        for number, (_, dims, _) in enumerate(sides["results"]):
            lines.append(f"%s{number} = stablehlo.constant dense<{dims}> : tensor<{len(dims)}xi32>")
            types.append(f"tensor<{len(dims)}xi32>")
            names.append(f"%s{number}")
        indices = list(range(len(types) - len(sides["results"]), len(types)))
        attributes.append(f"indices_of_shape_operands = dense<{indices}> : tensor<{len(indices)}xi64>")
    elif call.get("layout"):
        for side, found in (("operand", sides["operands"]), ("result", sides["results"])):
            layouts = [_layout(len(dims), call["layout"]) for _, dims, _ in found]
            attributes.append(f"{side}_layouts = [{', '.join(layouts)}]")
    made = ", ".join(wanted for _, _, wanted in sides["results"])
    count = f"%r:{len(sides['results'])} = " if sides["results"] else ""
    lines.append(
        f'{count}stablehlo.custom_call @"{call["target"]}"({", ".join(names)}) {{{", ".join(attributes)}}} : '
        f"({', '.join(types)}) -> ({made})"
    )
    args = ", ".join(f"%x{number}: tensor<{kind}>" for number in range(inputs))
    results = ", ".join([f"tensor<{kind}>"] * outputs)
    body = "\n".join(lines)
    returned = ", ".join(["%x0"] * outputs)
    return f"module {{ func.func public @main({args}) -> ({results}) {{\n{body}\nreturn {returned} : {results} }} }}"


def _tensor(element: str, dims: list[int], dynamic: bool) -> str:
    return f"tensor<{''.join('?x' if dynamic else f'{d}x' for d in dims)}{element}>"


def _layout(rank: int, kind: int) -> str:
    order = list(range(rank))[::-1]
    order = {1: order, 2: [*order[1::-1], *order[2:]], 3: order[::-1]}[kind]
    return f"dense<{order}> : tensor<{rank}xindex>"


def _keras_targets(corpus: Path, work: Path) -> dict[str, Target]:
    def load(name: str, data: bytes) -> Any:
        work.mkdir(parents=True, exist_ok=True)
        path = work / f"model{Path(name).suffix}"
        keras_files.with_config(corpus / "keras" / name, data, path)
        return keras_files.load(path)

    seeds = {path.name: keras_files.read_config(path) for path in sorted((corpus / "keras").iterdir())}
    changed = (keras_files.other_names, keras_files.other_names, keras_files.other_names, mutators.json_values)
    return {"keras_config": Target(3, seeds, changed, load)}
