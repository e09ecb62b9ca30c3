"""What is asked: how a row may change, what must not happen, and both as numbers."""
