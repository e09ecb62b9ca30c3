"""XGBoost: live models, .json and .ubj files, and text dumps.

`document.py` decodes and checks a model document (`ubjson.py` its binary encoding), `objectives.py`
knows where margins start and how they become labels, `trees.py` makes canonical trees, `dump.py` is
the loader of text dumps.
"""
