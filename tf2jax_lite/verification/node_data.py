"""Per-node data for Model Explorer: error and time of each node of a file.

Model Explorer's adapters "TF adapter (direct)" and "GraphDef adapter" show the graph ``main`` and each function of the
library as a graph of its own. The id of a node is its index in the file; in functions, a node for the arguments comes
first. A file of node data maps names of graphs to values by id.
Format: https://github.com/google-ai-edge/model-explorer/blob/main/src/server/package/src/model_explorer/node_data_builder.py
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.frontend.saved import graph_def_file, saved_model
from tf2jax_lite.frontend.saved import meta_graph as tf1
from tf2jax_lite.pipeline.model_paths import model_path
from tf2jax_lite.support.errors import InputError

from .compare import TOLERANCE
from .results import NodeError, SignatureComparison

_SUSPECT = "#e53935"
_TIME = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#fb8c00"})
_Place = tuple[str, str]
"""The name of a graph, and the id of a node in it."""


def reject_other_models(model: Any) -> None:
    """Raise if Model Explorer's adapters for TensorFlow do not read a model."""
    path = model_path(model) if isinstance(model, (str, os.PathLike)) else None
    if path is None or not (path.is_dir() or path.suffix == ".pb"):
        raise InputError(
            "node data need a file that Model Explorer reads: a SavedModel directory or a frozen .pb. Export a Keras "
            "model with model.export(DIR), and verify DIR"
        )


@dataclasses.dataclass
class NodeData:
    """The values of the nodes of a file.

    Attributes:
      errors: the largest relative error, by place; that of a call is the largest inside it.
      seconds: the sum over calls and iterations, by place; of several signatures, the largest.
    """

    errors: dict[_Place, float] = dataclasses.field(default_factory=dict)
    seconds: dict[_Place, float] = dataclasses.field(default_factory=dict)
    suspects: set[_Place] = dataclasses.field(default_factory=set)

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Return the files ``error`` and ``seconds``, of one value for each node."""
        tolerance = TOLERANCE["float32"]
        limits = ((0, "#ffffff"), (tolerance / 100, "#c8e6c9"), (tolerance, "#fff59d"), (1e300, "#ef9a9a"))
        thresholds = [{"value": value, "bgColor": color} for value, color in limits]
        errors: dict[str, Any] = {}
        for (graph, node), value in self.errors.items():
            found = errors.setdefault(graph, {"name": "relative error", "results": {}, "thresholds": thresholds})
            color = {"bgColor": _SUSPECT} if (graph, node) in self.suspects else {}
            found["results"][node] = {"value": value, **color}
        seconds: dict[str, Any] = {}
        for (graph, node), value in self.seconds.items():
            found = seconds.setdefault(graph, {"name": "seconds", "results": {}, "gradient": list(_TIME)})
            found["results"][node] = {"value": value}
        return {"error": errors, "seconds": seconds}


def write_node_data(
    model: str | os.PathLike[str], tags: Sequence[str] | None, results: Sequence[SignatureComparison], folder: Path
) -> NodeData:
    """Write ``error.json`` and ``seconds.json``, and return their values.

    Args:
      model: a SavedModel's directory, or a frozen graph.
      results: with bisections; nodes that conversion made, and do not stand in the file, are left out.
    """
    file = _File.read(model_path(model), tags)
    data = NodeData()
    for result in results:
        if result.bisection is None:
            continue
        seconds: dict[_Place, float] = {}
        for node in result.bisection.nodes:
            calls, own = file.places(result.signature, node)
            for place in (*calls, *own):
                data.errors[place] = max(node.error, data.errors.get(place, 0.0))
                if node.seconds is not None:
                    seconds[place] = seconds.get(place, 0.0) + node.seconds
            data.suspects.update(own if node.suspect else ())
        for place, value in seconds.items():
            data.seconds[place] = max(value, data.seconds.get(place, 0.0))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in data.as_json().items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    return data


@dataclasses.dataclass(frozen=True)
class _File:
    """The graphs of a file.

    Attributes:
      nodes: by name of the graph and of the node, the id and the proto.
      entries: by signature, the name of the node of ``main`` that calls its function.
    """

    nodes: Mapping[str, Mapping[str, tuple[str, Any]]]
    entries: Mapping[str, str]

    @staticmethod
    def read(path: Path, tags: Sequence[str] | None) -> _File:
        """Read a SavedModel or a frozen graph."""
        entries = {}
        if path.is_dir():
            meta_graph = saved_model.meta_graph(path, tags)
            graph = meta_graph.graph_def
            if not tf1.is_tf1(meta_graph):  # there the nodes of a signature stand in main
                for name, signature in meta_graph.signature_def.items():
                    entries[name] = next((t.name.partition(":")[0] for t in signature.outputs.values()), "")
        else:
            graph = graph_def_file.read_graph_def(path)
        nodes = {"main": {node.name: (str(index), node) for index, node in enumerate(graph.node)}}
        for function in graph.library.function:
            numbered = enumerate(function.node_def, start=1)
            nodes[function.signature.name] = {node.name: (str(index), node) for index, node in numbered}
        return _File(nodes, entries)

    def places(self, signature: str, error: NodeError) -> tuple[list[_Place], list[_Place]]:
        """Return the places of the calls around a node, and its own if the file has it."""
        graphs, calls = ["main"], []
        for call in (*([self.entries[signature]] if signature in self.entries else []), *error.calls):
            found = self._named(graphs, call)
            calls += [(graph, node_id) for graph, node_id, _ in found]
            # Control flow of TF1 becomes calls when it is converted: their nodes stand in the graph itself.
            graphs = [name for *_, node in found for name in _functions(node) if name in self.nodes] or graphs
        found = self._named(graphs, error.node)
        # TensorFlow adds a prefix and a number to the name of a function that it restores.
        own = [place for place in found if place[0] in error.function] or found
        return calls, [(graph, node_id) for graph, node_id, _ in own[:1]]

    def _named(self, graphs: Sequence[str], name: str) -> list[tuple[str, str, Any]]:
        return [(graph, *self.nodes[graph][name]) for graph in graphs if name in self.nodes[graph]]


def _functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node calls."""
    for value in node.attr.values():
        yield from (function.name for function in (value.func, *value.list.func) if function.name)
