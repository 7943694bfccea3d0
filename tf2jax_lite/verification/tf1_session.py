"""Run TF1 SavedModels and checkpoints in a session of tf.compat.v1.

TensorFlow 2 loads them, too, but neither lists nor assigns their reference variables, and its tapes do not
differentiate their loops.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles

from tf2jax_lite.frontend.safety.raw_protos import tensor_infos
from tf2jax_lite.frontend.saved import meta_graph as tf1
from tf2jax_lite.frontend.saved import saved_model
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.frontend.saved.fetches import fetches
from tf2jax_lite.frontend.saved.ref_variables import VARIABLE_OPS


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
