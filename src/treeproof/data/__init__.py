"""Rows and labels from files of any size, and from arrays."""
