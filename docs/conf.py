"""Sphinx configuration. `.ci/docs` builds the site, with warnings as errors."""

import importlib.metadata
import os
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # the converter's modules import TensorFlow

project = "tf2jax_lite"
release = importlib.metadata.version("tf2jax-lite")
author = "The tf2jax_lite authors"
copyright = author

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "reference_pages",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute", "**.ipynb_checkpoints"]

if os.environ.get("READTHEDOCS"):  # builds elsewhere need no network
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "optax": ("https://optax.readthedocs.io/en/latest", None),
    }

# Pages
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are stored with their results; tests/docs runs their cells
nb_merge_streams = True
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

# API reference
autosummary_generate = False
default_role = "py:obj"  # of `name` in docstrings
autodoc_member_order = "bysource"
autodoc_preserve_defaults = False  # it fails on functions whose signature is derived from options
autodoc_typehints = "signature"
autodoc_mock_imports = [name for name in ("flwr", "federated_language") if find_spec(name) is None]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

# HTML
html_theme = "sphinx_book_theme"
html_title = f"tf2jax_lite {release.partition('+')[0]}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = True
html_theme_options = {
    "home_page_in_toc": False,
    "navbar_persistent": [],  # the side bar has the search field
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
}
if repository := os.environ.get("READTHEDOCS_GIT_CLONE_URL", "").removesuffix(".git"):  # known where the site is hosted
    html_theme_options |= {
        "repository_url": repository,
        "repository_branch": os.environ.get("READTHEDOCS_GIT_IDENTIFIER", "main"),
        "path_to_docs": "docs",
        "use_repository_button": True,
        "use_source_button": True,
    }
