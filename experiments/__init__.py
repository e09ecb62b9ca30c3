"""Experiments that repeat published results."""
