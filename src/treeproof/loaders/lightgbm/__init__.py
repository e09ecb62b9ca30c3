"""LightGBM: live models and text files; `text.py` reads and checks the text of a model."""
