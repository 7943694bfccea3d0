"""Annotations and docstrings of registered ops."""

import ast
import inspect
import re

import pytest
from tensorflow.python.framework import op_def_registry

from tf2jax_lite import ops

# Functions of ops by name, of the folder ops: not those of the lowering, which take its context.
FUNCTIONS = {
    name: op for name, op in ops.known_ops().items() if not op.needs_context and "/ops/" in op.fn.__code__.co_filename
}
UNTYPED = re.compile(r"\bAny\b|^(Unconverted|Read|Write|Update|UpdateInt64)$")


def _annotations(op):
    found = {name: p.annotation for name, p in inspect.signature(op.fn).parameters.items()}
    found["return"] = op.fn.__annotations__["return"]  # the signature may be a wrapped function's
    return {name: v if isinstance(v, str) else inspect.formatannotation(v) for name, v in found.items()}


def test_inputs_attributes_and_results_have_types():
    """`Static` stands for itself: its value is a NumPy array, or a list of them."""
    untyped = {
        f"{op.source}: {name}: {text}"
        for op in FUNCTIONS.values()
        for name, text in _annotations(op).items()
        if UNTYPED.search(text)
    }
    assert not untyped, "\n".join(sorted(untyped))


def _arity(annotation):
    """Return the number of results that an annotation states, and positions of lists."""
    node = ast.parse(annotation, mode="eval").body
    found = [node]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "tuple":
        found = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    texts = [ast.unparse(item) for item in found]
    return None if "..." in texts else [text.startswith("list[") for text in texts]


@pytest.mark.parametrize("name", ["Svd", "SparseSplit", "ResourceApplyAdam", "Unpack", "NoOp"])
def test_arity_of_annotations(name):
    expected = {"Svd": [False] * 3, "SparseSplit": [True] * 3, "ResourceApplyAdam": [False] * 3, "Unpack": [True]}
    assert _arity(_annotations(FUNCTIONS[name])["return"]) == expected.get(name, [])


def test_results_are_those_of_the_op_def():
    wrong = []
    for name, op in FUNCTIONS.items():
        stated, definition = _arity(_annotations(op)["return"]), op_def_registry.get(name)
        if definition is None or stated is None:
            continue
        outputs = [bool(out.number_attr or out.type_list_attr) for out in definition.output_arg]
        if stated != [False] * len(op.writes) + outputs:
            wrong.append(f"{op.source}: {name} has {stated}, the OpDef {outputs} after {len(op.writes)} variables")
    assert not wrong, "\n".join(wrong)


def _arguments(text):
    """Return the names under ``Args`` of a docstring; None if it has no such section."""
    if "\nArgs:\n" not in text:
        return None
    section = re.split(r"\n\n", text.split("\nArgs:\n")[1])[0]
    return re.findall(r"^  \*{0,2}(\w+):", section, re.MULTILINE)


@pytest.mark.full
def test_docstrings_name_the_source_and_existing_arguments():
    """An op with a static input describes its arguments, or names the op that does."""
    wrong = []
    for name, op in FUNCTIONS.items():
        text = inspect.cleandoc(op.fn.__doc__)
        if not re.search(r"\bTF: ", text):
            wrong.append(f"{op.source}: {name} names no source in TensorFlow")
        described = _arguments(text)
        if described is None and op.static and not re.search(r"([Ss]ee|[Aa]s|those of) `", text):
            wrong.append(f"{op.source}: {name} does not describe its arguments")
        unknown = set(described or ()) - set(inspect.signature(op.fn).parameters)
        if unknown:
            wrong.append(f"{op.source}: {name} describes {sorted(unknown)}, which it does not take")
    assert not wrong, "\n".join(wrong)
