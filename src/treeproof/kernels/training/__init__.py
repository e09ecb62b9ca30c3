"""Robust training: histograms, splits, growth."""
