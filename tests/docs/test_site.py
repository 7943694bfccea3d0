"""The site's own code: generated reference pages, and the check of links."""

import dataclasses
import os
import subprocess
import sys

import pytest

from tests.docs.blocks import DOCS, ROOT
from tf2jax_lite.support.config import Config


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    import reference_pages

    yield reference_pages
    del sys.modules["reference_pages"]


def test_config_page_describes_each_option(extension):
    page = extension.config_page()
    for field in dataclasses.fields(Config):
        assert f".. confval:: {field.name}\n" in page
    assert ':type: ``"none" | "body" | "segments"``\n   :default: ``\'none\'``' in page
    assert "\n   What" not in page and "   Raise for arguments whose shape" in page


def test_api_page_describes_an_object_once(extension):
    described = {}
    errors = extension.api_page("tf2jax_lite.errors", described)
    assert ".. autoclass:: tf2jax_lite.errors.OpError\n   :members:\n   :show-inheritance:" in errors
    training = [extension.api_page(f"tf2jax_lite.{name}", described) for name in ("finetuning", "finetuning")]
    assert ".. autofunction:: tf2jax_lite.finetuning.finetune\n" in training[0]
    assert "- ``finetune``: :py:obj:`tf2jax_lite.finetuning.finetune`" in training[1] and "auto" not in training[1]
    assert "Read in this order" not in training[0]


@pytest.mark.parametrize(
    ("line", "escaped"),
    [
        ("pytree of `Stat`s or arrays", r"pytree of `Stat`\ s or arrays"),
        ("``tf.TensorSpec``s, arrays", r"``tf.TensorSpec``\ s, arrays"),
        ("a term |w|^2 of `w` and ``a|b``", r"a term \|w\|^2 of `w` and ``a|b``"),
    ],
)
def test_docstrings_become_restructured_text(extension, line, escaped):
    lines = [line]
    extension.as_restructured_text(None, "function", "", None, None, lines)
    assert lines == [escaped]


def test_page_of_commands_has_summaries_in_full(extension):
    commands = extension.cli_page().partition("## `tf2jax-lite")[0]
    assert "* `demo`: Convert a digits model, compare it with TensorFlow, and train it in JAX.\n" in commands
    assert "..." not in commands.partition("**Commands**")[2]


def test_page_of_ops_is_the_present_coverage(extension):
    source = ["stale"]
    extension.current_ops(None, "ops", source)
    assert 'id="op-filter"' in source[0]
    refused, _, supported = source[0].partition("## Supported")
    assert ", Conv2D, " in supported and "_ScanLayers" not in source[0]
    assert refused.index("## Not supported") < refused.index("## Evaluated at conversion")
    extension.current_ops(None, "faq", other := ["kept"])
    assert other == ["kept"]


@pytest.mark.full
def test_broken_links_are_found(tmp_path):
    (tmp_path / "index.html").write_text('<a href="a.html">A</a>')
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#part">ok</a><a href="#top">ok</a><a href="https://example.org/x">ok</a>'
        '<a href="c.html">no file</a><a href="b.html#none">no anchor</a><a href="sub/">no index</a>'
    )
    (tmp_path / "b.html").write_text('<a name="part" href="a.html"></a><img src="none.png"/>')
    run = subprocess.run(
        [sys.executable, DOCS / "_ext" / "check_links.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        "a.html: c.html: no such file",
        "a.html: b.html#none: no such anchor",
        "a.html: sub/: no such file",
        "b.html: none.png: no such file",
    ]


def test_pages_far_from_the_front_page_are_found(tmp_path):
    for page, link in zip(
        ["index", "a", "b", "c", "d"], ["a.html#x", "b.html", "c.html", "d.html", "index.html"], strict=True
    ):
        (tmp_path / f"{page}.html").write_text(f'<p id="x"><a href="{link}">next</a></p>')
    command = [sys.executable, DOCS / "_ext" / "check_links.py", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stdout == "d.html: not within 3 clicks of index.html\n"


@pytest.mark.nightly
def test_site_builds_without_warnings(tmp_path):
    pytest.importorskip("myst_nb")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(["bash", ROOT / ".ci" / "docs", tmp_path], check=True, env={**os.environ, "PATH": path})
    assert (tmp_path / "reference" / "generated" / "tf2jax_lite.html").is_file()
