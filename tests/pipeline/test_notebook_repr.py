"""Converted functions as HTML, for notebooks."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax


def rows(jax_fn):
    """Return the cells of the table, row by row."""
    page = ElementTree.fromstring(jax_fn._repr_html_())
    return [["".join(cell.itertext()) for cell in row] for row in page.findall(".//tbody/tr")]


def test_arguments_and_results():
    def fn(x, state, mode="sum", *, scale):
        return {"y": x * scale + state["h"][0], "n": tf.size(x)}

    spec = tf.TensorSpec([None, 3])
    jax_fn, _ = tf2jax.convert(tf.function(fn), spec, {"h": [spec]}, scale=tf.TensorSpec([], tf.float32))
    found = rows(jax_fn)
    assert [row for row in found if row[0] == "argument"] == [
        ["argument", "x", "float32", "[?, 3]"],
        ["argument", "state/h/0", "float32", "[?, 3]"],
        ["argument", "mode", "literal", "'sum'"],
        ["argument", "scale", "float32", "[]"],
    ]
    assert [row for row in found if row[0] == "result"] == [
        ["result", "n", "int32", "[]"],
        ["result", "y", "float32", "[?, 3]"],
    ]


@pytest.mark.full
def test_names_are_escaped():
    jax_fn, _ = tf2jax.convert(tf.function(lambda x, mode: x), tf.TensorSpec(None), "<script>")
    assert rows(jax_fn)[0] == ["argument", "x", "float32", "?"]
    assert not re.search("<script", jax_fn._repr_html_())
