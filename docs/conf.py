"""Sphinx: how the pages are turned into a site; `make docs` runs it."""

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
