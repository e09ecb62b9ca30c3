"""What is asked: how a row may change, and what must not happen."""
