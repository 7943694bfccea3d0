"""A function of an artifact, compiled for the shapes of requests before they come."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.structures import OutputRef
from tf2jax_lite.export import program_cache
from tf2jax_lite.export.dimension_syntax import dimension_names, evaluated
from tf2jax_lite.export.execution import compile_function, errors_of_xla
from tf2jax_lite.export.host_part import HostPart, call_host, host_interface, read_host
from tf2jax_lite.export.load import load
from tf2jax_lite.export.metadata import named_signature, read_metadata
from tf2jax_lite.export.reader import fitting_arrays, flat_results
from tf2jax_lite.support.errors import InputError, MissingLibraryError

_log = logging.getLogger("tf2jax_lite")
Arrays = Mapping[str, np.ndarray]


class Tensor(NamedTuple):
    """An array argument or result.

    Attributes:
      name: its name.
      dtype: its dtype; that of objects for texts.
      shape: its sizes; names of symbolic dimensions are text.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Checked:
    """The arrays of a request in the function's dtypes.

    Attributes:
      arrays: by name.
      group: sizes of the symbolic dimensions but the batch's; requests of one group can be joined.
      count: number of examples; None of a function without a batch.
    """

    arrays: Arrays
    group: tuple[int, ...]
    count: int | None


class _Host(NamedTuple):
    """The host part of a function, see `load_host`."""

    function: HostPart
    interface: Interface
    inputs: tuple[Tensor, ...]


def _host_of(folder: Path, metadata: Mapping[str, Any], entry: Mapping[str, Any]) -> _Host | None:
    """Return the host part of a signature, if it has one and TensorFlow is installed."""
    if "host" not in entry:
        return None
    try:
        function = read_host(folder, metadata, entry)
    except MissingLibraryError as error:
        _log.warning("requests have the inputs of the core: %s", error)
        return None
    interface = host_interface(entry)
    inputs = [
        Tensor(name, np.dtype(spec.dtype or object), tuple("?" if d is None else d for d in spec.shape or ()))
        for name, spec in interface.tensors().items()
    ]
    return _Host(function, interface, tuple(inputs))


class ServedFunction:
    """A function of an artifact with a program for each size of its dimensions.

    Attributes:
      name: the signature's name.
      inputs: its arguments; with a host part, those of that.
      has_host: whether requests go through the host part of the artifact, which makes texts numbers.
      outputs: its results.
      batched: names of the results with an entry for each example.
      joins: whether examples are independent, so that batches are joined and padded. Otherwise each request runs alone.
    """

    def __init__(
        self,
        folder: Path,
        signature: str | None,
        *,
        batch_sizes: Sequence[int],
        dimensions: Mapping[str, Sequence[int]],
        backend: str = "stablehlo",
        seed: int = 0,
        cache: bool = True,
    ):
        """Load the function.

        Args:
          folder: the artifact.
          signature: the function; the default one if None.
          batch_sizes: for which it is compiled, ascending.
          dimensions: sizes of the other symbolic dimensions, by name.
          backend: as for `load`.
          seed: of a function that draws random numbers.
          cache: whether to read and store compiled programs.

        Raises:
          ExportError: the artifact is damaged, or has no such function.
          InputError: sizes of a dimension are missing.
        """
        self._metadata = read_metadata(folder)
        self.name, entry = named_signature(self._metadata, signature)
        self._fn, params = load(folder, self.name, backend=backend)
        self._params = jax.device_put(dict(params))
        self._backend, self._seed, self._cache = backend, seed, cache
        self._core_inputs = tuple(Tensor(i["name"], np.dtype(i["dtype"]), tuple(i["shape"])) for i in entry["inputs"])
        self._host = _host_of(folder, self._metadata, entry)
        self.has_host = self._host is not None
        self.inputs = self._core_inputs if self._host is None else self._host.inputs
        results = flat_results(self._fn.interface.outputs).items()
        described = {name: entry["outputs"][ref.index] for name, ref in results if isinstance(ref, OutputRef)}
        self.outputs = tuple(Tensor(n, np.dtype(o["dtype"]), tuple(o["shape"])) for n, o in described.items())
        if odd := [
            t.name for t in (*self._core_inputs, *self.outputs) if t.dtype.kind not in "biuf" and t.dtype.itemsize > 2
        ]:
            raise InputError(f"{folder}: {odd[0]!r} of {self.name!r} is complex, which REST requests cannot hold.")
        self._batch = self._batch_dimension()
        self.joins = self._batch is not None and entry.get("independent") is True
        leading = {t.name: t.shape[0] if t.shape else None for t in self.outputs}
        self.batched = frozenset(n for n, size in leading.items() if self._batch is not None and size == self._batch)
        self._batch_sizes = tuple(batch_sizes) if self._batch is not None else (1,)
        self._others = [d for d in self._dimension_names() if d != self._batch]
        missing = [d for d in self._others if not dimensions.get(d)]
        if missing:
            shapes = ", ".join(f"{t.name} [{', '.join(map(str, t.shape))}]" for t in self._core_inputs)
            raise InputError(
                f"{self.name!r} takes {shapes}, and programs are compiled before requests come. Give the sizes of "
                f"{', '.join(missing)} that requests may have: dimensions={missing[0]}=128."
            )
        self._groups = list(itertools.product(*(sorted(set(dimensions[d])) for d in self._others)))
        self._programs: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._runs = 0

    def _dimension_names(self) -> list[str]:
        sizes = [size for tensor in self._core_inputs for size in tensor.shape if isinstance(size, str)]
        return list(dict.fromkeys(name for size in sizes for name in dimension_names(size)))

    def _batch_dimension(self) -> str | None:
        """Return the name of the first dimension of all inputs, which is no other's."""
        first = {tensor.shape[0] if tensor.shape else None for tensor in self._core_inputs}
        if len(first) != 1 or not isinstance(name := first.pop(), str) or not name.isidentifier():
            return None
        others = [size for tensor in self._core_inputs for size in tensor.shape[1:] if isinstance(size, str)]
        return None if any(name in dimension_names(size) for size in others) else name

    @property
    def number_of_programs(self) -> int:
        """The number of programs that `compile` makes."""
        return len(self._groups) * len(self._batch_sizes)

    def compile(self, progress: Callable[[], None] = lambda: None) -> None:
        """Compile all programs.

        Args:
          progress: called after each.

        Raises:
          ExportError: XLA cannot compile one.
          LimitError: one needs more memory than available.
        """
        for group in self._groups:
            for size in self._batch_sizes:
                shapes = self._shapes(group, size)
                arrays = {t.name: np.zeros(shapes[t.name], t.dtype) for t in self._core_inputs}
                given = fitting_arrays(self._fn.interface, self._fn.taken, arrays)
                self._programs[size, group] = self._program(given)
                self.run([Checked(given, group, size)])  # the first call of a program takes longer
                progress()

    def _program(self, arrays: Arrays) -> Any:
        key = None
        if self._cache and self._backend == "stablehlo" and program_cache.directory() is not None:
            shapes = {name: array.shape for name, array in arrays.items()}
            key = program_cache.program_key(self._metadata, self.name, shapes)
            if (found := program_cache.read_program(key)) is not None:
                return found[0]
        with errors_of_xla():
            compiled = compile_function(self._fn, self._params, arrays, self._key())
        if key is not None:
            program_cache.write_program(key, compiled, self._fn.taken)
        return compiled

    def _key(self) -> Any:
        if not self._fn.needs_key:
            return None
        self._runs += 1
        return jax.random.fold_in(jax.random.key(self._seed), self._runs)

    def _shapes(self, group: tuple[int, ...], size: int) -> dict[str, tuple[int, ...]]:
        """Return the inputs' shapes for sizes of the dimensions."""
        sizes = dict(zip(self._others, group, strict=True)) | ({} if self._batch is None else {self._batch: size})
        return {
            tensor.name: tuple(evaluated(d, sizes) if isinstance(d, str) else d for d in tensor.shape)
            for tensor in self._core_inputs
        }

    def check(self, arrays: Mapping[str, Any], field: Callable[[str], str]) -> Checked:
        """Return the arrays of a request as the function takes them.

        Args:
          arrays: by name.
          field: the field of the request that holds an array, by name.

        Raises:
          InputError: one is missing, there is one too many, or its dtype or shape does not fit.
        """
        names = [tensor.name for tensor in self.inputs]
        takes = f"The model takes {', '.join(map(repr, names))}."
        for name in arrays:
            if name not in names:
                raise InputError(f"{field(name)} is no input of the model. {takes}")
        for name in names:
            if name not in arrays:
                raise InputError(f"the input {name!r} is missing. {takes}")
        if self._host is not None:
            arrays = call_host(self._host.function, self._host.interface, arrays)
        found = fitting_arrays(self._fn.interface, self._fn.taken, arrays)
        count = None
        if self._batch is not None:
            counts = {name: array.shape[0] if array.ndim else 0 for name, array in found.items()}
            count = next(iter(counts.values()))
            for name, other in counts.items():
                if other != count or not count:
                    reason = "examples are missing" if not other else f"{next(iter(counts))!r} has {count} examples"
                    raise InputError(f"{field(name)} has the shape {list(found[name].shape)}; {reason}.")
        for group in self._groups:
            shapes = self._shapes(group, 1 if count is None else count)
            if all(found[name].shape == shape for name, shape in shapes.items()):
                break
        else:
            self._raise_shape(found, count, field)
        if count is not None and not self.joins and count not in self._batch_sizes:
            sizes = ", ".join(map(str, self._batch_sizes))
            raise InputError(
                f"{field(next(iter(found)))} has {count} examples. Examples of this model act on each other, so that a "
                f"request runs alone, with one of the sizes {sizes}."
            )
        return Checked(found, group, count)

    def _raise_shape(self, found: Arrays, count: int | None, field: Callable[[str], str]) -> None:
        """Raise `InputError` for the first array whose shape fits none of the groups."""
        allowed = [self._shapes(group, 1 if count is None else count) for group in self._groups]
        wrong = next(
            (t for t in self._core_inputs if found[t.name].shape not in [s[t.name] for s in allowed]),
            self._core_inputs[0],
        )
        takes = " or ".join(dict.fromkeys(str(list(shapes[wrong.name])) for shapes in allowed[:4]))
        raise InputError(
            f"{field(wrong.name)} has the shape {list(found[wrong.name].shape)}; for {count or 'these'} examples the "
            f"model takes {takes}."
        )

    def run(self, requests: Sequence[Checked]) -> list[dict[str, np.ndarray]]:
        """Return the results of requests of one group, which run as one batch.

        Args:
          requests: one, or several of a function that joins them, with at most as many examples as the largest batch.
        """
        group, counts = requests[0].group, [request.count or 1 for request in requests]
        total = sum(counts)
        size = next(s for s in self._batch_sizes if s >= total) if self._batch is not None else 1
        joined = dict(requests[0].arrays)
        if self.joins and (len(requests) > 1 or size != total):
            for name, first in requests[0].arrays.items():
                joined[name] = np.zeros((size, *first.shape[1:]), first.dtype)
                np.concatenate([request.arrays[name] for request in requests], out=joined[name][:total])
        with errors_of_xla():
            found = flat_results(self._programs[size, group](self._params, joined, self._key()))
        arrays = {tensor.name: np.asarray(found[tensor.name]) for tensor in self.outputs}
        if not self.joins:
            return [arrays]
        ends = list(itertools.accumulate(counts))
        return [
            {name: array[end - n : end] if name in self.batched else array for name, array in arrays.items()}
            for n, end in zip(counts, ends, strict=True)
        ]

    def split(self, request: Checked) -> list[Checked]:
        """Return a request in parts that are no larger than the largest batch."""
        largest = self._batch_sizes[-1]
        if not self.joins or request.count is None or request.count <= largest:
            return [request]
        parts = []
        for start in range(0, request.count, largest):
            arrays = {name: array[start : start + largest] for name, array in request.arrays.items()}
            parts.append(Checked(arrays, request.group, min(largest, request.count - start)))
        return parts

    def joined(self, results: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the results of a request's parts as one."""
        if len(results) == 1:
            return results[0]
        return {
            name: np.concatenate([part[name] for part in results]) if name in self.batched else array
            for name, array in results[0].items()
        }

    @property
    def largest_batch(self) -> int:
        """The number of examples of the largest batch."""
        return self._batch_sizes[-1]
