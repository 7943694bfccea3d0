"""Comparison targets: a TensorFlow callable and its conversion."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles

from tf2jax_lite import ir
from tf2jax_lite.calling.names import match_names
from tf2jax_lite.calling.params import is_seed_state
from tf2jax_lite.calling.structures import TensorArgument
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.frontend.runtime.host_function import HostFunction
from tf2jax_lite.frontend.safety import raw_protos, unsafe_ops
from tf2jax_lite.frontend.safety.raw_protos import tensor_infos
from tf2jax_lite.frontend.saved import graph_def_file, saved_model
from tf2jax_lite.frontend.saved import meta_graph as tf1
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.frontend.saved.graph_def_file import fetches
from tf2jax_lite.frontend.saved.ref_variables import VARIABLE_OPS
from tf2jax_lite.pipeline import convert, model_files
from tf2jax_lite.pipeline.converted_function import ConvertedFunction
from tf2jax_lite.pipeline.model_paths import KERAS_SUFFIXES, model_path
from tf2jax_lite.support.errors import InputError, InvalidModelError


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """A TensorFlow function before conversion.

    Attributes:
      make: returns the ConcreteFunction; called on conversion.
      path: the model's directory or file, if it came from one.
      graph: for a frozen graph, ``(graph_def, inputs, outputs)``; for a ``.meta`` file its path comes first.
      tags: for a TF1 SavedModel, those of its MetaGraph; None for anything else.
    """

    name: str
    make: Callable[[], Any]
    path: Path | None = None
    graph: tuple[Any, list[str], list[str]] | None = None
    tags: list[str] | None = None


class SplitInputs(list):
    """Flat inputs of the core of a model that was split."""

    def __init__(self, core: Sequence[Any], raw: Sequence[Any]):
        super().__init__(core)
        self.raw = list(raw)


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """One function on both sides.

    Attributes:
      concrete: TensorFlow's ConcreteFunction.
      handles: TensorFlow's variables, as resource tensors, by param name.
      variables: those of them that are known as ``tf.Variable``.
      host: of a split model, the prefix that prepares the core's inputs; ``converted`` is the core.
    """

    name: str
    concrete: Any
    converted: ConvertedFunction
    params: Mapping[str, Any]
    handles: Mapping[str, Any]
    variables: Mapping[str, Any]
    path: Path | None
    host: HostFunction | None = None

    def tensors(self, inputs: Sequence[Any]) -> list[Any]:
        """Return flat inputs as TensorFlow's tensors, of the whole model if split."""
        return [tf.constant(x) for x in (inputs.raw if isinstance(inputs, SplitInputs) else inputs)]

    def call_tf(self, tensors: Sequence[Any]) -> list[Any]:
        """Call TensorFlow on flat tensors; return results that the core has, too."""
        results = self.concrete._call_flat(list(tensors), self.concrete.captured_inputs)
        found = [r for r in tf.nest.flatten(results, expand_composites=True) if tf.is_tensor(r)]
        return found if self.host is None else [r for r in found if r.dtype != tf.string]

    def prepared(self, arguments: Mapping[str, TensorArgument], flat: Sequence[Any]) -> Sequence[Any]:
        """Return the converted function's inputs, by the prefix if split."""
        if self.host is None:
            return flat
        core = self.host(**{name: flat[spec.index] for name, spec in arguments.items()})
        return SplitInputs([core[t.name] for t in self.host.cut], flat)

    def variable_values(self) -> dict[str, np.ndarray]:
        """Return the current values of TensorFlow's variables."""
        found = {}
        for name, handle in self.handles.items():
            dtype = tf.dtypes.as_dtype(self.converted.variables[name].dtype)
            found[name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype).numpy()
        return found

    def assign(self, values: Mapping[str, Any]) -> None:
        """Set TensorFlow's variables."""
        for name, value in values.items():
            dtype = tf.dtypes.as_dtype(self.converted.variables[name].dtype)
            tf.raw_ops.AssignVariableOp(resource=self.handles[name], value=tf.constant(value, dtype))

    def with_values(self, values: Mapping[str, np.ndarray]) -> Target:
        """Assign TensorFlow's variables; return the target with these params."""
        own = {name: variable.shape for name, variable in self.converted.variables.items()}
        names = match_names(values, own)
        wanted = {ours: values[theirs] for theirs, ours in names.items() if ours in own}
        unfit = [n for n, v in wanted.items() if own[n] not in (None, np.shape(v))]
        if len(wanted) != len(own) or unfit or (own and not self.handles and not isinstance(self, SessionTarget)):
            raise InputError(
                f"{self.name}: the artifact was trained, and its params do not fit this model's variables"
                f"{': ' + unfit[0] if unfit else ''}. Verify it beside the SavedModel or Keras file that it came from."
            )
        self.assign(wanted)
        return dataclasses.replace(self, params={**self.params, **wanted})

    def with_seeds(self, values: Mapping[str, np.ndarray]) -> Target:
        """Assign an artifact's values to TensorFlow's seed variables.

        See `with_values`. A Keras file does not store the seeds of layers without one: each load draws another.
        """
        shapes = {n: v.shape for n, v in self.converted.variables.items() if n in self.handles and is_seed_state(n)}
        names = match_names(values, shapes)
        wanted = {ours: values[a] for a, ours in names.items() if shapes[ours] in (None, values[a].shape)}
        self.assign(wanted)
        return dataclasses.replace(self, params={**self.params, **wanted})


def convert_source(source: Source, *, split_host: bool = False) -> Target:
    """Convert a source; with ``split_host`` only the core of it."""
    if source.tags is not None and source.path is not None and not split_host:
        return _tf1_target(source, source.path, source.tags)
    if source.graph is not None and graph_def_file.is_meta_graph(source.graph[0]):
        return _meta_target(source, *source.graph)
    concrete = source.make()
    host = None
    handles: dict[str, Any]
    if split_host and source.graph is None:
        host, annotated, params = convert.split_concrete(concrete, source.name)
        handles = {}
    elif source.graph is not None:
        annotated, params = convert.convert_graph_def(*source.graph)
        handles = {}
    else:
        annotated, params = convert.convert_from_restored(concrete)
        handles = {}
    converted: ConvertedFunction = annotated.converted
    variables: dict[str, Any] = {}
    if source.graph is None:
        by_handle = {id(v.handle): v for v in concrete.graph.variables if getattr(v, "handle", None) is not None}
        for capture in converted.program.graph.captures:
            position = _captured_position(converted, host, capture)
            # TensorFlow has no handle of a variable that is a node of the graph.
            if isinstance(capture.value, ir.Variable) and position < len(concrete.captured_inputs):
                handle = concrete.captured_inputs[position]
                handles[capture.value.name] = handle
                if id(handle) in by_handle:
                    variables[capture.value.name] = by_handle[id(handle)]
    return Target(source.name, concrete, converted, params, handles, variables, source.path, host)


def _captured_position(converted: ConvertedFunction, host: HostFunction | None, capture: ir.Capture) -> int:
    """Return a capture's index among TensorFlow's captured tensors."""
    if host is None:
        return capture.index - converted.interface.count
    return host.captured[capture.index - converted.interface.count]


def _tf1_target(source: Source, path: Path, tags: list[str]) -> Target:
    """Convert a signature of a TF1 SavedModel."""
    annotated, params = convert.convert_saved_model(path, source.name, tags)
    converted: ConvertedFunction = annotated.converted
    session = Session.of_saved_model(path, saved_model.meta_graph(path, tags), source.name, tags)
    return SessionTarget(source.name, session, converted, params, {}, {}, path)


def _meta_target(source: Source, path: Path, inputs: list[str], outputs: list[str]) -> Target:
    """Convert the graph of a TF1 checkpoint."""
    annotated, params = convert.convert_graph_def(path, inputs, outputs)
    converted: ConvertedFunction = annotated.converted
    session = Session.of_meta_graph(path, outputs)
    return SessionTarget(source.name, session, converted, params, {}, {}, path)


class SessionTarget(Target):
    """A TF1 signature that a session runs; gradients are tf.gradients in its graph."""

    def names(self) -> list[str]:
        """Return the nodes that flat inputs are fed to."""
        return [arg.name for arg in self.converted.program.graph.main.args[: self.converted.interface.count]]

    def call_tf(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the signature."""
        return [tf.constant(value) for value in self.concrete.run(self.names(), [x.numpy() for x in inputs])]

    def variable_values(self) -> dict[str, np.ndarray]:
        """Return the current values of the session's variables."""
        return self.concrete.values(list(self.converted.variables))

    def assign(self, values: Mapping[str, Any]) -> None:
        """Set the session's variables."""
        self.concrete.assign(values)


def find_sources(
    model: Any,
    signatures: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    *,
    train: bool = False,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    ends: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
) -> list[Source]:
    """Return the functions of a model.

    Args:
      model: a path (SavedModel, ``.keras``, ``.h5``, ``.pb``, ``.meta``), a restored SavedModel, a Keras model, a
        ``tf.function``, a ConcreteFunction or a callable.
      train: of a Keras model, add the function ``train``, which runs in training mode.
      args: positional arguments to trace a callable with.
      kwargs: keyword arguments to trace a callable with.
      ends: of a frozen graph, names of inputs and of outputs.
    """
    if isinstance(model, (str, os.PathLike)):
        found = list(_of_file(Path(model), tags, train, ends))
    else:
        found = list(_of_object(model, train, args, kwargs or {}))
    if not found:
        raise InvalidModelError(f"{_described(model)}: has no signatures to verify.")
    if signatures:
        known = {s.name: s for s in found}
        unknown = [name for name in signatures if name not in known]
        if unknown:
            names = ", ".join(known)
            raise InvalidModelError(f"{_described(model)}: there is no signature {unknown[0]!r}. Signatures: {names}.")
        found = [known[name] for name in signatures]
    return found


def _described(model: Any) -> str:
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__


def _of_file(path: Path, tags: Sequence[str] | None, train: bool, ends: Any) -> Iterator[Source]:
    is_keras = path.is_file() and path.suffix in KERAS_SUFFIXES
    path = model_path(path)
    is_graph = path.is_file() and path.suffix == ".pb"
    is_meta = path.is_file() and graph_def_file.is_meta_graph(path)
    if any(ends) and not (is_graph or is_meta):
        raise InputError("only .pb and .meta files take ends=; other models name theirs")
    if tags and (is_keras or is_graph or is_meta):
        raise InputError("only SavedModels take tags=")
    if is_keras:
        yield from _of_keras(model_files.load_keras(path), train, path)
    elif is_graph:
        yield _of_graph(path, *ends)
    elif is_meta:
        graph = (path, *graph_def_file.default_ends(path, *ends))
        yield Source("serving_default", lambda: None, path, graph)
    else:
        model = saved_model.SavedModel(path, tags)
        if tf1.is_tf1(model.meta_graph):
            yield from _of_tf1(path, model.meta_graph)
        else:
            yield from _of_restored(model.load(), path)


def _of_restored(restored: Any, path: Path | None) -> Iterator[Source]:
    for name in saved_model.signature_names(restored):
        if name != "__saved_model_init_op":
            yield Source(name, lambda name=name: saved_model.signature(restored, name, path or ""), path)


def _of_tf1(path: Path, meta_graph: Any) -> Iterator[Source]:
    tags = sorted(meta_graph.meta_info_def.tags)
    for name in sorted(n for n in meta_graph.signature_def if not n.startswith("__saved_model")):

        def make(name: str = name) -> Any:
            return saved_model.signature(saved_model.load(path, tags), name, path)

        yield Source(name, make, path, tags=tags)


def _of_keras(model: Any, train: bool, path: Path | None) -> Iterator[Source]:
    for name, function, specs in model_files.keras_functions(model, train=train, where=str(path or model.name)):

        def make(function: Any = function, specs: Any = specs) -> Any:
            concrete = function.get_concrete_function(specs)
            concrete._tf2jax_lite_model = (model, function)  # variables are held weakly
            return concrete

        yield Source(name, make, path)


def _of_graph(path: Path, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Source:
    proto = graph_def_file.read_graph_def(path)
    inputs, outputs = graph_def_file.default_ends(proto, inputs, outputs)
    feeds, asked = [_tensor_name(n) for n in inputs], fetches(proto, outputs)

    def make() -> Any:
        unsafe_ops.reject_unsafe_graph(proto, str(path), [*asked.tensors, *asked.operations])
        functions.check(proto, str(path))
        local = raw_protos.without_devices(tf.compat.v1.GraphDef.FromString(proto.SerializeToString()))
        wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(local, name=""), [])
        graph = wrapped.graph
        tensors = [graph.get_tensor_by_name(_tensor_name(n)) for n in asked.tensors]
        operations = [graph.get_operation_by_name(n) for n in asked.operations]
        return wrapped.prune([graph.get_tensor_by_name(n) for n in feeds], [tensors, operations])

    return Source("serving_default", make, path, (proto, list(inputs), list(outputs)))


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _of_object(model: Any, train: bool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Source]:
    if isinstance(model, tf.types.experimental.ConcreteFunction):
        name = getattr(model, "name", "function")
        yield Source(name.decode() if isinstance(name, bytes) else str(name), lambda: model)
    elif not (args or kwargs) and getattr(model, "signatures", None):
        yield from _of_restored(model, None)
    elif not (args or kwargs) and hasattr(type(model), "input") and hasattr(model, "layers"):
        yield from _of_keras(model, train, None)
    elif callable(model):
        name = getattr(model, "__name__", None) or getattr(model, "name", None) or type(model).__name__

        def make() -> Any:
            function = model
            if not hasattr(function, "get_concrete_function"):
                function = tf.function(lambda *a, **k: model(*a, **k))
            concrete = function.get_concrete_function(*args, **kwargs)
            concrete._tf2jax_lite_model = (model, function)
            return concrete

        yield Source(str(name), make)
    else:
        raise InputError(
            f"expected a path, a restored SavedModel, a Keras model or a callable; got {type(model).__name__}."
        )


@contextlib.contextmanager
def _control_flow_v1() -> Iterator[None]:
    """Build gradients as the graph was built: TensorArrays read this switch."""
    before = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    try:
        yield
    finally:
        if before:
            control_flow_v2_toggles.enable_control_flow_v2()


def _tensor(argument: str) -> str:
    """Return an argument's tensor: a node's only result, or one of several."""
    return argument if ":" in argument else f"{argument}:0"


class Session:
    """One function of a TF1 graph, loaded into a session of its own.

    Args:
      operations: the names of nodes that run for their side effects.
    """

    def __init__(self, load: Callable[[Any], None], outputs: Sequence[str], operations: Sequence[str] = ()):
        self.graph = tf.Graph()
        options = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        # Graph optimizers break some v1 control flow ("Retval does not have value"); only the executor matters here.
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        with self.graph.as_default():
            self._session = tf.compat.v1.Session(graph=self.graph, config=options)
            load(self._session)
        self._files: Any = None
        self._outputs = list(outputs)
        self._operations = list(operations)
        self._setters: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def of_saved_model(cls, path: Path, meta_graph: Any, signature: str, tags: Sequence[str]) -> Session:
        """Return one signature of a TF1 SavedModel."""
        checkpoint = saved_model.check_before_tensorflow(meta_graph, path)
        place, holder = saved_model.with_checked(path, checkpoint)
        parts = tensor_infos(meta_graph.signature_def[signature].outputs)
        outputs = [info.name for part in parts.values() for info in part.values()]

        def load(session: Any) -> None:
            tf.compat.v1.saved_model.loader.load(session, list(tags), place, clear_devices=True)

        found = cls(load, outputs)
        found._files = holder  # the graph may read assets at `place`
        return found

    @classmethod
    def of_meta_graph(cls, path: Path, outputs: Sequence[str]) -> Session:
        """Return the function of a ``.meta`` file with its checkpoint."""
        meta_graph = tf1.read_meta_graph(path)
        asked = fetches(meta_graph.graph_def, outputs)
        saved_model.check_before_tensorflow(meta_graph, path, [*asked.tensors, *asked.operations])
        prefix = tf1.checkpoint_beside(path)
        checkpoint = None if prefix is None else Checkpoint(prefix)

        def load(session: Any) -> None:
            saver = tf.compat.v1.train.import_meta_graph(os.fspath(path), clear_devices=True)
            if checkpoint is not None and saver is not None:
                saver.restore(session, checkpoint.checked_prefix)

        return cls(load, [_tensor(name) for name in asked.tensors], asked.operations)

    def run(self, names: Sequence[str], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the signature; ``inputs`` are the values of the nodes ``names``."""
        feeds = {_tensor(name): value for name, value in zip(names, inputs, strict=True)}
        return self._session.run([*self._outputs, *self._operations], feeds)[: len(self._outputs)]

    def gradients(
        self, inputs: Mapping[str, np.ndarray], at: Sequence[str], variables: Sequence[str], upstream: Mapping[int, Any]
    ) -> list[np.ndarray]:
        """Return gradients of the results.

        Args:
          at: the input nodes to differentiate with respect to; their gradients follow those of the variables.
        """
        with self.graph.as_default(), _control_flow_v1():
            results = [self.graph.get_tensor_by_name(self._outputs[i]) for i in upstream]
            sources = [self.graph.get_tensor_by_name(_tensor(name)) for name in (*variables, *at)]
            found = tf.compat.v1.gradients(results, sources, [tf.constant(u) for u in upstream.values()])
            dense = [None if g is None else tf.convert_to_tensor(g) for g in found]
        feeds = {_tensor(name): value for name, value in inputs.items()}
        found_values = iter(self._session.run([g for g in dense if g is not None], feeds))
        zeros = [*self.values(variables).values(), *(inputs[name] for name in at)]
        return [np.zeros_like(z) if g is None else next(found_values) for g, z in zip(dense, zeros, strict=True)]

    def values(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the values of variables."""
        return {name: self._session.run(self._value(name)) for name in names}

    def assign(self, values: Mapping[str, Any]) -> None:
        """Set variables."""
        for name, value in values.items():
            if name not in self._setters:
                with self.graph.as_default():
                    node = self.graph.get_operation_by_name(name)
                    new = tf.compat.v1.placeholder(node.get_attr("dtype"))
                    if node.type in VARIABLE_OPS:
                        setter = tf.raw_ops.Assign(ref=node.outputs[0], value=new, validate_shape=False).op
                    else:
                        setter = tf.raw_ops.AssignVariableOp(resource=node.outputs[0], value=new)
                self._setters[name] = (new, setter)
            new, setter = self._setters[name]
            self._session.run(setter, {new: value})

    def _value(self, name: str) -> Any:
        node = self.graph.get_operation_by_name(name)
        if node.type in VARIABLE_OPS:
            return node.outputs[0]
        with self.graph.as_default():
            return tf.raw_ops.ReadVariableOp(resource=node.outputs[0], dtype=node.get_attr("dtype"))
