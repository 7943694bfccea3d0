"""The pages on porting have every public name of FedJAX and TFF that differs.

`public_names.json` has their public names by module, with the versions of the sources that they were read from.
"""

import dataclasses
import json
import re
from pathlib import Path

import optax
import pytest

from tf2jax_lite import federated

NAMES = json.loads((Path(__file__).parent / "public_names.json").read_text())
DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text() for name in ("federated-migration.md", "developer/porting-names.md")]
PACKAGES = (
    federated,
    federated.aggregators,
    federated.data,
    federated.datasets,
    federated.metrics,
    federated.optimizers,
)
# First names of other expressions on the page: values of the user's program, methods, keys, another library.
VALUES = {"factory", "federated_data", "fn", "metrics", "model", "process", "state"}
VALUES |= {"accumulate", "load_data", "merge", "preprocess_client", "report", "synthetic", "zero"}
VALUES |= {"bits_per_client", "compression_ratio", "distortion", "federated_language", "tf2jax"}


def section(library):
    ported, apart = (re.findall(rf"^## {library}\n(.*?)(?=^## |\Z)", page, re.M | re.S) for page in PAGES)
    assert len(ported) == len(apart) == 1
    return re.sub(r"```.*?```", "", ported[0] + apart[0], flags=re.S)


def spans(text):
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("library", NAMES)
def test_public_names_are_here_or_on_the_page(library):
    named = {word for span in spans(section(library)) for word in re.findall(r"\w+", span)}
    modules = NAMES[library]["names"]
    assert sum(map(len, modules.values())) > 100
    missing = {
        module: [name for name in names if name not in named and not any(hasattr(p, name) for p in PACKAGES)]
        for module, names in modules.items()
    }
    assert not {module: names for module, names in missing.items() if names}


def resolves(name):
    """Return whether a dotted name is public here, in optax or in dataclasses."""
    first, *rest = name.split(".")
    if first == "core":  # needs an extra
        return rest == ["stablehlo"]
    roots = {"optax": (optax,), "dataclasses": (dataclasses,)}.get(first)
    for root in roots or PACKAGES:
        found = root
        for part in rest if roots else [first, *rest]:
            found = getattr(found, part, None)
        if found is not None:
            return True
    return False


@pytest.mark.parametrize("library", NAMES)
def test_counterparts_exist(library):
    rows = [line.split(" | ")[-1] for line in section(library).splitlines() if line.startswith("| `")]
    heads = {match[0] for row in rows for span in spans(row) if (match := re.match(r"[A-Za-z][\w.]*\w(?!\w*=)", span))}
    names = {head for head in heads if head.split(".")[0] not in VALUES}
    assert len(names) > 30
    unknown = sorted(name for name in names if not resolves(name))
    assert not unknown
