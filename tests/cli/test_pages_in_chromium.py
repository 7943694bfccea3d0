"""Pages of ``inspect`` and ``verify`` in Chromium, on a desktop and a telephone."""

import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.verification.models import TESTDATA
from tf2jax_lite.pipeline.inspect_model import describe_model, html_description

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Reads the width that a page takes in a frame of a given width.
FRAME = """<iframe id=f src="{page}" style="border: 0; width: {width}px; height: 900px"></iframe>
<script>
onload = () => document.body.append("takes " + f.contentDocument.documentElement.scrollWidth + " px")
</script>"""

pytestmark = [pytest.mark.full, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


def chromium(profile, url, *options):
    """Return the standard output of headless Chromium at a page."""
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--hide-scrollbars")
    command = [CHROMIUM, *fixed, f"--user-data-dir={profile}", *options, url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


class LongNames(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones((4, 4)), name="a_long_name_of_a_variable_" * 3)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="an_argument_with_a_long_name_" * 3)])
    def serve(self, x):
        with tf.name_scope("a_scope_with_a_long_name_" * 4):
            return tf.nn.softmax(x @ self.w)


@pytest.fixture(scope="module", params=["inspect", "verify", "verify_long_names"])
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    model, path = TESTDATA / "tf_module", folder / "page.html"
    if request.param == "verify_long_names":
        module = LongNames()
        model = folder / "model"
        tf.saved_model.save(module, str(model), signatures={"serve": module.serve})
    if request.param == "inspect":
        path.write_text(html_description(describe_model(model)))
    else:
        tf2jax.verify(model, report=path, bisect=True)
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_page_fits_and_is_drawn(page, width, tmp_path):
    frame, picture = page.with_name(f"frame{width}.html"), tmp_path / "picture.png"
    frame.write_text(FRAME.format(page=page.as_uri(), width=width))
    profile = tmp_path / "profile"
    assert f"takes {width} px" in chromium(profile, frame.as_uri(), "--dump-dom", f"--window-size={width + 40},1000")
    # Chromium's own windows are at least 500 pixels wide: the frame has the width.
    chromium(profile, frame.as_uri(), f"--screenshot={picture}", f"--window-size={width + 40},1000")
    drawn = matplotlib.image.imread(picture)[:900, :width, :3]
    rows = np.ptp(drawn.reshape(len(drawn), -1), axis=1) > 0.2
    assert rows.mean() > 0.2, "the page is blank"
