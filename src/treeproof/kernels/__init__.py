"""Compiled functions over flat arrays; they know none of our classes."""
