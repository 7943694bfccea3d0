"""Results: the verdict by signature, case and output; the nodes that differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir

from .compare import OutputComparison, is_float


@dataclasses.dataclass(frozen=True)
class NodeError:
    """The error of both sides after one node; in loops, of the worst iteration.

    Attributes:
      order: position in topological order.
      path: names of the call nodes that lead to it, and its own.
      op: its op.
      error: largest relative error of its results, each side on its own values.
      input_error: the same of its inputs.
      suspect: whether the node itself is at fault.
      node: its own name.
      calls: names of the call nodes that lead to it.
      function: the function that it stands in.
      seconds: time of the node alone, compiled, in JAX on the default device, over all iterations; None if it was not
        measured.
    """

    order: int
    path: str
    op: str
    error: float
    input_error: float
    suspect: bool
    node: str = ""
    calls: tuple[str, ...] = ()
    function: str = ""
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A node whose results differ although its inputs do not (or much less).

    Attributes:
      node, op: its name and op.
      path: names of the call nodes that lead to it, and its own.
      function: the function that it stands in.
      attributes: by name, as text.
      inputs: for each input name, dtype, shape, smallest and largest value, number of NaN.
      error: relative error of its results, each side on its own values.
      input_error: the same of its inputs.
      own_error: relative error when JAX runs it on TensorFlow's inputs; None if that cannot be.
      iteration: of the loops around it, outermost first.
      location: the Python line that made it, if TensorFlow recorded that.
      problem: the error that it raised in JAX, if it did.
    """

    node: str
    op: str
    path: str
    function: str
    attributes: dict[str, str]
    inputs: list[dict[str, Any]]
    error: float
    input_error: float
    own_error: float | None
    iteration: list[int]
    location: str | None
    problem: str
    step: Any = dataclasses.field(default=None, repr=False, compare=False)
    arrays: list[Any] = dataclasses.field(default_factory=list, repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return the object as plain JSON data."""
        left_out = ("step", "arrays")
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}


@dataclasses.dataclass(frozen=True)
class Bisection:
    """Result of a lockstep evaluation.

    Attributes:
      suspects: the first nodes at fault, in topological order.
      nodes: every node whose results could be compared.
      error: largest relative error of the results.
      not_run: nodes that TensorFlow cannot run individually, and why; later nodes use JAX's values on both sides.
      inputs: description of the inputs.
      differs: whether results of the whole function differ.
    """

    suspects: list[Suspect]
    nodes: list[NodeError]
    error: float
    not_run: dict[str, str]
    inputs: str = ""
    differs: bool = False

    @property
    def summary(self) -> str:
        """One line."""
        if self.suspects:
            first = self.suspects[0]
            return f"first differing node: {first.path} ({first.op})"
        if not self.nodes:
            return "no node could be compared"
        worst = max(self.nodes, key=lambda n: n.error - n.input_error)
        if self.error:
            return (
                f"each node agrees with TensorFlow by itself; the error grows most at {worst.path} ({worst.op}), "
                f"from {worst.input_error:.2g} to {worst.error:.2g}"
            )
        if self.differs:
            return "node by node both sides are equal: the difference arises only when the whole function is compiled"
        return "both sides are equal at every node"

    def _repr_html_(self) -> str:
        """Return a chart of errors by node, and the suspects, for a notebook."""
        from .report import html_parts

        return html_parts(self)

    def as_json(self) -> dict[str, Any]:
        """Return the object as plain JSON data."""
        return {
            "summary": self.summary,
            "suspects": [s.as_json() for s in self.suspects],
            "error": self.error,
            "inputs": self.inputs,
            "not_run": self.not_run,
            "nodes": [dataclasses.asdict(n) for n in self.nodes],
        }


def short_attributes(node: ir.Node) -> dict[str, str]:
    """Return attributes as text, without private ones and those inputs show."""
    found = {}
    for name, value in sorted(node.attrs.items()):
        if name in node.implied or name.startswith("_"):
            continue
        if isinstance(value, np.ndarray):
            text = repr(value.tolist()) if value.size <= 8 else f"{value.dtype}{list(value.shape)}"
        else:
            text = str(value)
        found[name] = text if len(text) <= 200 else text[:197] + "..."
    return found


def describe_inputs(node: ir.Node, tensors: Sequence[Any]) -> list[dict[str, Any]]:
    """Return name, dtype, shape and value range of a node's inputs."""
    found = []
    for ref, tensor in zip(node.inputs, tensors, strict=True):
        entry: dict[str, Any] = {"tensor": str(ref)}
        if tensor is not None:
            entry |= {"dtype": tensor.dtype.name, "shape": [int(d) for d in tensor.shape]}
        if tensor is not None and tensor.dtype.name not in ("resource", "variant", "string"):
            entry |= _range(tensor.numpy())
        found.append(entry)
    return found


def _range(array: np.ndarray) -> dict[str, Any]:
    array = np.asarray(array)
    if array.size == 0 or array.dtype.kind in "cb":
        return {}
    if not is_float(array.dtype):
        return {"min": int(array.min()), "max": int(array.max())}
    double = array.astype(np.float64)
    finite = double[np.isfinite(double)]
    out: dict[str, Any] = {"nan": int(np.isnan(double).sum()), "inf": int(np.isinf(double).sum())}
    if finite.size:
        out |= {"min": float(finite.min()), "max": float(finite.max())}
    return out


@dataclasses.dataclass(frozen=True)
class CaseComparison:
    """One call of a signature on both sides.

    Attributes:
      seed: of the drawn inputs and projections.
      batch: size of unknown first dimensions; None if all inputs were given.
      outputs: one comparison per result, variable and gradient.
    """

    seed: int
    batch: int | None
    outputs: list[OutputComparison]

    @property
    def ok(self) -> bool:
        """Return whether everything agrees."""
        return all(o.ok for o in self.outputs)


@dataclasses.dataclass(frozen=True)
class SignatureComparison:
    """One signature: its outputs compared, or the error that kept it from running.

    Attributes:
      signature: its name.
      outputs: the worst case of each output, gradient and variable.
      error: why it does not convert or run.
      cases: every call.
      bisection: the nodes that differ, if requested or needed.
      seconds: median seconds of a call, ``tensorflow`` and ``jax``, if it was measured.
      ops: how often each op stands in the graph.
      notes: about values that were not compared.
    """

    signature: str
    outputs: list[OutputComparison]
    error: str = ""
    cases: list[CaseComparison] = dataclasses.field(default_factory=list)
    bisection: Bisection | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    ops: dict[str, int] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether everything agrees."""
        return not self.error and all(o.ok for o in self.outputs)

    def _repr_html_(self) -> str:
        """Return outputs, nodes, times and ops for a notebook."""
        from .report import html_parts

        return html_parts(self)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON data."""
        return {
            "signature": self.signature,
            "ok": self.ok,
            "error": self.error,
            "outputs": [_plain(o.as_json()) for o in self.outputs],
            "cases": [
                {
                    "seed": c.seed,
                    "batch": c.batch,
                    "ok": c.ok,
                    "outputs": [_plain(o.as_json()) for o in c.outputs],
                }
                for c in self.cases
            ],
            "bisection": None if self.bisection is None else _plain(self.bisection.as_json()),
            "seconds": self.seconds,
            "ops": self.ops,
            "notes": self.notes,
        }


@dataclasses.dataclass(frozen=True)
class Verification:
    """The comparison of a model with TensorFlow.

    Attributes:
      model: its path, or its type.
      signatures: one comparison per signature.
      artifact: the artifact's path, if one was compared.
      repro: the script that was written, if any.
    """

    model: str
    signatures: list[SignatureComparison]
    artifact: str | None = None
    repro: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether everything agrees."""
        return all(s.ok for s in self.signatures)

    def __str__(self) -> str:
        """Return a line for each signature that does not agree, and the verdict."""
        wrong = [s for s in self.signatures if not s.ok]
        lines = [f"{s.signature}: {_reason(s)}" for s in wrong]
        count, agreeing = len(self.signatures), len(self.signatures) - len(wrong)
        if wrong:
            lines.append(f"{agreeing} of {count} signatures agree")
        else:
            lines.append("1 signature agrees" if count == 1 else f"{count} signatures agree")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the verdict and the outputs for a notebook."""
        from .report import html_summary

        return html_summary(self)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON data."""
        return {
            "ok": self.ok,
            "model": self.model,
            "artifact": self.artifact,
            "repro": self.repro,
            "signatures": [s.as_json() for s in self.signatures],
        }


def _reason(signature: SignatureComparison) -> str:
    if signature.error:
        return signature.error.partition("\n")[0]
    return ", ".join(
        f"{o.name} {o.verdict} (max rel error {o.max_rel_error:.3g})" for o in signature.outputs if not o.ok
    )


def _plain(data: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot hold, by text."""
    if isinstance(data, dict):
        return {k: _plain(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(v) for v in data]
    if isinstance(data, float) and not abs(data) < float("inf"):
        return str(data)
    return data
