"""Kernels of the algorithms of Chen et al. (2019), and of sums of trees without levels."""
