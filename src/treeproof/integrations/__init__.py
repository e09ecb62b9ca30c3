"""Thin layers between treeproof and what others run: pytest, MLflow."""
