"""LightGBM: live models and text files."""
