"""Readers of files, each with mutators for its files.

A target returns, or raises an error of this package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import keras_files, mutators
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
    "safetensors",
    "sqlite",
    "tff_sqlite",
    "npz",
    "hdf5",
    "stablehlo_text",
    "stablehlo_bytes",
    "stablehlo_trace",
    "keras_config",
)


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader under test.

    Attributes:
      weight: how often it is picked, against the others.
      seeds: good files, by name.
      mutators: ways to damage them.
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
    """Return the targets asked for.

    Args:
      corpus: what `corpus.make_corpus` made.
      work: a folder to write damaged files to, for this process alone.
      names: which; what the others need is not imported.
    """
    made = {**_graph_targets(corpus, work), **_artifact_targets(corpus, work), **_client_targets(corpus, work)}
    made.update(_stablehlo_targets(corpus))
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
    models = {v: (corpus / "saved_model" / v / "saved_model.pb").read_bytes() for v in ("v1", "v2")}
    of_graph = (mutators.proto_fields(graph_proto), mutators.rewire(graph_proto), mutators.flip_bytes)
    of_model = (mutators.proto_fields(model_proto), mutators.rewire(model_proto), mutators.flip_bytes)
    return {
        "graph": Target(4, graphs, of_graph, convert),
        "graph_trace": Target(0.3, graphs, of_graph, trace),
        "saved_model": Target(1, models, of_model, describe),
        "saved_model_convert": Target(1, {"v1": models["v1"]}, of_model, convert_model),
        "saved_model_tensorflow": Target(0.05, {"v2": models["v2"]}, of_model, convert_model),
    }


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

    def tensors(file: str, data: bytes) -> Any:
        from tf2jax_lite.errors import Tf2JaxError
        from tf2jax_lite.export.params_file import read_tensors
        from tf2jax_lite.federated.data.records import decode_examples

        path = work / "tensors.safetensors"
        path.write_bytes(data)
        with contextlib.suppress(Tf2JaxError):
            read_tensors(path)
        return decode_examples(data, "record")

    params = {"params.safetensors": (source / "params.safetensors").read_bytes()}
    of_tensors = (mutators.safetensors_header, mutators.flip_bytes)
    return {
        "artifact_json": Target(
            8, _seeds(source, "metadata.json"), (mutators.json_values, mutators.json_values, mutators.flip_bytes), load
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
        from tf2jax_lite.federated.data import SQLiteFederatedData

        read_all(SQLiteFederatedData(write(name, data)))

    def tff_sqlite(name: str, data: bytes) -> None:
        import jax
        import numpy as np

        from tf2jax_lite.federated.data import TFFSQLiteFederatedData

        read_all(TFFSQLiteFederatedData(write(name, data), {"x": jax.ShapeDtypeStruct((2,), np.float32)}))

    def npz(name: str, data: bytes) -> None:
        from tf2jax_lite.federated.data import NpzFolderFederatedData

        (work / "npz").mkdir(exist_ok=True)
        (work / "npz" / "client.npz").write_bytes(data)
        read_all(NpzFolderFederatedData(work / "npz", max_client_bytes=1 << 24))

    def hdf5(name: str, data: bytes) -> None:
        from tf2jax_lite.federated.data import TFFHDF5FederatedData

        read_all(TFFHDF5FederatedData(write(name, data), max_client_bytes=1 << 24))

    flips = (mutators.flip_bytes,)
    return {
        "sqlite": Target(3, _seeds(folder, "clients.sqlite"), flips, sqlite),
        "tff_sqlite": Target(3, _seeds(folder, "tff.sqlite"), flips, tff_sqlite),
        "npz": Target(6, _seeds(folder, "*.npz"), flips, npz),
        "hdf5": Target(2, _seeds(folder, "*.h5"), flips, hdf5),
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


def _keras_targets(corpus: Path, work: Path) -> dict[str, Target]:
    def load(name: str, data: bytes) -> Any:
        work.mkdir(parents=True, exist_ok=True)
        path = work / f"model{Path(name).suffix}"
        keras_files.with_config(corpus / "keras" / name, data, path)
        return keras_files.load(path)

    seeds = {path.name: keras_files.read_config(path) for path in sorted((corpus / "keras").iterdir())}
    changed = (keras_files.other_names, keras_files.other_names, keras_files.other_names, mutators.json_values)
    return {"keras_config": Target(3, seeds, changed, load)}
