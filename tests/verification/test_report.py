"""The page is well-formed and self-contained, and has the expected content."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.verification.report import html_report

from . import models


def parsed(text):
    assert text.startswith("<!DOCTYPE html>")
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))


def test_agreement(tmp_path):
    result = tf2jax.verify(models.TESTDATA / "tf_module", report=tmp_path / "sub" / "report.html", bisect=True)
    text = (tmp_path / "sub" / "report.html").read_text()
    page = parsed(text)
    assert "agrees with TensorFlow" in text and "probabilities" in text and "MatMul" in text
    assert len(page.findall(".//svg")) == 2  # errors, of two signatures
    assert len(page.findall(".//div[@class='bars']")) == 4  # times and ops
    assert not re.search(r"<script|<link|<img|https?:|@import|url\(", text)
    assert set(result.signatures[0].seconds) == {"tensorflow", "jax"}
    shown = ElementTree.fromstring(result._repr_html_())
    assert len(shown.findall(".//table")) == 2 and not shown.findall(".//svg")


def test_difference():
    with tf2jax.override_op("Softmax", models.softmax):
        result = tf2jax.verify(models.TESTDATA / "tf_module", signatures=["serving_default"])
    text = html_report(result)
    page = parsed(text)
    assert "differs from TensorFlow" in text
    marked = [c for c in page.findall(".//circle") if c.get("class") == "bad"]
    assert len(marked) == 1 and "Softmax" in marked[0].find("title").text
    # In a notebook a signature and its nodes have the same chart.
    for part in (result.signatures[0], result.signatures[0].bisection):
        shown = ElementTree.fromstring(part._repr_html_())
        assert [c.find("title").text for c in shown.findall(".//circle[@class='bad']")] == [
            marked[0].find("title").text
        ]


@pytest.mark.full
def test_names_from_a_model_are_escaped():
    result = tf2jax.verify(models.TESTDATA / "tf_module", signatures=["serving_default"])
    (signature,) = result.signatures
    evil = '<script>alert("1")</script>&\x00\x1b]]>'
    changed = dataclasses.replace(
        signature,
        signature=evil,
        error=evil,
        notes=[evil],
        ops={evil: 1},
        outputs=[dataclasses.replace(o, name=evil, problem=evil) for o in signature.outputs],
    )
    text = html_report(dataclasses.replace(result, model=evil, signatures=[changed]))
    assert parsed(text) is not None and "<script" not in text
