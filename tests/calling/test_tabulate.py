"""`tabulate`: a row for each param or scope, and sums."""

import re

import jax
import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError

PARAMS = {
    tf2jax.VariableName("encoder/dense/kernel", True): np.zeros((3, 4), np.float32),
    tf2jax.VariableName("encoder/dense/bias", True): np.zeros(4, np.float16),
    tf2jax.VariableName("encoder/steps", False): np.int64(0),
    tf2jax.VariableName("head", True): jax.ShapeDtypeStruct((1024, 2), np.float32),
}


def cells(table):
    """Return the cells of the printed table, row by row."""
    lines = [line for line in str(table).splitlines() if re.match(r"[│┃]", line)]
    return [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]


def test_rows_and_sums():
    assert cells(tf2jax.tabulate(PARAMS)) == [
        ["name", "shape", "dtype", "trains", "elements", "size"],
        ["encoder/dense/kernel", "3×4", "float32", "yes", "12", "48 B"],
        ["encoder/dense/bias", "4", "float16", "yes", "4", "8 B"],
        ["encoder/steps", "scalar", "int64", "no", "1", "8 B"],
        ["head", "1024×2", "float32", "yes", "2,048", "8.0 KiB"],
        ["trains", "3 params", "float16, float32", "yes", "2,064", "8.1 KiB"],
        ["does not train", "1 param", "int64", "no", "1", "8 B"],
        ["total", "4 params", "float16, float32, int64", "", "2,065", "8.1 KiB"],
    ]


def test_depth_adds_up_scopes():
    table = tf2jax.tabulate(tf2jax.nest_params(PARAMS), depth=1)
    assert [row[:2] for row in cells(table)[1:3]] == [["encoder/", "3 params"], ["head", "1024×2"]]
    assert table.totals == tf2jax.tabulate(PARAMS).totals
    assert len(tf2jax.tabulate(PARAMS, depth=2).rows) == 3


def test_html_escapes_names():
    html = tf2jax.tabulate({"<b>/w": np.zeros(2)})._repr_html_()
    assert "&lt;b&gt;/w" in html and "<b>/w" not in html and ">16 B<" in html


@pytest.mark.parametrize(("params", "depth", "words"), [({"w": 1.0}, None, "'w' is not an array"), ({}, 0, "depth")])
def test_tabulate_wrong_arguments_raise(params, depth, words):
    with pytest.raises(InputError, match=words):
        tf2jax.tabulate(params, depth)
