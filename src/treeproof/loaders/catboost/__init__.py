"""CatBoost: live models, .cbm and .json files.

`binary.py` and `json.py` read and check the two formats, `model.py` is what both give, `trees.py`
makes canonical trees of it.
"""
