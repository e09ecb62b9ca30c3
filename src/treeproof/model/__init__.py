"""What is verified: the tree ensemble exactly as it is deployed.

Nothing in this package imports numba, so the checker can stand on it.
"""
