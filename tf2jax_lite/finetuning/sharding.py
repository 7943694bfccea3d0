"""Placement of a training on a mesh of devices, of one process or several.

The training step is the same on one device and on many: arrays have a `jax.sharding.NamedSharding`, and XLA partitions
the program.
"""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.learning.states import placed
from tf2jax_lite.support.errors import InputError

DATA_AXIS = "data"
"""The mesh axis that batches are sharded over."""
SHARDINGS = ("replicated", "fsdp")
"""Names of shardings for params that no rule matches."""

Sharding = str | Sequence[str] | Mapping[str, PartitionSpec | str]
"""Of params: one of `SHARDINGS`, or rules; see `make_placement`."""


def join_processes(coordinator: str | None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Join the processes of a training.

    Each of them calls this before anything else that uses JAX.

    Args:
      coordinator: ``HOST:PORT`` of process 0; "auto" where JAX finds the processes itself (Slurm, Open MPI, Cloud TPU,
        Kubernetes); None for one process.
      num_processes: their number.
      process_id: this process's number, from 0.

    Raises:
      InputError: an option is missing, or the processes do not come together.
    """
    if coordinator is None:
        if num_processes is not None or process_id is not None:
            raise InputError("num_processes and process_id go with a coordinator, HOST:PORT of process 0.")
        return
    fits = num_processes is not None and process_id is not None and 0 <= process_id < num_processes
    if coordinator != "auto" and not (fits and ":" in coordinator):
        raise InputError(
            "several processes need coordinator HOST:PORT, num_processes, and process_id from 0 to num_processes - 1, "
            f"not {coordinator!r}, {num_processes} and {process_id}."
        )
    address = None if coordinator == "auto" else coordinator
    try:
        jax.distributed.initialize(address, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the processes of the training do not come together: {error}") from error


def parse_mesh(mesh: str | Mapping[str, int] | Mesh) -> Mesh:
    """Return a mesh.

    Args:
      mesh: ``"data=4,model=2"``, the same as a mapping from axis to size, or a mesh. One size may be -1: all remaining
        devices.

    Raises:
      InputError: it cannot be read, has no axis ``data``, or needs another number of devices than there are.
    """
    if isinstance(mesh, Mesh):
        found = mesh
    else:
        axes = _axes(mesh) if isinstance(mesh, str) else {str(name): size for name, size in mesh.items()}
        count = len(jax.devices())
        known = math.prod(size for size in axes.values() if size != -1)
        sizes = [count // known if size == -1 else size for size in axes.values()] if known > 0 else []
        free = sum(size == -1 for size in axes.values())
        if free > 1 or not sizes or min(sizes) < 1 or math.prod(sizes) != count:
            raise InputError(
                f"the mesh {mesh_text(axes)} does not have the {count} devices of this training. The product of its "
                "sizes is their number; one size may be -1."
            )
        found = jax.make_mesh(tuple(sizes), tuple(axes), axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
    if DATA_AXIS not in found.shape:
        raise InputError(f"the mesh {mesh_text(found)} has no axis {DATA_AXIS!r} to shard batches over.")
    return found


def _axes(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in text.split(","):
        name, _, size = (part.strip() for part in item.partition("="))
        if not name.isidentifier() or name in found or not re.fullmatch(r"-1|\d+", size):
            raise InputError(f"a mesh is axes and their sizes, as in data=4,model=2; not {text!r}.")
        found[name] = int(size)
    return found


def mesh_text(mesh: str | Mapping[str, int] | Mesh) -> str:
    """Return a mesh's axes and sizes as text, as `parse_mesh` takes it."""
    if isinstance(mesh, str):
        return mesh
    return ",".join(f"{name}={size}" for name, size in getattr(mesh, "shape", mesh).items())


def parse_rule(rule: str) -> tuple[re.Pattern[str], PartitionSpec]:
    """Return the pattern and the partition of a rule such as ``kernel$=None,model``.

    There is an entry per axis of a param, from the first: a mesh axis, several joined by ``+``, or ``None``. Further
    axes are not split.

    Raises:
      InputError: it cannot be read.
    """
    pattern, equals, entries = rule.rpartition("=")
    if not equals or not pattern:
        raise InputError(f"a sharding rule is REGEX=AXIS,AXIS,... as in 'kernel$=None,model'; not {rule!r}.")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"the sharding rule {rule!r} has no regular expression before '=': {error}.") from error
    names = [tuple(part.strip() for part in entry.split("+")) for entry in entries.split(",")] if entries else []
    spec = [None if name in (("None",), ("",)) else name if len(name) > 1 else "".join(name) for name in names]
    return compiled, PartitionSpec(*spec)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the arrays of a training are.

    Attributes:
      mesh: the devices.
      rules: pairs of a pattern and the partition of params whose names have it; the first match counts.
      fully_sharded: whether other params are split over the data axis, along their largest divisible axis.
    """

    mesh: Mesh
    rules: tuple[tuple[re.Pattern[str], PartitionSpec], ...] = ()
    fully_sharded: bool = False

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of arrays that every device holds."""
        return NamedSharding(self.mesh, PartitionSpec())

    def batch_sharding(self, size: int) -> NamedSharding:
        """Return the sharding of a batch of ``size`` examples.

        A batch that the data axis does not divide, such as the last of an epoch, is replicated: results are the same.
        """
        divisible = size % self.mesh.shape[DATA_AXIS] == 0
        return NamedSharding(self.mesh, PartitionSpec(DATA_AXIS)) if divisible else self.replicated

    def check_split(self, batch_size: int, microbatches: int) -> None:
        """Warn if the data axis does not divide the parts of a batch.

        Each device would compute all of them.
        """
        size = batch_size // microbatches
        if size % self.mesh.shape[DATA_AXIS]:
            warnings.warn(
                f"the mesh {mesh_text(self.mesh)} does not split parts of {size} examples: every device computes all "
                f"of them. Choose a batch size whose parts are multiples of {self.mesh.shape[DATA_AXIS]}.",
                stacklevel=3,
            )

    def place_batch(self, batch: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Return a batch on the devices.

        Args:
          batch: dict of arrays (n, ...), equal on all processes.
        """
        return {name: placed(value, self.batch_sharding(len(value))) for name, value in batch.items()}

    def place_share(self, batch: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Return a batch on the devices, of which each process holds its share.

        Args:
          batch: dict of arrays (n / processes, ...), the examples of this process.

        Raises:
          InputError: the data axis does not divide the batch, or does not run over the processes.
        """
        count = jax.process_count()
        found = {}
        for name, value in batch.items():
            shape = (len(value) * count, *np.shape(value)[1:])
            sharding = self.batch_sharding(shape[0])
            if count > 1 and (sharding.is_fully_replicated or self.mesh.shape[DATA_AXIS] % count):
                raise InputError(
                    f"a batch of {shape[0]} examples cannot be split over {count} processes and the mesh "
                    f"{mesh_text(self.mesh)}: the size of the axis {DATA_AXIS!r} is a multiple of the number of "
                    "processes, and divides the batch size."
                )
            found[name] = jax.make_array_from_process_local_data(sharding, np.asarray(value), shape)
        return found

    def weight_shardings(self, weights: PyTree) -> PyTree:
        """Return the sharding of each weight of a model.

        Args:
          weights: `ModelWeights` of arrays or shapes. Names are paths within a part, with slashes.

        Raises:
          InputError: a rule does not fit a param, names no axis of the mesh, or matches no param.
        """
        unused = {pattern.pattern for pattern, _ in self.rules}
        names: list[str] = []

        def sharding(path: Any, leaf: Any) -> NamedSharding:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            names.append(name)
            for pattern, spec in self.rules:
                if pattern.search(name):
                    unused.discard(pattern.pattern)
                    return self._checked(name, np.shape(leaf), spec)
            spec = self._split_largest(np.shape(leaf)) if self.fully_sharded else PartitionSpec()
            return NamedSharding(self.mesh, spec)

        found = type(weights)(*(jax.tree.map_with_path(sharding, part) for part in weights))
        if unused:
            raise InputError(f"the sharding rule {min(unused)!r} matches no param; there are {names[:20]}.")
        return found

    def _checked(self, name: str, shape: tuple[int, ...], spec: PartitionSpec) -> NamedSharding:
        try:
            if len(spec) > len(shape):
                raise ValueError(f"{len(spec)} entries for {len(shape)} axes")
            sharding = NamedSharding(self.mesh, spec)
            sharding.shard_shape(shape)
        except ValueError as error:
            raise InputError(
                f"the sharding {tuple(spec)} does not fit the param {name!r} of shape {list(shape)} on the mesh "
                f"{mesh_text(self.mesh)}: each entry is None or an axis of the mesh whose size divides the "
                "param's."
            ) from error
        return sharding

    def _split_largest(self, shape: tuple[int, ...]) -> PartitionSpec:
        count = self.mesh.shape[DATA_AXIS]
        divisible = [axis for axis, size in enumerate(shape) if size and size % count == 0]
        if not divisible:
            return PartitionSpec()
        largest = max(divisible, key=lambda axis: shape[axis])
        return PartitionSpec(*(DATA_AXIS if axis == largest else None for axis in range(len(shape))))

    def optimizer_shardings(
        self, optimizer: optax.GradientTransformation, trainable: PyTree, shardings: PyTree
    ) -> PyTree:
        """Return the shardings of an optimizer's state.

        A param's statistics are split like the param.

        Args:
          optimizer: the optimizer.
          trainable: the params, arrays or shapes.
          shardings: those of the params.
        """

        def fitting(leaf: Any, param: Any, sharding: NamedSharding) -> NamedSharding:
            # Some statistics have another shape than their param.
            return sharding if leaf.shape == param.shape else self.replicated

        return optax.tree_utils.tree_map_params(
            optimizer,
            fitting,
            jax.eval_shape(optimizer.init, trainable),
            trainable,
            shardings,
            transform_non_params=lambda leaf: self.replicated,
        )

    def gathered(self, weights: PyTree, shardings: PyTree) -> PyTree:
        """Return weights without a split over the data axis, inside a jitted function.

        Params that are fully sharded are gathered one by one where they are used, and XLA reduces and scatters their
        gradients.
        """

        def gather(leaf: Any, sharding: NamedSharding) -> Any:
            spec = [_without_data(entry) for entry in sharding.spec]
            if spec == list(sharding.spec):
                return leaf
            return jax.lax.with_sharding_constraint(leaf, NamedSharding(self.mesh, PartitionSpec(*spec)))

        return jax.tree.map(gather, weights, shardings)


def _without_data(entry: Any) -> Any:
    names = tuple(name for name in (entry if isinstance(entry, tuple) else (entry,)) if name not in (None, DATA_AXIS))
    return None if not names else names[0] if len(names) == 1 else names


def weight_names(tree: PyTree) -> list[str]:
    """Return the names of a model's weights, paths with slashes."""
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)]


def on_host(tree: PyTree) -> PyTree:
    """Return arrays as NumPy arrays.

    Those that are split over processes are gathered, which all processes call.
    """

    def gather(leaf: Any) -> np.ndarray:
        if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
        return np.asarray(leaf)

    return jax.tree.map(gather, tree)


def make_placement(
    mesh: str | Mapping[str, int] | Mesh | None, sharding: Sharding = "replicated", shard: Sequence[str] = ()
) -> Placement | None:
    """Return the placement that options describe; None without a mesh.

    Args:
      mesh: see `parse_mesh`.
      sharding: one of `SHARDINGS`, of params that no rule matches; or rules, see `parse_rule`: one, several, or a
        mapping from patterns to partitions.
      shard: rules; the first that matches counts.

    Raises:
      InputError: an option cannot be read, or does not go with the others.
    """
    rules = [parse_rule(rule) for rule in shard]
    if isinstance(sharding, Mapping):
        rules += [_pair(pattern, spec) for pattern, spec in sharding.items()]
    elif not isinstance(sharding, str) or "=" in sharding:
        rules += [parse_rule(rule) for rule in ([sharding] if isinstance(sharding, str) else sharding)]
    elif sharding not in SHARDINGS:
        raise InputError(f"no sharding {sharding!r}; there are {', '.join(SHARDINGS)}, and rules.")
    if mesh is None:
        if rules or sharding == "fsdp":
            raise InputError("sharding and shard go with a mesh, as in mesh='data=8'.")
        return None
    return Placement(parse_mesh(mesh), tuple(rules), sharding == "fsdp")


def _pair(pattern: str, spec: PartitionSpec | str) -> tuple[re.Pattern[str], PartitionSpec]:
    found, parsed = parse_rule(f"{pattern}={spec if isinstance(spec, str) else None}")
    return found, parsed if isinstance(spec, str) else spec


def sharding_json(sharding: Sharding) -> Any:
    """Return a sharding as JSON, for records of a training."""
    if isinstance(sharding, Mapping):
        return {pattern: str(spec) for pattern, spec in sharding.items()}
    return sharding if isinstance(sharding, str) else list(sharding)
