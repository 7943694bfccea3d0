"""The verdict: per signature, per case, per output."""

from __future__ import annotations

import dataclasses
from typing import Any

from .compare import OutputComparison
from .findings import Bisection

__all__ = ["CaseComparison", "SignatureComparison", "Verification"]


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
    def artefact(self) -> str | None:
        """The earlier name of ``artifact``."""
        return self.artifact

    @property
    def ok(self) -> bool:
        """Return whether everything agrees."""
        return all(s.ok for s in self.signatures)

    def _repr_html_(self) -> str:
        """Return the verdict and the outputs for a notebook."""
        from .report import html_summary

        return html_summary(self)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON data."""
        return {
            "ok": self.ok,
            "model": self.model,
            "artefact": self.artifact,
            "repro": self.repro,
            "signatures": [s.as_json() for s in self.signatures],
        }


def _plain(data: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot hold, by text."""
    if isinstance(data, dict):
        return {k: _plain(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(v) for v in data]
    if isinstance(data, float) and not abs(data) < float("inf"):
        return str(data)
    return data
