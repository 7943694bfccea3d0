"""Every op has a case and its OpDef's signature; the page has the others."""

import importlib
from pathlib import Path

import pytest
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

import tf2jax_lite
from tf2jax_lite import coverage, lowering
from tf2jax_lite.errors import UnsupportedOpsError
from tf2jax_lite.lowering.planning.plan import INERT
from tf2jax_lite.support.op_traits import UNSUPPORTED

HERE = Path(__file__).parent
REGISTERED = lowering.known_ops()
# The ops that the lowering registers are tested in tests/lowering; tensor lists are, too.
CORE = {name for name, entry in REGISTERED.items() if entry.needs_context}
OWN = coverage.INTERNAL  # tests/passes and tests/lowering have them


def _tested():
    found = CORE | OWN
    for path in HERE.rglob("test_*.py"):
        if path.name == Path(__file__).name:
            continue
        module = importlib.import_module(".".join(["", *path.relative_to(HERE).with_suffix("").parts]), __package__)
        found |= {case.op for case in getattr(module, "CASES", [])}
        found |= set(getattr(module, "TESTED_OTHERWISE", ()))
    return found


def test_every_op_has_a_case():
    assert sorted(set(REGISTERED) - _tested()) == []


def _differences(name):
    """Yield the ways in which an op's function differs from its OpDef."""
    entry, op_def = REGISTERED[name], op_def_registry.get(name)
    if op_def is None:  # an older TensorFlow's op
        return
    if len(entry.inputs) != len(op_def.input_arg):
        yield f"{name}: the inputs are {[a.name for a in op_def.input_arg]}"
    attrs = {a.name: a for a in op_def.attr}
    yield from (f"{name}: there is no attribute {attr}" for attr in entry.attrs - set(attrs))
    implied = {n for a in op_def.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
    for attr in attrs.values():
        if attr.name in entry.attrs or attr.name in implied or attr.name in INERT or attr.name.startswith("_"):
            continue
        # A type that only outputs show, and that decides them, has to be taken.
        if attr.type not in ("type", "list(type)"):
            yield f"{name}: attribute {attr.name} ({attr.type}) is not taken"
    for attr in entry.required_attrs & set(attrs):
        if attrs[attr].HasField("default_value"):
            yield f"{name}: attribute {attr} has a default in the OpDef"


def test_signatures_are_those_of_the_op_defs():
    assert [text for name in sorted(set(REGISTERED) - OWN) for text in _differences(name)] == []


def _graph_of(name):
    """Return a graph whose only node is an op with arbitrary attributes."""
    op_def, node = op_def_registry.get(name), node_def_pb2.NodeDef(name="y", op=name)
    node.input.extend("x" for arg in op_def.input_arg if not arg.number_attr)
    for attr in op_def.attr:
        if attr.HasField("default_value"):
            continue
        value = node.attr[attr.name]
        if attr.type == "type":
            value.type = types_pb2.DT_FLOAT
        elif attr.type == "list(type)":
            value.list.type.append(types_pb2.DT_FLOAT)
        elif attr.type == "int":
            value.i = 1
        elif attr.type == "string":
            value.s = b"Add"
        elif attr.type == "bool":
            value.b = False
        elif attr.type == "shape":
            value.shape.SetInParent()
        else:
            value.list.SetInParent()
    x = node_def_pb2.NodeDef(name="x", op="Placeholder")
    x.attr["dtype"].type = types_pb2.DT_FLOAT
    return graph_pb2.GraphDef(node=[x, node])


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_conversion_of_a_refused_op_states_the_reason(name):
    with pytest.raises(UnsupportedOpsError) as raised:
        tf2jax_lite.convert_graph_def(_graph_of(name), ["x"], ["y"])
    assert f"{name}: node 'y'" in str(raised.value) and f"({UNSUPPORTED[name]})" in str(raised.value)


@pytest.mark.full
def test_page_has_each_op_once():
    page = coverage.markdown()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert dict(rows) == UNSUPPORTED
    supported = page.partition("## Supported\n\n")[2].replace("\n\n", ", ").strip().split(", ")
    assert sorted(supported) == sorted(REGISTERED.keys() - OWN)
    assert (HERE.parents[1] / "docs" / "ops.md").read_text() == page


def test_internal_ops_are_not_tensorflows():
    assert [name for name in OWN if op_def_registry.get(name)] == []


@pytest.mark.full
def test_coverage_of_an_overridden_op_is_supported():
    before = coverage.coverage()
    with tf2jax_lite.override_op("XlaSend", lambda tensor, *, T, tensor_name: None):
        found = coverage.coverage()
    assert [e.status for e in found.entries if e.name == "XlaSend"] == ["supported"]
    for status, change in (("refused", -1), ("supported", 1), ("missing", 0)):
        assert found.count("xla_cpu_jit_ops", status) == before.count("xla_cpu_jit_ops", status) + change
