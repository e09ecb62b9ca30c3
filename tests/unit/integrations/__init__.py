"""Tests of the layers between treeproof and what others run."""
