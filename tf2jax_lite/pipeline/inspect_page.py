"""The description of a model as a page: signatures, ops, and variables by scope."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tf2jax_lite.support.html_page import badge, bars, code, escaped, figures, page, table
from tf2jax_lite.support.text import size_text

from .inspect_model import ModelDescription, SignatureDescription, TensorDescription


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
        body += _signature(signature)
    if found.variables:
        body += _variables(found.variables, noun)
    return page(f"{found.path}: {verdict}", body)


def _signature(signature: SignatureDescription) -> Iterable[str]:
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


def _variables(variables: Sequence[TensorDescription], noun: str) -> Iterable[str]:
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
