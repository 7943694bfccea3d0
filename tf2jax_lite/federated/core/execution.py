"""Run computations of the federated language in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import federated_language as fl
import numpy as np

from tf2jax_lite.federated.core.intrinsics import INTRINSICS
from tf2jax_lite.federated.core.jax_computation import run_exported
from tf2jax_lite.federated.core.types import Ingest, from_value, leaves, map_structure
from tf2jax_lite.support.errors import FederatedTypeError

_Scope = dict[str | None, Any]


class ExecutionContext(fl.framework.SyncContext):
    """Runs computations in this process, one client after another.

    JAX computations are compiled once for each shape. Install it with `set_default_context`, or for a block with
    ``federated_language.framework.get_context_stack().install(context)``.

    A value at the clients is a list with one value for each client; a sequence is any iterable; a structure is a dict,
    list, tuple or named tuple. Results are numpy arrays and scalars in such containers.

    Args:
      default_num_clients: how many clients there are in a call none of whose arguments is placed at clients.

    Raises:
      FederatedTypeError: ``default_num_clients`` is not an int >= 0.
    """

    def __init__(self, default_num_clients: int = 0):
        if not isinstance(default_num_clients, int) or default_num_clients < 0:
            raise FederatedTypeError(f"default_num_clients is an int >= 0, not {default_num_clients!r}")
        self._default_num_clients = default_num_clients

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Run ``comp`` with ``arg``.

        Federated_language calls this when a computation is called in Python.

        Raises:
          FederatedTypeError: an argument does not have the parameter's type, or ``comp`` cannot run here.
        """
        # How many clients there are is known only after all arguments were seen.
        run = _Run(0)
        ingest = Ingest(lambda function: run.evaluate(function.to_building_block(), {}))
        kind = comp.type_signature
        value = None if kind.parameter is None else ingest(arg, kind.parameter)
        run.num_clients = self._default_num_clients if ingest.num_clients is None else ingest.num_clients
        result = run.evaluate(comp.to_building_block(), {})(value)
        return from_value(result, kind.result, run.num_clients)


def set_default_context(default_num_clients: int = 0) -> None:
    """Make an `ExecutionContext` this thread's default.

    Computations called in Python then run in this process.

    Args:
      default_num_clients: see `ExecutionContext`.

    Raises:
      FederatedTypeError: ``default_num_clients`` is not an int >= 0.
    """
    fl.framework.set_default_context(ExecutionContext(default_num_clients))


class _Run:
    """One call: the evaluation of building blocks with a number of clients."""

    def __init__(self, num_clients: int):
        self.num_clients = num_clients

    def evaluate(self, block: Any, scope: _Scope) -> Any:
        """Return the value of a block, given the names that it may refer to."""
        match block:
            case fl.framework.Reference():
                return scope[block.name]
            case fl.framework.Lambda():
                return lambda arg: self.evaluate(block.result, {**scope, block.parameter_name: arg})
            case fl.framework.Call():
                function = self.evaluate(block.function, scope)
                return function(None if block.argument is None else self.evaluate(block.argument, scope))
            case fl.framework.Selection():
                index = block.index
                if index is None:
                    index = [name for name, _ in block.source.type_signature.items()].index(block.name)
                return self.evaluate(block.source, scope)[index]
            case fl.framework.Struct():
                return tuple(self.evaluate(element, scope) for element in block.children())
            case fl.framework.Block():
                inner = dict(scope)
                for name, value in block.locals:
                    inner[name] = self.evaluate(value, inner)
                return self.evaluate(block.result, inner)
            case fl.framework.Intrinsic():
                return self._intrinsic(block)
            case fl.framework.CompiledComputation():
                return _compiled(block)
            case fl.framework.Literal():
                return np.asarray(block.value)
        raise FederatedTypeError(f"{type(block).__name__} cannot run here: {block.compact_representation()[:200]}")

    def _intrinsic(self, block: Any) -> Any:
        if block.uri == "generic_zero":
            zero = map_structure(lambda kind: np.zeros(kind.shape, kind.dtype), block.type_signature)
            return zero
        if block.uri not in INTRINSICS:
            raise FederatedTypeError(f"the intrinsic {block.uri} cannot run here; these can: {sorted(INTRINSICS)}")
        return lambda arg: INTRINSICS[block.uri](block.type_signature, self.num_clients, arg)


def _compiled(block: Any) -> Callable[[Any], Any]:
    proto, kind = block.to_proto(), block.type_signature

    def call(arg: Any) -> Any:
        # A value may get the type it is assigned to only by a lossless cast.
        inputs = [] if kind.parameter is None else leaves(kind.parameter, map_structure(_cast, kind.parameter, arg))
        outputs = iter(run_exported(proto, kind, inputs))
        return map_structure(lambda _: next(outputs), kind.result)

    return call


def _cast(kind: Any, array: Any) -> Any:
    return array if array.dtype == kind.dtype else np.asarray(array).astype(kind.dtype)
