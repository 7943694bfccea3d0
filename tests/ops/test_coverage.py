"""Every registered op has a case, its signature is TensorFlow's OpDef, and docs/ops.md is up to date."""

import importlib
from pathlib import Path

import pytest
from tensorflow.python.framework import op_def_registry

from tf2jax_lite import coverage, lowering
from tf2jax_lite.lowering.plan import INERT
from tf2jax_lite.ops.refused import REFUSED

HERE = Path(__file__).parent
REGISTERED = lowering.known_ops()
# What the lowering itself registers is tested in tests/lowering; tensor lists are, too.
CORE = {name for name, entry in REGISTERED.items() if entry.needs_context}
OWN = {
    "_CustomGradient",
    "_GatherPieces",
    "_NoFurtherGradient",
    "_Recompute",
    "_Repeat",
    "_TensorArrayStack",
    "_Undefined",
}


def _tested():
    found = set(CORE)
    for path in HERE.glob("test_*.py"):
        if path.name == Path(__file__).name:
            continue
        module = importlib.import_module(f".{path.stem}", __package__)
        found |= {case.op for case in getattr(module, "CASES", [])}
        found |= set(getattr(module, "TESTED_OTHERWISE", ()))
    return found


def test_every_op_has_a_case():
    assert sorted(set(REGISTERED) - _tested()) == []


@pytest.mark.parametrize("name", sorted(set(REGISTERED) - OWN))
def test_signature_is_the_op_def(name):
    entry, op_def = REGISTERED[name], op_def_registry.get(name)
    if op_def is None:
        pytest.skip("an older TensorFlow's op")
    assert len(entry.inputs) == len(op_def.input_arg), [a.name for a in op_def.input_arg]
    attrs = {a.name: a for a in op_def.attr}
    assert entry.attrs <= set(attrs), entry.attrs - set(attrs)
    implied = {n for a in op_def.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
    for attr in attrs.values():
        if attr.name in entry.attrs or attr.name in implied or attr.name in INERT or attr.name.startswith("_"):
            continue
        # A type that only outputs show, and that decides them, has to be taken.
        assert attr.type in ("type", "list(type)"), f"attribute {attr.name} ({attr.type}) is not taken"
    required = {n for n in entry.required_attrs if attrs[n].HasField("default_value")}
    assert not required, f"{required} have defaults in the OpDef"


def test_refused_ops_are_not_registered():
    assert not set(REFUSED) & set(REGISTERED)
    assert len(REFUSED) <= 45 and all(REFUSED.values())


def test_the_page_is_up_to_date():
    page = HERE.parent.parent / "docs" / "ops.md"
    assert page.read_text() == coverage.markdown(), "run: python -m tf2jax_lite.coverage > docs/ops.md"
