"""Runs: one question about many rows, answered by threads or a cluster, in files that survive."""
