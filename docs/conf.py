"""Sphinx: how the pages are turned into a site; `make docs` runs it."""

import re

project = "treeproof"
html_title = "treeproof"
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
napoleon_google_docstring = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def name_no_target(app, what, name, obj, options, lines):
    """Names that end in an underscore, as scikit-learn's attributes do, are no links."""
    lines[:] = [re.sub(r"(\w)_(?=[,)])", r"\1\\_", line) for line in lines]


def setup(app):
    """Called by Sphinx."""
    # Before napoleon, which turns sections of docstrings into fields.
    app.connect("autodoc-process-docstring", name_no_target, priority=100)
