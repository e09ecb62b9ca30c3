"""CatBoost: live models, .cbm and .json files.

`binary.py` and `json.py` read and check the two formats, `model.py` is what both give, and how it
becomes canonical.
"""
