"""The driver: draw inputs, run both sides, compare, find the first bad node."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
from tensorflow.python.util import _pywrap_util_port

from tf2jax_lite.calling.names import accepted_names, match_arrays
from tf2jax_lite.calling.structures import TensorArgument
from tf2jax_lite.lowering import Program
from tf2jax_lite.support.command_options import VerificationOptions
from tf2jax_lite.support.errors import ExportError, InputError
from tf2jax_lite.support.limits import check_bytes
from tf2jax_lite.support.options import takes

from .artifacts import Artifact
from .bisection import bisect as bisect_target
from .compare import OutputComparison, compare_arrays, failed, random_results, varying_values
from .gradients import compare_gradients
from .index_ranges import Range, index_ranges
from .node_data import reject_other_models, write_node_data
from .report import write_report
from .repro_script import write_repro
from .results import CaseComparison, SignatureComparison, Verification
from .roundoff_verdict import RoundoffCheck
from .runners import JaxRunner, named, run_tf, time_both
from .targets import Source, Target, convert_source, find_sources

_Values: TypeAlias = tuple[list[np.ndarray], dict[str, np.ndarray]]
"""Results, and variables by name, after one call."""


@dataclasses.dataclass(frozen=True)
class _Context:
    """The arguments of `verify` that all cases need."""

    given: VerificationOptions
    inputs: Mapping[str, Any]
    split_host: bool
    progress: Callable[[str], None]


@takes(VerificationOptions)
def verify(
    model: Any,
    artifact: str | os.PathLike[str] | None = None,
    *,
    signatures: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    backends: Sequence[str] = ("stablehlo",),
    ends: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
    split_host: bool = False,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda step: None,
    **options: Any,
) -> Verification:
    """Compare a model in JAX with TensorFlow, and find the first differing node.

    Args:
      model: a path (SavedModel directory, ``.keras``, ``.h5``, ``.pb``), a restored SavedModel, a Keras model, a
        ``tf.function``, a ConcreteFunction, or a callable.
      artifact: the directory of an artifact of the model, compared with TensorFlow as well. If it was trained since,
        and ``model`` is a path, TensorFlow runs the model with the artifact's weights.
      signatures: names of signatures; all by default.
      tags: of a SavedModel, which MetaGraph.
      inputs: arrays by input name; drawn from the signature where not given.
      backends: of the artifact, which to compare; ``"source"`` runs its Python code: for artifacts that you trust.
      ends: of a frozen graph, names of inputs and of outputs.
      split_host: leave strings, decoders and tables in front of the model in TensorFlow, and compare the results of the
        core with those of the whole model; default if the artifact was converted so.
      args: positional arguments to trace a callable with.
      kwargs: keyword arguments to trace a callable with.
      progress: called with the name of each step as it begins.
      **options: of `VerificationOptions`.

    Raises:
      InvalidModelError: the model cannot be read, or has no such signature.
      InputError: a given input or an option does not fit.
      ExportError: the artifact is damaged.

    Example:
      >>> found = tf2jax.verify(model, args=[tf.TensorSpec([None, 3])], grad=True)
      >>> print(found)
      1 signature agrees
    """
    given = VerificationOptions(**options)
    if not given.seeds or not given.batch_sizes or min(*given.seeds, *given.batch_sizes, 0) < 0:
        raise InputError("seeds and batch sizes are not empty, and neither is negative")
    if given.node_data is not None:
        reject_other_models(model)
        if given.bisect is False:
            raise InputError("node data need the comparison node by node, which bisect=False leaves out")
        given = given.replace(bisect=True)
    progress("load")
    sources = find_sources(model, signatures, tags, train=given.train, args=args, kwargs=kwargs, ends=ends)
    loaded = None if artifact is None else Artifact(Path(artifact), backends)
    split = split_host or (loaded is not None and loaded.is_split)
    if loaded is not None and not any(source.name in loaded.signatures for source in sources):
        raise InputError(
            f"{os.fspath(artifact or '')} has none of the functions {', '.join(s.name for s in sources)}; it has "
            f"{', '.join(loaded.signatures)}, so it was converted from another model, or other signatures"
        )
    context = _Context(given, inputs or {}, split, progress)
    found = [_signature(source, context, loaded) for source in sources]
    script = None if given.repro is None else _repro(found, Path(given.repro), given.rtol, progress)
    described = os.fspath(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__
    result = Verification(
        described, found, None if artifact is None else os.fspath(artifact), None if script is None else str(script)
    )
    if given.node_data is not None:
        progress("write node data")
        write_node_data(Path(model), tags, found, Path(given.node_data))
    if given.report is not None:
        progress("write the report")
        write_report(result, Path(given.report))
    return result


def _repro(
    found: Sequence[SignatureComparison], folder: Path, rtol: float | None, progress: Callable[[str], None]
) -> Path | None:
    """Write the first differing node that can stand by itself as a script."""
    for result in found:
        for suspect in result.bisection.suspects if result.bisection is not None else ():
            progress("write a reproduction")
            try:
                return write_repro(suspect, folder, rtol)
            except ExportError as reason:
                result.notes.append(str(reason))
    return None


def _signature(source: Source, context: _Context, artifact: Artifact | None) -> SignatureComparison:
    context.progress(f"convert {source.name}")
    try:
        target = convert_source(source, split_host=context.split_host)
    except Exception as error:  # the verdict on a signature that does not convert is its error
        return SignatureComparison(source.name, [], _text(error))
    if artifact is not None and source.path is not None:
        if trained := artifact.trained_values():
            target = target.with_values(trained)
        elif seeds := artifact.seeds():
            target = target.with_seeds(seeds)
    return _Comparison(target, context, artifact).run()


class _Comparison:
    """All cases of one signature."""

    def __init__(self, target: Target, context: _Context, artifact: Artifact | None):
        program = target.converted.program
        self._target = target
        self._options, self._progress = context.given, context.progress
        self._artifact = artifact
        self._arguments = (target.converted if target.host is None else target.host).interface.tensors()
        self._given = given_values(target.name, self._arguments, context.inputs)
        self._ranges = index_ranges(program.graph) if target.host is None else {}
        self._runner = JaxRunner(target)
        self._random, self._random_variables = random_results(program)
        self._notes: list[str] = []

    def run(self) -> SignatureComparison:
        options, name = self._options, self._target.name
        cases: list[CaseComparison] = []
        bisection, error, flat, failing = None, "", None, None
        for seed, batch in self._cases():
            self._progress(f"{name}: seed {seed}" + ("" if batch is None else f", batch {batch}"))
            raw, arrays = self._inputs(seed, batch)
            try:
                flat = self._target.prepared(self._arguments, raw)
                given = arrays
                if self._target.host is not None:
                    arrays = {t.name: x for t, x in zip(self._target.host.cut, flat, strict=True)}
                reference = run_tf(self._target, flat)
            except Exception as problem:
                error = f"TensorFlow itself fails on these inputs (give others with inputs=): {_text(problem)}"
                break
            try:
                outputs = self._compare(flat, arrays, reference, seed)
                if self._target.host is not None and self._artifact is not None:
                    outputs += [
                        compare_arrays(name, arrays[name], value, options.rtol, kind="input", against="host")
                        for name, value in self._artifact.host_inputs(self._target.name, given).items()
                    ]
            except ExportError:  # a damaged artifact is no verdict on the model
                raise
            except Exception as problem:  # the verdict on a signature that does not run is its error
                error, failing = _text(problem), failing or (flat, seed, batch)
                break
            cases.append(CaseComparison(seed, batch, outputs))
            if failing is None and any(not o.ok and o.kind != "gradient" and o.against == "jax" for o in outputs):
                failing = (flat, seed, batch)
        if options.bisect is not False and (failing is not None or options.bisect) and flat is not None:
            self._progress(f"{name}: node by node")
            chosen, seed, batch = failing or (flat, *self._cases()[-1])
            bisection = self._bisected(chosen, seed, batch)
            if bisection is not None:
                bisection = dataclasses.replace(bisection, differs=failing is not None)
        if _pywrap_util_port.IsMklEnabled() and not all(case.ok for case in cases):
            self._notes.append(
                "TensorFlow ran oneDNN's kernels, some of which compute wrongly; set TF_ENABLE_ONEDNN_OPTS=0 before it "
                "is imported, and compare again"
            )
        if self._runner.mode == "op by op" and not error:
            self._notes.append("runs outside jax.jit only: shapes depend on values")
        seconds = {}
        if options.report is not None and flat is not None and not error:
            self._progress(f"{name}: time")
            with jax.enable_x64(True):
                seconds = time_both(self._target, self._runner, flat)
        ops = _histogram(self._target.converted.program)
        return SignatureComparison(name, _worst(cases), error, cases, bisection, seconds, ops, self._notes)

    def _cases(self) -> list[tuple[int, int | None]]:
        drawn = {n: a for n, a in self._arguments.items() if n not in self._given}
        seeds = list(self._options.seeds)
        if not drawn and not self._options.grad:
            return [(seeds[0], None)]
        batches: list[int | None] = [None]
        # Where some inputs are given, the others have their batch.
        if not self._given and any(a.shape and a.shape[0] is None for a in drawn.values()):
            batches = list(self._options.batch_sizes)
        return [(seed, batch) for seed in seeds for batch in batches]

    def _inputs(self, seed: int, batch: int | None) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        sizes = [v.shape[0] for n, v in self._given.items() if v.ndim and self._arguments[n].shape]
        size = batch if batch is not None else (*sizes, *self._options.batch_sizes)[0]
        arrays = {**draw(self._arguments, self._ranges, seed, size), **self._given}
        flat: list[Any] = [None] * len(self._arguments)
        for name, spec in self._arguments.items():
            flat[spec.index] = arrays[name]
        return flat, {name: arrays[name] for name in self._arguments}

    def _compare(
        self,
        flat: Sequence[np.ndarray],
        arrays: Mapping[str, np.ndarray],
        reference: _Values,
        seed: int,
    ) -> list[OutputComparison]:
        target, options = self._target, self._options
        expected, variables = reference
        roundoff_check = RoundoffCheck(target, flat)
        with jax.enable_x64(True):
            results, state = self._runner(flat, seed)
        random, random_variables = self._drawn(flat, seed, reference, (results, state))
        wanted, actual = named(target, expected), named(target, results)
        outputs = [
            roundoff_check(compare_arrays(n, e, actual[n], options.rtol, values=n not in random), e, actual[n])
            for n, e in wanted.items()
        ]
        if not options.train:
            variables = {}
        for name, value in variables.items():
            comparable = name not in random_variables
            found = compare_arrays(name, value, state[name], options.rtol, kind="variable", values=comparable)
            outputs.append(roundoff_check(found, value, state[name]))
        if options.grad:
            outputs += self._gradients(flat, seed, drawn=bool(random))
        if self._artifact is not None:
            fixed = {n: v for n, v in variables.items() if n not in random_variables}
            outputs += self._artifact.compare(
                target.name, arrays, wanted, fixed, options.rtol, random, self._notes, roundoff_check
            )
        return outputs

    def _drawn(
        self, flat: Sequence[np.ndarray], seed: int, expected: _Values, actual: _Values
    ) -> tuple[set[str], set[str]]:
        """Return names of results and variables that vary with random numbers here."""
        # seed: of JAX's first call.
        # expected: results and variables of TensorFlow's first call.
        results = {n for n, is_random in named(self._target, self._random).items() if is_random}
        names = {("result", n) for n in results} | {("variable", n) for n in self._random_variables}

        def by_name(values: _Values) -> dict[tuple[str, str], np.ndarray]:
            found = {("result", n): v for n, v in named(self._target, values[0]).items()}
            return found | {("variable", n): v for n, v in values[1].items()}

        def jax_again(number: int) -> dict[tuple[str, str], np.ndarray]:
            with jax.enable_x64(True):
                return by_name(self._runner(flat, seed + number))

        drawn = varying_values(names, by_name(actual), jax_again)
        drawn |= varying_values(names - drawn, by_name(expected), lambda _: by_name(run_tf(self._target, flat)))
        return {n for kind, n in drawn if kind == "result"}, {n for kind, n in drawn if kind == "variable"}

    def _gradients(self, flat: Sequence[np.ndarray], seed: int, *, drawn: bool) -> list[OutputComparison]:
        if drawn:
            note = "gradients are not compared: the function draws random numbers"
            if note not in self._notes:
                self._notes.append(note)
            return []
        try:
            with jax.enable_x64(True):
                return compare_gradients(self._target, flat, seed, self._options.rtol)
        except Exception as error:  # results are compared nonetheless
            return [failed("all gradients", _text(error), kind="gradient")]

    def _bisected(self, flat: Sequence[np.ndarray], seed: int, batch: int | None) -> Any:
        try:
            with jax.enable_x64(True):
                timing = self._options.node_data is not None
                found = bisect_target(self._target, flat, rtol=self._options.rtol, seed=seed, timing=timing)
        except Exception as error:  # without a bisection, the verdict stays as it is
            self._notes.append(f"bisection failed: {_text(error)}")
            return None
        return dataclasses.replace(found, inputs=f"seed {seed}" + ("" if batch is None else f", batch {batch}"))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _worst(cases: Sequence[CaseComparison]) -> list[OutputComparison]:
    """Return each output's worst case."""
    worst: dict[tuple[str, str, str], OutputComparison] = {}
    for case in cases:
        for output in case.outputs:
            key = (output.against, output.kind, output.name)
            if key not in worst or _badness(output) > _badness(worst[key]):
                worst[key] = output
    return list(worst.values())


def _badness(output: OutputComparison) -> tuple[bool, float]:
    return not output.ok, float("inf") if math.isnan(output.max_rel_error) else output.max_rel_error


def _histogram(program: Program) -> dict[str, int]:
    """Return the op counts of the functions that the main function calls."""
    counts: collections.Counter[str] = collections.Counter()
    pending, seen = [program.graph.main], {program.graph.main.name}
    while pending:
        for step in program.plan(pending.pop()).steps:
            counts[step.node.op] += 1
            for ref in step.node.functions:
                if ref.name not in seen:
                    seen.add(ref.name)
                    pending.append(program.function(ref.name))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


# Size of unknown dimensions other than the batch: small, but large enough for convolutions of an image.
_UNKNOWN = 4
_UNKNOWN_IMAGE = 32
# Exclusive upper bound of integers that index no table.
_SMALL = 4


def given_values(name: str, arguments: Mapping[str, TensorArgument], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return given arrays by argument; `match_arrays` says how they may be named."""
    chosen, left = match_arrays(arguments, given)
    found: dict[str, np.ndarray] = {}
    for path, key in chosen.items():
        spec, value = arguments[path], np.asarray(given[key])
        shape = spec.shape
        if shape is not None and (
            len(shape) != value.ndim or any(d is not None and d != v for d, v in zip(shape, value.shape, strict=True))
        ):
            raise InputError(f"signature {name!r}: input {path!r} has shape {value.shape}, expected {list(shape)}.")
        if spec.dtype is None:
            found[path] = _strings(value)
        elif value.dtype.kind in "SUO":
            raise InputError(f"signature {name!r}: input {path!r} has dtype {value.dtype}, expected {spec.dtype}.")
        else:
            found[path] = value.astype(spec.dtype)
    if left:
        names = "; ".join(" or ".join(map(repr, accepted_names(path, spec))) for path, spec in arguments.items())
        raise InputError(f"signature {name!r} has no input(s) {', '.join(left)}. The names are {names}.")
    return found


def draw(
    arguments: Mapping[str, TensorArgument], ranges: Mapping[int, Range], seed: int, batch: int
) -> dict[str, np.ndarray]:
    """Draw inputs.

    Floats in [0, 1), integers in the range of the indexed axis, else in [0, 4), strings of some words.

    Args:
      ranges: of integer arguments, by index; see `tf2jax_lite.verification.index_ranges.index_ranges`.
      batch: size of an unknown first dimension.
    """
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for name, spec in sorted(arguments.items()):
        shape = _shape(spec, batch)
        dtype = spec.dtype
        check_bytes(shape, 8, f"the input drawn for {name!r}", option="max_input_bytes")  # numpy draws in 64 bits
        if dtype is None:
            out[name] = _words(rng, shape)
        elif dtype.kind == "b":
            out[name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            known = ranges.get(spec.index)
            limit = _SMALL if known is None else min(known.limit, int(np.iinfo(dtype).max))
            out[name] = rng.integers(0, max(limit, 1), shape).astype(dtype)
        elif dtype.kind == "c":
            out[name] = (rng.random(shape) + 1j * rng.random(shape)).astype(dtype)
        else:
            out[name] = np.asarray(rng.random(shape)).astype(dtype)
    return out


def _words(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    out = np.empty(shape, object)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    for i in np.ndindex(*shape):
        out[i] = b" ".join(rng.choice(letters, rng.integers(1, 9)).tobytes() for _ in range(rng.integers(1, 6)))
    return out


def _shape(spec: TensorArgument, batch: int) -> list[int]:
    shape = spec.shape or ()
    # A batch of images: several unknown dimensions, and channels.
    floating = spec.dtype is not None and spec.dtype.kind not in "iub"
    other = _UNKNOWN_IMAGE if len(shape) >= 4 and floating else _UNKNOWN
    return [(batch if i == 0 else other) if d is None else d for i, d in enumerate(shape)]


def _strings(value: np.ndarray) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = [v.encode() if isinstance(v, str) else bytes(v) for v in value.reshape(-1)]
    out.reshape(-1)[:] = flat
    return out
