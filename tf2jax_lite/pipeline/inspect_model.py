"""Model inspection: a model's ops and unsupported ones, from the protos.

No variable is loaded, and TensorFlow is imported for Keras files only.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import attributes, dtypes, functions
from tf2jax_lite.frontend.graphdef.size_limits import check_graph_size
from tf2jax_lite.frontend.runtime.string_evaluator import StringEvaluator
from tf2jax_lite.frontend.safety import unsafe_ops
from tf2jax_lite.frontend.safety.raw_protos import tensor_infos
from tf2jax_lite.frontend.saved import graph_def_file, meta_graph, ref_variables, saved_model
from tf2jax_lite.frontend.saved.graph_def_file import fetches
from tf2jax_lite.frontend.saved.lookup_tables import TABLE_OPS
from tf2jax_lite.frontend.saved.saved_model import trainable_nodes
from tf2jax_lite.ir.traversal import called_functions, live_nodes, reached
from tf2jax_lite.lowering.planning.compiled_ops import evaluated_ops
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.passes.analysis.static_values import runtime_dependent
from tf2jax_lite.passes.control_flow_v1 import functionalize
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InputError, InvalidModelError, UnsupportedError, UntrustedError
from tf2jax_lite.support.html_page import badge, bars, code, escaped, figures, page, table
from tf2jax_lite.support.limits import reading
from tf2jax_lite.support.text import size_text

from .model_paths import KERAS_SUFFIXES, model_path
from .steps import verified_graph


@dataclasses.dataclass(frozen=True)
class TensorDescription:
    """The name, dtype and shape of an argument, result or variable."""

    name: str
    dtype: str
    shape: list[int | None] | None

    @property
    def elements(self) -> int:
        """Number of elements; unknown dimensions count as one."""
        return math.prod(d if d is not None else 1 for d in self.shape or [])


@dataclasses.dataclass(frozen=True)
class SignatureDescription:
    """A signature: arguments, results, op counts, and nodes of unsupported ops."""

    name: str
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]
    ops: dict[str, int]
    unsupported: dict[str, list[str]]


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """A SavedModel, or a graph in a file.

    ``kind`` is "SavedModel", "TF1 SavedModel" (the graph holds variables and tables itself), "TF1 Hub module", "TF1
    MetaGraph" (of a checkpoint), "Keras model", "frozen GraphDef" (weights are constants) or "GraphDef" (it has
    variables).
    """

    path: str
    kind: str
    tensorflow_version: str
    tags: list[list[str]]
    signatures: list[SignatureDescription]
    variables: list[TensorDescription]
    trainable: int
    bytes: int

    @property
    def supported(self) -> bool:
        """Whether every op of every signature is supported."""
        return not any(s.unsupported for s in self.signatures)

    def as_json(self) -> dict[str, Any]:
        """Return the description as plain JSON data."""
        return {**dataclasses.asdict(self), "supported": self.supported}


def describe_model(
    path: str | os.PathLike[str],
    tags: Iterable[str] | None = None,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> ModelDescription:
    """Describe a SavedModel, Keras file, ``.pb`` GraphDef, or TF1's ``.meta``.

    Args:
      path: the directory or file.
      tags: of a SavedModel, which MetaGraph.
      inputs: of a file, names of tensors that become arguments; its placeholders by default.
      outputs: of a file, names of results; tensors that no node reads by default.

    Raises:
      InvalidModelError: it cannot be read, or has no such MetaGraph, inputs or outputs.
      InputError: an option does not go with this kind of model.
    """
    path = model_path(path)
    if path.is_file() and path.name.endswith((".pb", ".meta")):
        if tags:
            raise InputError("--tag goes with SavedModels.")
        with reading(os.fspath(path)):
            return _describe_file(path, inputs, outputs)
    if path.is_file() and path.suffix in KERAS_SUFFIXES:
        if tags or inputs or outputs:
            raise InputError("--tag, --input and --output do not go with Keras files.")
        return _describe_keras(path)
    if path.is_file():
        raise InvalidModelError(
            f"{path}: a file is described if it is a .keras, .h5, .pb or .meta; else a model is a SavedModel, the "
            "directory that holds saved_model.pb."
        )
    if inputs or outputs:
        raise InputError("--input and --output go with .pb and .meta files; a SavedModel has signatures.")
    return describe_saved_model(path, tags)


def _describe_keras(path: pathlib.Path) -> ModelDescription:
    import tensorflow as tf

    from . import model_files

    model = model_files.load_keras(path)
    ((name, function, specs),) = model_files.keras_functions(model, train=False, where=str(path))
    concrete = function.get_concrete_function(specs)
    proto = concrete.graph.as_graph_def()
    nodes = {node.name: node for node in proto.node}
    args = [graph_def_file.argument(nodes, tensor.name) for tensor in concrete.inputs]
    main = functions.load_main(proto, name, args, [tensor.name for tensor in concrete.outputs])
    given = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    signature = _needs(
        name,
        [_tensor(t.name.split(":")[0], t.dtype.as_datatype_enum, t.shape.as_proto()) for t in given],
        [_tensor(f"output_{i}", t.dtype.as_datatype_enum, t.shape.as_proto()) for i, t in enumerate(concrete.outputs)],
        main,
        functions.load_library(proto.library),
    )
    variables = [
        TensorDescription(getattr(v, "path", v.name), tf.as_dtype(v.dtype).name, list(v.shape)) for v in model.weights
    ]
    return ModelDescription(
        path=str(path),
        kind="Keras model",
        tensorflow_version="",
        tags=[],
        signatures=[signature],
        variables=sorted(variables, key=lambda v: v.name),
        trainable=len(model.trainable_weights),
        bytes=_bytes(variables),
    )


def _describe_file(
    path: str | os.PathLike[str], inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> ModelDescription:
    meta = meta_graph.read_meta_graph(path) if graph_def_file.is_meta_graph(path) else None
    graph = graph_def_file.read_graph_def(path) if meta is None else meta.graph_def
    check_graph_size(graph, os.fspath(path))
    inputs, outputs = graph_def_file.default_ends(path, inputs, outputs)
    nodes = {node.name: node for node in graph.node}
    args = [graph_def_file.argument(nodes, name) for name in inputs]
    asked = fetches(graph, outputs)
    main = functions.load_main(graph, "serving_default", args, asked.tensors, asked.operations)
    library = functions.load_library(graph.library)
    dtypes_of = {node.name: node.output_dtypes for node in main.nodes} | {arg.name: (arg.dtype,) for arg in args}
    shapes_of = {node.name: node.output_shapes for node in main.nodes}
    results = []
    for name, ref in zip(asked.tensors, main.outputs, strict=True):
        given, shapes = dtypes_of.get(ref.node, ()), shapes_of.get(ref.node) or ()
        shape = shapes[ref.index] if ref.index < len(shapes) else None
        dtype = given[ref.index] if ref.index < len(given) else "unknown"
        results.append(TensorDescription(name, str(dtype), None if shape is None else list(shape)))
    given = [
        TensorDescription(arg.name, str(arg.dtype), None if arg.shape is None else list(arg.shape)) for arg in args
    ]
    signature = _needs("serving_default", given, results, main, library)
    variables, trainable = _variables(meta_graph.as_meta_graph(graph) if meta is None else meta)
    kind = "TF1 MetaGraph" if meta is not None else "GraphDef" if variables else "frozen GraphDef"
    if kind == "frozen GraphDef":
        variables = _weights(reached(main))
        trainable = len(variables)
    return ModelDescription(
        path=os.fspath(path),
        kind=kind,
        tensorflow_version="" if meta is None else meta.meta_info_def.tensorflow_version,
        tags=[] if meta is None else [sorted(meta.meta_info_def.tags)],
        signatures=[signature],
        variables=variables,
        trainable=trainable,
        bytes=_bytes(variables),
    )


def _weights(function: ir.Function) -> list[TensorDescription]:
    """Return the constants of a frozen graph that become params."""
    found = []
    for node in function.nodes:
        value = node.attrs.get("value")
        if node.op == "Const" and isinstance(value, np.ndarray) and graph_def_file.is_weight(value):
            found.append(TensorDescription(node.name, str(value.dtype), list(value.shape)))
    return sorted(found, key=lambda weight: weight.name)


def _bytes(variables: Iterable[TensorDescription]) -> int:
    sized = [v for v in variables if v.dtype not in ("string", "resource", "variant")]
    return sum(v.elements * np.dtype(v.dtype).itemsize for v in sized)


def describe_saved_model(path: str | os.PathLike[str], tags: Iterable[str] | None = None) -> ModelDescription:
    """Describe a SavedModel directory.

    Args:
      path: the directory.
      tags: which MetaGraph; the first by default.

    Raises:
      InvalidModelError: it cannot be read, or has no MetaGraph with these tags.
    """
    with reading(os.fspath(path)):
        return _describe(path, tags)


def _describe(path: str | os.PathLike[str], tags: Iterable[str] | None) -> ModelDescription:
    proto = saved_model.read_proto(path)
    sets = saved_model.tag_sets(proto)
    wanted = None if tags is None else list(tags)
    try:
        index = sets.index(saved_model.chosen_tags(path, proto, wanted))
    except InvalidModelError:
        if wanted is not None:
            raise
        index = 0  # several MetaGraphs without a default: describe the first
    meta = proto.meta_graphs[index]
    variables, trainable = _variables(meta)
    if variables and not os.path.isdir(os.path.join(path, "variables")):
        raise InvalidModelError(
            f"{os.fspath(path)}: has {len(variables)} variables, but the folder 'variables' is missing."
        )
    check_graph_size(meta.graph_def, os.fspath(path))
    library = functions.load_library(meta.graph_def.library)
    signatures = [
        _signature(name, signature, meta.graph_def, library)
        for name, signature in sorted(meta.signature_def.items())
        if not name.startswith("__saved_model")
    ]
    if not meta_graph.is_tf1(meta):  # nothing of a TF1 model runs in TensorFlow
        try:
            unsafe_ops.reject_unsafe_model(meta, path)
        except UntrustedError as error:
            for signature in signatures:
                signature.unsupported["untrusted ops"] = [line.strip() for line in str(error).splitlines()]
    return ModelDescription(
        path=os.fspath(path),
        kind=_kind(path, meta),
        tensorflow_version=meta.meta_info_def.tensorflow_version,
        tags=sets,
        signatures=signatures,
        variables=variables,
        trainable=trainable,
        bytes=_bytes(variables),
    )


def _kind(path: str | os.PathLike[str], meta: Any) -> str:
    if not meta_graph.is_tf1(meta):
        return "SavedModel"
    is_hub = os.path.exists(os.path.join(path, "tfhub_module.pb")) or any("hub" in key for key in meta.collection_def)
    return "TF1 Hub module" if is_hub else "TF1 SavedModel"


def _tensor(name: str, dtype: Any, shape: Any) -> TensorDescription:
    sizes = attributes.shape_of(shape)
    return TensorDescription(name, str(dtypes.from_tf(dtype)), None if sizes is None else list(sizes))


def _variables(meta: Any) -> tuple[list[TensorDescription], int]:
    found: dict[str, TensorDescription] = {}
    for index, node in enumerate(meta.object_graph_def.nodes):
        if node.WhichOneof("kind") == "variable":
            name = node.variable.name or f"variable_{index}"
            unique = name if name not in found else f"{name}_{index}"
            found[unique] = _tensor(unique, node.variable.dtype, node.variable.shape)
    trainable = len(trainable_nodes(meta.object_graph_def))
    if not found:  # a TF1 model keeps its variables in the graph
        names = meta_graph.trainable_names(meta)
        trained = set()
        for node in meta.graph_def.node:
            if node.op in _VARIABLE_OPS:
                name = attributes.text_of(node.attr["shared_name"].s) or node.name
                found[name] = _tensor(name, node.attr["dtype"].type, node.attr["shape"].shape)
                dtype = dtypes.from_tf(node.attr["dtype"].type)
                if isinstance(dtype, np.dtype) and meta_graph.variable_trains(name, node.name, dtype, names):
                    trained.add(name)
        trainable = len(trained)
    return [found[name] for name in sorted(found)], trainable


_VARIABLE_OPS = ("VarHandleOp", *sorted(ref_variables.VARIABLE_OPS))


def _signature(name: str, proto: Any, graph: Any, library: dict[str, ir.Function]) -> SignatureDescription:
    ends = [
        [i for part in tensor_infos(infos).values() for i in part.items()] for infos in (proto.inputs, proto.outputs)
    ]
    inputs, outputs = ([_tensor(key, info.dtype, info.tensor_shape) for key, info in end] for end in ends)
    fed, wanted = ([info.name for _, info in end if info.name] for end in ends)
    nodes = {node.name: node for node in graph.node}
    args = {arg.name: arg for arg in (graph_def_file.argument(nodes, tensor) for tensor in fed)}
    main = functions.load_main(graph, name, list(args.values()), wanted)
    return _needs(name, inputs, outputs, main, library)


def _needs(
    name: str,
    inputs: list[TensorDescription],
    outputs: list[TensorDescription],
    main: ir.Function,
    library: dict[str, ir.Function],
) -> SignatureDescription:
    """Return the description of a signature with the ops that it needs."""
    problems: dict[str, list[str]] = {}
    graph = ir.Graph(ref_variables.without_references(reached(main)), library)
    try:
        # The histogram counts the ops of the model as saved, except for control flow v1.
        graph = verified_graph(graph, current_config(), only=("legacy_tensor_arrays", "functionalize"))
    except UnsupportedError as error:
        problems["control flow"] = [str(error)]
    # Functions that write checkpoints are called by no signature, and have ops without an implementation.
    called = called_functions(graph)
    library = {name: function for name, function in graph.functions.items() if name in called}
    graph = ir.Graph(graph.main, library)
    main, ops = graph.main, registry.ops_in_force()
    effects = Summaries(library, ops)
    evaluator = StringEvaluator(current_config().max_constant_bytes)
    evaluated = evaluated_ops(graph.specs, ops, evaluator)
    dynamic = runtime_dependent(graph, ops.new_child(evaluated), evaluated) if evaluated else frozenset()
    histogram: collections.Counter[str] = collections.Counter()
    unsupported: dict[str, list[str]] = dict(problems)
    pending, seen = [main], {main.name}
    while pending:
        function = pending.pop()
        for node in live_nodes(function, effects.effects_in(function)):
            histogram[node.op] += 1
            if node.op in evaluated and (function.name, node.name) not in dynamic:
                continue
            # The loader reads tables; of control flow that cannot be expressed, ``problems`` has the reason.
            if node.op not in ops and node.op not in TABLE_OPS and not (problems and node.op in functionalize.OPS):
                unsupported.setdefault(node.op, []).append(f"{node.name} in {function.name}")
            for ref in node.functions:
                if ref.name in library and ref.name not in seen:
                    seen.add(ref.name)
                    pending.append(library[ref.name])
    return SignatureDescription(
        name, inputs, outputs, dict(sorted(histogram.items())), dict(sorted(unsupported.items()))
    )


def html_description(found: ModelDescription) -> str:
    """Return the page of a model that `describe_model` described."""
    verdict = "every op is supported" if found.supported else "some ops are not supported"
    version = f", TensorFlow {escaped(found.tensorflow_version)}" if found.tensorflow_version else ""
    body = [f"<h1>{code(found.path)}</h1>", f"<p>{badge(verdict, found.supported)} {escaped(found.kind)}{version}"]
    if found.tags:
        body.append(f"; tags {' and '.join(code(', '.join(tags)) for tags in found.tags)}")
    ops = sum((collections.Counter(signature.ops) for signature in found.signatures), collections.Counter())
    noun = "weights" if found.kind == "frozen GraphDef" else "variables"
    body += [
        "</p>",
        figures(
            {
                "signatures": str(len(found.signatures)),
                "nodes": f"{ops.total():,}",
                "kinds of ops": str(len(ops)),
                f"{noun}, {found.trainable} train": str(len(found.variables)),
                "elements": f"{sum(variable.elements for variable in found.variables):,}",
                "size": size_text(found.bytes),
            }
        ),
    ]
    for signature in found.signatures:
        body += _signature_page(signature)
    if found.variables:
        body += _variables_table(found.variables, noun)
    return page(f"{found.path}: {verdict}", body)


def _signature_page(signature: SignatureDescription) -> Iterable[str]:
    missing = len(signature.unsupported)
    verdict = f"{missing} not supported" if missing else "converts"
    yield f"<h2>{escaped(signature.name)} {badge(verdict, not missing)}</h2>"
    for op, nodes in signature.unsupported.items():
        yield f'<p class="problem">{code(op)}: {", ".join(map(escaped, nodes))}</p>'
    rows = [["in", *_cells(tensor)] for tensor in signature.inputs]
    rows += [["out", *_cells(tensor)] for tensor in signature.outputs]
    yield table(("", "name", "dtype", "shape"), rows)
    if signature.ops:
        yield "<h3>Ops</h3>"
        yield _counts(signature.ops, {name: str(count) for name, count in signature.ops.items()})


def _variables_table(variables: Sequence[TensorDescription], noun: str) -> Iterable[str]:
    """Return the size of each scope, and the table."""
    yield f"<h2>{noun.capitalize()}</h2>"
    sizes: dict[str, int] = {}
    for variable in variables:
        sizes[_scope(variable.name)] = sizes.get(_scope(variable.name), 0) + _size(variable)
    if len(sizes) > 1:
        yield "<h3>Size by scope</h3>"
        yield _counts(sizes, {name: size_text(size) for name, size in sizes.items()})
    rows = [
        [*_cells(variable), f"{variable.elements:,}", size_text(_size(variable))]
        for variable in sorted(variables, key=lambda variable: variable.name)
    ]
    columns = ("name", "dtype", "shape", "elements", "size")
    yield table(columns, rows, numeric=columns[3:], fold=noun)


def _counts(counts: Mapping[str, int], texts: Mapping[str, str]) -> str:
    """Return bars, the longest first."""
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return bars({name: float(count) for name, count in ordered.items()}, texts)


def _cells(tensor: TensorDescription) -> list[str]:
    sizes = "?" if tensor.shape is None else f"[{', '.join('?' if d is None else str(d) for d in tensor.shape)}]"
    return [code(tensor.name), escaped(tensor.dtype), escaped(sizes)]


def _scope(name: str) -> str:
    """Return the scope of a variable: at most two names, those of model and layer."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def _size(variable: TensorDescription) -> int:
    return variable.elements * (np.dtype(variable.dtype).itemsize if variable.dtype != "string" else 0)
