"""Kernels of the paper's engines and of its baselines."""
