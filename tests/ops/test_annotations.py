"""Signatures and docstrings of registered ops are in the short form."""

import collections
import inspect
import re

import pytest

from tf2jax_lite import ops
from tf2jax_lite.ops.traits import marker_of

# Functions of ops by name, of the folder ops: not those of the lowering, which take its context.
FUNCTIONS = {
    name: op for name, op in ops.known_ops().items() if not op.needs_context and "/ops/" in op.fn.__code__.co_filename
}


def test_annotations_are_markers():
    """The OpDef has the types."""
    others = []
    for name, op in FUNCTIONS.items():
        function = inspect.unwrap(op.fn)
        for parameter in inspect.signature(op.fn).parameters.values():
            text = parameter.annotation
            if text is not parameter.empty and marker_of(text, function.__globals__) is None:
                others.append(f"{op.source}: {name}: {parameter.name}: {text}")
    assert not others, "\n".join(sorted(others))


def _arguments(text):
    """Return the names under ``Args`` of a docstring."""
    if "Args:\n" not in text:
        return []
    section = re.split(r"\n\n", text.split("Args:\n")[1])[0]
    return re.findall(r"^  \*{0,2}(\w+):", section, re.MULTILINE)


@pytest.mark.full
def test_docstrings_describe_existing_arguments():
    wrong, taken = [], collections.defaultdict(set)
    for op in FUNCTIONS.values():  # variants of one function differ in their inputs
        taken[op.source] |= set(inspect.signature(op.fn).parameters)
    for name, op in FUNCTIONS.items():
        unknown = set(_arguments(inspect.cleandoc(op.fn.__doc__))) - taken[op.source]
        if unknown:
            wrong.append(f"{op.source}: {name} describes {sorted(unknown)}, which it does not take")
    assert not wrong, "\n".join(wrong)
